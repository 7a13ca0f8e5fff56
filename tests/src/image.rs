//! Real images in tarballs: a static busybox as the base, layers of any size, OCI layout or docker-archive.
//!
//! Everything is made from the image's name and the sizes asked for, so that two runs give the same digests. The
//! busybox layer is shared by all images, as base layers are; [`Spec::own_base`] gives one of its own. [`damage`]
//! makes the tarballs that an agent must refuse.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub mod damage;
mod layer;

use crate::process::run;

/// How a tarball says what is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `oci-layout`, `index.json`, `blobs/`.
    Oci,
    /// `manifest.json` beside configs and layers, as `docker save` writes it.
    Docker,
}

/// How bytes are compressed: a tarball's or a layer's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Plain,
    Gzip,
    Zstd,
}

/// An image to be made.
#[derive(Debug, Clone)]
pub struct Spec {
    /// The full name, `registry/path:tag`.
    name: String,
    /// Sizes of the random layers above the base, in bytes.
    layers: Vec<usize>,
    /// Whether the base layer differs from that of other images.
    own_base: bool,
    /// How its layers are compressed; a docker-archive's never are.
    compression: Compression,
}

impl Spec {
    /// An image with the shared base and one small layer of its own.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), layers: vec![64], own_base: false, compression: Compression::Plain }
    }

    /// Random layers of these sizes, in bytes, instead of the small one.
    #[must_use]
    pub fn layers(mut self, sizes: &[usize]) -> Self {
        self.layers = sizes.to_vec();
        self
    }

    /// A base layer that no other image has: deleting the image then loses all of its blobs.
    #[must_use]
    pub fn own_base(mut self) -> Self {
        self.own_base = true;
        self
    }

    /// Compressed layers.
    #[must_use]
    pub fn compressed(mut self, compression: Compression) -> Self {
        self.compression = compression;
        self
    }
}

/// An image in a tarball.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub name: String,
    /// The config's digest: CRI's id.
    pub id: String,
    /// The manifest's digest: the target of the records. Of a docker-archive the one that containerd makes up.
    pub manifest: String,
    /// The base first.
    pub layers: Vec<Layer>,
}

/// A layer of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layer {
    /// The blob's digest.
    pub digest: String,
    /// The digest of the uncompressed tar.
    pub diff_id: String,
    /// The blob's size in bytes.
    pub bytes: u64,
}

impl Image {
    /// Every blob: manifest, config, layers.
    #[must_use]
    pub fn blobs(&self) -> Vec<&str> {
        let Self { name: _, id, manifest, layers } = self;
        let layers = layers.iter().map(|layer| layer.digest.as_str());
        [manifest.as_str(), id.as_str()].into_iter().chain(layers).collect()
    }

    /// The three names of an image that was pulled: name, repository@digest, id.
    #[must_use]
    pub fn names(&self) -> [String; 3] {
        let repository = self.name.rsplit_once(':').map_or(self.name.as_str(), |(repository, _)| repository);
        [self.name.clone(), format!("{repository}@{}", self.manifest), self.id.clone()]
    }

    /// Snapshot keys, the base first.
    #[must_use]
    pub fn chain_ids(&self) -> Vec<String> {
        let mut chain: Vec<String> = Vec::new();
        for layer in &self.layers {
            let next = match chain.last() {
                Some(below) => sha256(format!("{below} {}", layer.diff_id).as_bytes()),
                None => layer.diff_id.clone(),
            };
            chain.push(next);
        }
        chain
    }
}

/// A tarball and what is in it.
#[derive(Debug, Clone)]
pub struct Archive {
    pub path: PathBuf,
    pub images: Vec<Image>,
}

impl Archive {
    /// Writes a plain OCI layout with these images.
    #[must_use]
    pub fn write(path: &Path, specs: &[Spec]) -> Self {
        Self::write_as(path, specs, Layout::Oci, Compression::Plain)
    }

    /// Writes a tarball of any kind.
    #[must_use]
    pub fn write_as(path: &Path, specs: &[Spec], layout: Layout, compression: Compression) -> Self {
        let mut blobs = Blobs::default();
        let made: Vec<Made> = specs.iter().map(|spec| Made::from(spec, layout, &mut blobs)).collect();
        let file = File::create(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        layer::compress(BufWriter::new(file), compression, |out| write_tarball(out, layout, &made, &blobs));
        Self { path: path.to_owned(), images: made.into_iter().map(|made| made.image).collect() }
    }

    /// Turns a plain OCI layout with one image into a docker-archive by skopeo: what a person would do.
    ///
    /// skopeo writes a config of its own, so the new image has another id.
    #[must_use]
    pub fn to_docker_by_skopeo(&self, path: &Path) -> Self {
        let [image] = self.images.as_slice() else { panic!("skopeo converts one image at a time") };
        let source = format!("oci-archive:{}", self.path.display());
        let target = format!("docker-archive:{}:{}", path.display(), image.name);
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--insecure-policy", &source, &target]);
        let _ = run(&mut skopeo, Duration::from_secs(120)).expect_success("skopeo copy");
        Self { path: path.to_owned(), images: vec![layer::read_docker(path, &image.name)] }
    }

    /// The first image: the only one of most tarballs.
    #[must_use]
    pub fn image(&self) -> &Image {
        self.images.first().expect("a tarball has an image")
    }
}

type Blobs = BTreeMap<String, Vec<u8>>;

/// An image whose blobs are made.
struct Made {
    image: Image,
    /// Of an OCI layout's manifest: its descriptor in `index.json`.
    descriptor: Value,
}

impl Made {
    fn from(spec: &Spec, layout: Layout, blobs: &mut Blobs) -> Self {
        let Spec { name, layers: sizes, own_base, compression } = spec;
        let base = layer::busybox(own_base.then_some(name.as_str()));
        let random = sizes.iter().enumerate().map(|(index, size)| layer::random(name, index, *size));
        let compression = if layout == Layout::Docker { Compression::Plain } else { *compression };
        let layers: Vec<Layer> = std::iter::once(base)
            .chain(random)
            .map(|tar| {
                let diff_id = sha256(&tar);
                let mut blob = Vec::new();
                layer::compress(&mut blob, compression, |out| out.write_all(&tar));
                let bytes = blob.len() as u64;
                Layer { digest: keep(blobs, blob), diff_id, bytes }
            })
            .collect();
        let config = json!({
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "Env": ["PATH=/bin"],
                "Cmd": ["/bin/sleep", "1000000000"],
                "Labels": {"test.image.name": name},
            },
            "rootfs": {
                "type": "layers",
                "diff_ids": layers.iter().map(|layer| layer.diff_id.as_str()).collect::<Vec<_>>(),
            },
        });
        let config = config.to_string().into_bytes();
        let config_bytes = config.len();
        let id = keep(blobs, config);
        let mut image = Image { name: name.clone(), id, manifest: String::new(), layers };
        let descriptor = match layout {
            Layout::Oci => {
                let manifest = oci_manifest(&image, config_bytes, compression).to_string().into_bytes();
                let bytes = manifest.len();
                image.manifest = keep(blobs, manifest);
                json!({
                    "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "digest": image.manifest,
                    "size": bytes,
                    "platform": {"architecture": "amd64", "os": "linux"},
                    "annotations": {
                        "io.containerd.image.name": name,
                        "org.opencontainers.image.ref.name":
                            name.rsplit_once(':').map_or("latest", |(_, tag)| tag),
                    },
                })
            }
            Layout::Docker => {
                image.manifest = layer::docker_manifest(&image, config_bytes);
                Value::Null
            }
        };
        Self { image, descriptor }
    }
}

fn oci_manifest(image: &Image, config_bytes: usize, compression: Compression) -> Value {
    let suffix = match compression {
        Compression::Plain => "",
        Compression::Gzip => "+gzip",
        Compression::Zstd => "+zstd",
    };
    let layers: Vec<Value> = image
        .layers
        .iter()
        .map(|layer| {
            json!({
                "mediaType": format!("application/vnd.oci.image.layer.v1.tar{suffix}"),
                "digest": layer.digest,
                "size": layer.bytes,
            })
        })
        .collect();
    json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {
            "mediaType": "application/vnd.oci.image.config.v1+json",
            "digest": image.id,
            "size": config_bytes,
        },
        "layers": layers,
    })
}

fn write_tarball(out: &mut dyn Write, layout: Layout, made: &[Made], blobs: &Blobs) -> std::io::Result<()> {
    let mut tar = tar::Builder::new(out);
    match layout {
        Layout::Oci => {
            layer::append(&mut tar, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
            let manifests: Vec<&Value> = made.iter().map(|made| &made.descriptor).collect();
            let index = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
            layer::append(&mut tar, "index.json", index.as_bytes())?;
            for (digest, bytes) in blobs {
                let path = format!("blobs/{}", digest.replace(':', "/"));
                layer::append(&mut tar, &path, bytes)?;
            }
        }
        Layout::Docker => {
            for (digest, bytes) in blobs {
                let config = made.iter().any(|made| made.image.id == *digest);
                layer::append(&mut tar, &docker_path(digest, config), bytes)?;
            }
            let images: Vec<Value> = made
                .iter()
                .map(|made| {
                    let Image { name, id, manifest: _, layers } = &made.image;
                    let layers: Vec<String> =
                        layers.iter().map(|layer| docker_path(&layer.digest, false)).collect();
                    json!({"Config": docker_path(id, true), "RepoTags": [name], "Layers": layers})
                })
                .collect();
            layer::append(&mut tar, "manifest.json", Value::from(images).to_string().as_bytes())?;
        }
    }
    tar.into_inner()?.flush()
}

/// A blob's path in a docker-archive.
fn docker_path(digest: &str, config: bool) -> String {
    let hash = digest.trim_start_matches("sha256:");
    if config { format!("{hash}.json") } else { format!("{hash}.tar") }
}

/// Adds a blob and gives its digest.
fn keep(blobs: &mut Blobs, bytes: Vec<u8>) -> String {
    let digest = sha256(&bytes);
    blobs.insert(digest.clone(), bytes);
    digest
}

/// A digest with its algorithm.
#[must_use]
pub fn sha256(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}
