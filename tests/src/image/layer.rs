//! The bytes of layers and tarballs: tar entries, compression, and what containerd makes of a docker-archive.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write},
    path::Path,
};

use flate2::write::GzEncoder;
use serde_json::{Value, json};
use tar::{Builder, EntryType, Header};

use super::{Compression, Image, Layer, sha256};

/// Where Debian's busybox-static puts its program.
const BUSYBOX: &str = "/bin/busybox";

/// What a test may call in a container.
const APPLETS: [&str; 8] = ["sh", "sleep", "echo", "cat", "ls", "true", "false", "wget"];

/// A root filesystem with busybox; `owner` makes it differ from all others.
pub(super) fn busybox(owner: Option<&str>) -> Vec<u8> {
    let program = fs::read(BUSYBOX)
        .unwrap_or_else(|error| panic!("{BUSYBOX}: {error} (Debian's busybox-static); cargo xtask setup"));
    let mut tar = Builder::new(Vec::new());
    let build = |tar: &mut Builder<Vec<u8>>| -> io::Result<()> {
        for dir in ["bin/", "etc/", "tmp/", "proc/", "sys/", "dev/"] {
            tar.append_data(&mut header(EntryType::Directory, 0o755, 0), dir, io::empty())?;
        }
        tar.append_data(&mut header(EntryType::Regular, 0o755, program.len()), "bin/busybox", &*program)?;
        for applet in APPLETS {
            let mut link = header(EntryType::Symlink, 0o777, 0);
            tar.append_link(&mut link, format!("bin/{applet}"), "busybox")?;
        }
        if let Some(owner) = owner {
            append(tar, "etc/image-name", owner.as_bytes())?;
        }
        Ok(())
    };
    build(&mut tar).and_then(|()| tar.into_inner()).expect("a tar in memory can be written")
}

/// A layer with one file of `size` bytes that depend on the name and the index alone.
pub(super) fn random(name: &str, index: usize, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    let seed = sha256(format!("{name}#{index}").as_bytes());
    let mut state = u64::from_str_radix(&seed[7..23], 16).expect("a digest is hexadecimal");
    for chunk in bytes.chunks_mut(8) {
        // splitmix64: incompressible is all that is asked.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        chunk.copy_from_slice(&(word ^ (word >> 31)).to_le_bytes()[..chunk.len()]);
    }
    let mut tar = Builder::new(Vec::new());
    append(&mut tar, &format!("layer-{index}.bin"), &bytes)
        .and_then(|()| tar.into_inner())
        .expect("a tar in memory can be written")
}

/// Adds a file to a tar.
pub(super) fn append<W: Write>(tar: &mut Builder<W>, path: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(EntryType::Regular, 0o644, bytes.len()), path, bytes)
}

fn header(kind: EntryType, mode: u32, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size as u64);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// Runs `write` on a writer that compresses into `out`.
pub(super) fn compress(
    mut out: impl Write,
    compression: Compression,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) {
    let written = match compression {
        Compression::Plain => write(&mut out),
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(&mut out, flate2::Compression::fast());
            write(&mut encoder).and_then(|()| encoder.finish().map(drop))
        }
        Compression::Zstd => zstd::Encoder::new(&mut out, 1).and_then(|mut encoder| {
            write(&mut encoder)?;
            encoder.finish().map(drop)
        }),
    };
    written.and_then(|()| out.flush()).expect("what a test compresses can be written");
}

/// The digest of the manifest that containerd's importer makes up for an image of a docker-archive.
///
/// Its key order is part of the digest: `core/images/archive/importer.go` writes these structs as compact JSON.
pub(super) fn docker_manifest(image: &Image, config_bytes: usize) -> String {
    let layers: Vec<String> = image
        .layers
        .iter()
        .map(|layer| descriptor("application/vnd.docker.image.rootfs.diff.tar", &layer.digest, layer.bytes))
        .collect();
    let manifest = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{},"layers":[{}]}}"#,
        descriptor("application/vnd.docker.container.image.v1+json", &image.id, config_bytes as u64),
        layers.join(",")
    );
    sha256(manifest.as_bytes())
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> String {
    format!(r#"{{"mediaType":"{media_type}","digest":"{digest}","size":{size}}}"#)
}

/// Reads what a plain docker-archive with one image holds.
pub(super) fn read_docker(path: &Path, name: &str) -> Image {
    let file = File::open(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut tar = tar::Archive::new(file);
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for entry in tar.entries().expect("skopeo writes a tar") {
        let mut entry = entry.expect("skopeo writes a whole tar");
        let path = entry.path().expect("an entry has a path").to_string_lossy().into_owned();
        let mut bytes = Vec::new();
        let _ = entry.read_to_end(&mut bytes).expect("an entry can be read");
        files.push((path, bytes));
    }
    let bytes_of = |path: &str| {
        files.iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes).expect("the archive is complete")
    };
    let manifest: Value = serde_json::from_slice(bytes_of("manifest.json")).expect("manifest.json is JSON");
    let config = bytes_of(manifest[0]["Config"].as_str().expect("a config is named"));
    let layers = manifest[0]["Layers"].as_array().expect("layers are listed").iter().map(|layer| {
        let bytes = bytes_of(layer.as_str().expect("a layer is a path"));
        let digest = sha256(bytes);
        Layer { diff_id: digest.clone(), digest, bytes: bytes.len() as u64 }
    });
    let mut image = Image {
        name: name.to_owned(),
        id: sha256(config),
        manifest: String::new(),
        layers: layers.collect(),
    };
    assert_eq!(manifest[0]["RepoTags"], json!([name]), "the name that skopeo wrote");
    image.manifest = docker_manifest(&image, config.len());
    image
}
