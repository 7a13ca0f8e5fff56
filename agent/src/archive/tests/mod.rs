//! Archives made here, byte by byte, and what must come of them.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::{Value, json};

use super::*;

mod catalog;
mod damage;
mod odd;
mod tools;

/// A tar that is being written.
pub(super) struct Tar(tar::Builder<Vec<u8>>);

impl Tar {
    pub(super) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(super) fn file(mut self, name: &str, content: &[u8]) -> Self {
        let mut header = Self::header(tar::EntryType::Regular, content.len() as u64);
        // Written by hand: the builder refuses names that an attacker wouldn't.
        if name.len() < 100 {
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            self.0.append(&header, content).unwrap();
        } else {
            self.0.append_data(&mut header, name, content).unwrap();
        }
        self
    }

    pub(super) fn link(mut self, kind: tar::EntryType, name: &str, target: &str) -> Self {
        let mut header = Self::header(kind, 0);
        self.0.append_link(&mut header, name, target).unwrap();
        self
    }

    fn header(kind: tar::EntryType, size: u64) -> tar::Header {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(0o444);
        header.set_mtime(0);
        header.set_cksum();
        header
    }

    pub(super) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// An image that can be written in any form.
#[derive(Clone)]
pub(super) struct Image {
    pub layers: Vec<Vec<u8>>,
    pub config: Vec<u8>,
}

impl Image {
    /// `count` layers, different for each `seed`.
    pub(super) fn new(seed: &str, count: usize) -> Self {
        let layers: Vec<_> = (0..count)
            .map(|i| Tar::new().file("etc/hello", format!("{seed} {i}").as_bytes()).bytes())
            .collect();
        let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
        let platform = Platform::default();
        let config = json!({"architecture": platform.architecture, "os": platform.os, "config": {"Env": null},
            "rootfs": {"type": "layers", "diff_ids": diff_ids}, "seed": seed});
        Self { layers, config: serde_json::to_vec(&config).unwrap() }
    }

    pub(super) fn id(&self) -> Digest {
        Digest::of(&self.config)
    }

    pub(super) fn manifest(&self) -> Vec<u8> {
        let layers: Vec<_> = self
            .layers
            .iter()
            .map(|l| pointer("application/vnd.oci.image.layer.v1.tar+gzip", &gzip(l)))
            .collect();
        let manifest = json!({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": pointer("application/vnd.oci.image.config.v1+json", &self.config), "layers": layers});
        serde_json::to_vec(&manifest).unwrap()
    }

    /// The blobs of an OCI layout, below `root`.
    pub(super) fn blobs(&self, mut tar: Tar, root: &str) -> Tar {
        for layer in &self.layers {
            tar = blob(tar, root, &gzip(layer));
        }
        blob(blob(tar, root, &self.config), root, &self.manifest())
    }

    /// A whole OCI layout.
    pub(super) fn oci(&self, name: &str) -> Vec<u8> {
        let tar = self.blobs(layout(Tar::new(), ""), "");
        tar.file("index.json", &index(&[named(&self.manifest(), name)])).bytes()
    }

    /// A whole docker-archive with plain layers, manifest.json last.
    pub(super) fn docker(&self, tags: &Value) -> Vec<u8> {
        let (tar, saved) = self.saved(Tar::new(), tags);
        tar.file("manifest.json", &serde_json::to_vec(&json!([saved])).unwrap()).bytes()
    }

    /// Its files in a docker-archive, and its part of manifest.json.
    pub(super) fn saved(&self, mut tar: Tar, tags: &Value) -> (Tar, Value) {
        let name = |layer: &Vec<u8>| format!("{}.tar", Digest::of(layer).to_hex());
        let config = format!("{}.json", self.id().to_hex());
        tar = tar.file(&config, &self.config);
        for layer in &self.layers {
            tar = tar.file(&name(layer), layer);
        }
        let layers: Vec<_> = self.layers.iter().map(name).collect();
        (tar, json!({"Config": config, "RepoTags": tags, "Layers": layers}))
    }
}

pub(super) fn layout(tar: Tar, root: &str) -> Tar {
    tar.file(&format!("{root}oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)
}

pub(super) fn blob(tar: Tar, root: &str, content: &[u8]) -> Tar {
    tar.file(&format!("{root}blobs/sha256/{}", Digest::of(content).to_hex()), content)
}

pub(super) fn pointer(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len()})
}

pub(super) fn named(manifest: &[u8], name: &str) -> Value {
    let mut pointer = pointer("application/vnd.oci.image.manifest.v1+json", manifest);
    pointer["annotations"] = json!({"io.containerd.image.name": name});
    pointer
}

pub(super) fn index(pointers: &[Value]) -> Vec<u8> {
    serde_json::to_vec(&json!({"schemaVersion": 2, "manifests": pointers})).unwrap()
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A file in a directory that goes with it.
pub(super) struct Placed {
    _directory: tempfile::TempDir,
    pub path: PathBuf,
}

pub(super) fn place(bytes: &[u8]) -> Placed {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("images.tar");
    std::fs::write(&path, bytes).unwrap();
    Placed { _directory: directory, path }
}

pub(super) fn read_bytes(bytes: &[u8]) -> Result<Archive, ArchiveError> {
    let placed = place(bytes);
    read(&placed.path, &Options { depth: Depth::Layers, ..Options::default() })
}

/// A sink that keeps everything, and checks the order of calls.
#[derive(Default)]
pub(super) struct Kept {
    pub verified: Vec<(Digest, Vec<u8>)>,
    pub refused: Vec<Digest>,
    open: Option<(Digest, Vec<u8>)>,
}

impl BlobSink for Kept {
    fn begin(&mut self, descriptor: &Descriptor) -> io::Result<()> {
        assert!(self.open.replace((descriptor.digest, Vec::new())).is_none());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.open.as_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(&mut self, verified: bool) -> io::Result<()> {
        let (digest, bytes) = self.open.take().unwrap();
        match verified {
            true => self.verified.push((digest, bytes)),
            false => self.refused.push(digest),
        }
        Ok(())
    }
}

/// Takes everything out of every image, and checks that the bytes are those of the digests.
pub(super) fn extract_all(path: &Path, archive: &Archive) -> usize {
    let mut blobs = 0;
    for image in &archive.images {
        let mut kept = Kept::default();
        let wanted: Vec<_> = image.blobs.iter().collect();
        let extracted = extract(path, &archive.identity, &wanted, &Options::default(), &mut kept)
            .expect("it was just read");
        assert_eq!(extracted.blobs.len(), image.blobs.len());
        assert_eq!(extracted.bytes, image.size());
        assert!(kept.verified.iter().all(|(digest, bytes)| Digest::of(bytes) == *digest));
        blobs += kept.verified.len();
    }
    blobs
}
