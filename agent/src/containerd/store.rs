//! Where containerd's files are on this node, as seen by this process.

use std::path::PathBuf;

use super::{Client, ContainerdError, Cri, introspect};
use crate::digest::Digest;

/// What CRI uses when its config names none.
const SNAPSHOTTER: &str = "overlayfs";

/// containerd's directories that imgwarden looks at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Store {
    /// The content plugin's directory: `blobs/sha256/<hex>` lies below it.
    pub content: PathBuf,
    /// CRI's snapshotter.
    pub snapshotter: String,
    /// That snapshotter's directory: for overlayfs `snapshots/<number>` lies below it. Absent when it doesn't tell.
    pub snapshots: Option<PathBuf>,
}

impl Store {
    /// Asks containerd. `None`: it has no content plugin (a proxy content store), so no files to look at.
    pub async fn find(client: &Client, cri: &Cri) -> Result<Option<Self>, ContainerdError> {
        let plugins = introspect::plugins(client).await?;
        let snapshotter = cri.status().await?.snapshotter.unwrap_or_else(|| SNAPSHOTTER.to_owned());
        let root = |kind: &str, id: &str| {
            plugins.iter().find(|p| p.kind == kind && p.id == id).and_then(|plugin| plugin.root.clone())
        };
        Ok(root("io.containerd.content.v1", "content").map(|content| Self {
            content,
            snapshots: root("io.containerd.snapshotter.v1", &snapshotter),
            snapshotter,
        }))
    }

    pub fn blob(&self, digest: Digest) -> PathBuf {
        self.content.join("blobs/sha256").join(digest.to_hex())
    }

    pub fn snapshot(&self, number: u64) -> Option<PathBuf> {
        Some(self.snapshots.as_ref()?.join("snapshots").join(number.to_string()))
    }
}
