//! The JSON documents of an archive, as far as they are needed.
//!
//! Only the fields that matter are named, so that an odd value elsewhere (`"Env": null`, an unknown architecture, a
//! sha512 of something for another platform) doesn't cost the image.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

pub(super) const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
pub(super) const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
pub(super) const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
pub(super) const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.diff.tar";
pub(super) const DOCKER_LAYER_GZIP: &str = "application/vnd.docker.image.rootfs.diff.tar.gzip";
pub(super) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(super) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(super) const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// A list or a map that Go may have written as null.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// A pointer whose digest is a text until somebody needs it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Pointer {
    #[serde(default, deserialize_with = "nullable")]
    pub media_type: String,
    pub digest: String,
    pub size: u64,
    #[serde(default, deserialize_with = "nullable")]
    pub annotations: BTreeMap<String, String>,
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Platform {
    #[serde(default, deserialize_with = "nullable")]
    pub os: String,
    #[serde(default, deserialize_with = "nullable")]
    pub architecture: String,
    pub variant: Option<String>,
}

/// An index or a manifest: which one, its fields say. A media type may be absent or wrong.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Manifest {
    #[serde(default, deserialize_with = "nullable")]
    pub media_type: String,
    /// An index has it.
    pub manifests: Option<Vec<Pointer>>,
    /// A manifest has it.
    pub config: Option<Pointer>,
    #[serde(default, deserialize_with = "nullable")]
    pub layers: Vec<Pointer>,
}

/// An image config.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Config {
    #[serde(flatten)]
    pub platform: Platform,
    pub rootfs: RootFs,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct RootFs {
    #[serde(default, deserialize_with = "nullable")]
    pub diff_ids: Vec<String>,
}

/// One image of docker's manifest.json.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Saved {
    pub config: String,
    #[serde(default, deserialize_with = "nullable")]
    pub repo_tags: Vec<String>,
    #[serde(default, deserialize_with = "nullable")]
    pub layers: Vec<String>,
}

/// The manifest that containerd makes of a docker-archive: this order of keys, compact
/// (core/images/archive/importer.go).
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MadeManifest<'a> {
    pub schema_version: u8,
    pub media_type: &'a str,
    pub config: MadePointer<'a>,
    pub layers: Vec<MadePointer<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MadePointer<'a> {
    pub media_type: &'a str,
    pub digest: String,
    pub size: u64,
}

/// As containerd's images.IsKnownConfig: what may be an image's config.
pub(super) fn is_config(media_type: &str) -> bool {
    matches!(media_type, DOCKER_CONFIG | OCI_CONFIG)
}

/// As containerd's images.IsLayerType.
pub(super) fn is_layer(media_type: &str) -> bool {
    media_type.starts_with("application/vnd.oci.image.layer.")
        || media_type.starts_with("application/vnd.docker.image.rootfs.")
}
