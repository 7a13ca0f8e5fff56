//! All of a containerd's state in comparable form: what "nothing was changed" means in a test.
//!
//! Read over the API (every namespace: images, content, leases with their resources, snapshots) and from the disk
//! (blob files with sizes, snapshot directories). Nothing is changed by reading it.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use containerd_client::{
    services::v1::{
        ListContentRequest, ListImagesRequest, ListNamespacesRequest, ListRequest, ListResourcesRequest,
        content_client::ContentClient,
        images_client::ImagesClient,
        leases_client::LeasesClient,
        namespaces_client::NamespacesClient,
        snapshots::{ListSnapshotsRequest, snapshots_client::SnapshotsClient},
    },
    with_namespace,
};
use tonic::{Request, transport::Channel};

use crate::{containerd::Containerd, cri::runtime};

type Labels = BTreeMap<String, String>;

/// What one containerd holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    pub namespaces: BTreeMap<String, Namespace>,
    /// Blob files by digest, with their sizes in bytes.
    pub blob_files: BTreeMap<String, u64>,
    /// Numbered directories of overlayfs.
    pub snapshot_dirs: BTreeSet<String>,
}

/// What one namespace holds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespace {
    pub labels: Labels,
    /// Image records by name.
    pub images: BTreeMap<String, ImageRecord>,
    /// Blobs' metadata by digest.
    pub content: BTreeMap<String, Labels>,
    /// Leases by id.
    pub leases: BTreeMap<String, Lease>,
    /// overlayfs snapshots by key.
    pub snapshots: BTreeMap<String, Snapshot>,
}

/// An image record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// The digest of its manifest or index.
    pub target: String,
    pub media_type: String,
    /// Bytes of the target alone.
    pub size: i64,
    pub labels: Labels,
    /// Seconds and nanoseconds: a write that changes nothing else still shows here.
    pub updated: Option<(i64, i32)>,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    pub labels: Labels,
    /// `type/id` of what it holds.
    pub resources: BTreeSet<String>,
}

/// A snapshot's metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub parent: String,
    /// The API's number: 1 view, 2 active, 3 committed.
    pub kind: i32,
    pub labels: Labels,
}

impl State {
    pub(crate) fn read(containerd: &Containerd) -> Self {
        let namespaces = runtime().block_on(async {
            let channel = containerd_client::connect(containerd.address()).await.expect("containerd answers");
            read_namespaces(&channel).await.expect("containerd lists what it holds")
        });
        let blobs = containerd.blob("").to_path_buf();
        Self { namespaces, blob_files: blob_files(&blobs), snapshot_dirs: names(&containerd.snapshots()) }
    }

    /// The same without the times, for a comparison across a deletion and a repair.
    #[must_use]
    pub fn without_times(mut self) -> Self {
        for namespace in self.namespaces.values_mut() {
            for image in namespace.images.values_mut() {
                image.updated = None;
            }
        }
        self
    }

    /// Panics with the differing lines unless both are equal.
    pub fn expect_equal(&self, other: &Self, what: &str) {
        let (before, after) = (format!("{self:#?}"), format!("{other:#?}"));
        let (old, new): (BTreeSet<&str>, BTreeSet<&str>) =
            (before.lines().collect(), after.lines().collect());
        let differences: Vec<String> = old
            .difference(&new)
            .map(|line| format!("- {line}"))
            .chain(new.difference(&old).map(|line| format!("+ {line}")))
            .collect();
        assert!(self == other, "{what}: containerd's state differs:\n{}", differences.join("\n"));
    }
}

async fn read_namespaces(channel: &Channel) -> Result<BTreeMap<String, Namespace>, tonic::Status> {
    let listed = NamespacesClient::new(channel.clone())
        .list(ListNamespacesRequest::default())
        .await?
        .into_inner()
        .namespaces;
    let mut namespaces = BTreeMap::new();
    for namespace in listed {
        let read = read_namespace(channel, &namespace.name, namespace.labels.into_iter().collect()).await?;
        namespaces.insert(namespace.name, read);
    }
    Ok(namespaces)
}

async fn read_namespace(channel: &Channel, name: &str, labels: Labels) -> Result<Namespace, tonic::Status> {
    let mut namespace = Namespace { labels, ..Namespace::default() };
    let request = with_namespace!(ListImagesRequest::default(), name);
    for image in ImagesClient::new(channel.clone()).list(request).await?.into_inner().images {
        let target = image.target.unwrap_or_default();
        let record = ImageRecord {
            target: target.digest,
            media_type: target.media_type,
            size: target.size,
            labels: image.labels.into_iter().collect(),
            updated: image.updated_at.map(|time| (time.seconds, time.nanos)),
        };
        namespace.images.insert(image.name, record);
    }
    let request = with_namespace!(ListContentRequest::default(), name);
    let mut pages = ContentClient::new(channel.clone()).list(request).await?.into_inner();
    while let Some(page) = pages.message().await? {
        namespace
            .content
            .extend(page.info.into_iter().map(|info| (info.digest, info.labels.into_iter().collect())));
    }
    let request = with_namespace!(
        ListSnapshotsRequest { snapshotter: "overlayfs".to_owned(), ..ListSnapshotsRequest::default() },
        name
    );
    let mut pages = SnapshotsClient::new(channel.clone()).list(request).await?.into_inner();
    while let Some(page) = pages.message().await? {
        namespace.snapshots.extend(page.info.into_iter().map(|info| {
            let snapshot =
                Snapshot { parent: info.parent, kind: info.kind, labels: info.labels.into_iter().collect() };
            (info.name, snapshot)
        }));
    }
    let mut leases = LeasesClient::new(channel.clone());
    let request = with_namespace!(ListRequest::default(), name);
    for lease in leases.list(request).await?.into_inner().leases {
        let request = with_namespace!(ListResourcesRequest { id: lease.id.clone() }, name);
        let resources = match leases.list_resources(request).await {
            Ok(resources) => resources.into_inner().resources,
            // It went since it was listed.
            Err(status) if status.code() == tonic::Code::NotFound => continue,
            Err(status) => return Err(status),
        };
        let resources = resources.into_iter().map(|resource| format!("{}/{}", resource.r#type, resource.id));
        let held = Lease { labels: lease.labels.into_iter().collect(), resources: resources.collect() };
        namespace.leases.insert(lease.id, held);
    }
    Ok(namespace)
}

/// Blob files by digest with their sizes; an absent directory is empty.
fn blob_files(dir: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let size = entry.metadata().ok()?.len();
            Some((format!("sha256:{}", entry.file_name().to_string_lossy()), size))
        })
        .collect()
}

/// The names in a directory; an absent one is empty.
fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}
