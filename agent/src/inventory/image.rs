//! Images as the inventory keeps them: records (names) and contents (what a target digest references).

use std::{collections::BTreeMap, sync::Arc};

use crate::digest::Digest;

/// Labels of a record or a blob.
pub type Labels = BTreeMap<String, String>;

/// A pointer to content, as in an OCI index.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Descriptor {
    pub media_type: String,
    pub digest: Digest,
    pub size: u64,
}

/// An image record in the watched namespace: one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    pub name: String,
    pub target: Descriptor,
    pub labels: Labels,
}

/// What a target references on this node: the blobs that are present, and the layers' chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub target: Descriptor,
    /// The image ID: the config's digest. Absent when the manifest or the config can't be read.
    pub id: Option<Digest>,
    /// The manifest for this node's platform: the target itself, or one of its index.
    pub manifest: Option<Descriptor>,
    /// Index, manifest, config and layers that containerd's metadata has, in that order. Layers of images that were
    /// discarded after unpacking are not in it.
    pub blobs: Vec<Blob>,
    /// Chain IDs of the layers, bottom first.
    pub chain: Vec<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    pub digest: Digest,
    pub size: u64,
    pub media_type: String,
    pub labels: Labels,
}

/// One image: everything that shares an image ID and a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub records: Vec<ImageRecord>,
    pub content: Arc<Content>,
}
