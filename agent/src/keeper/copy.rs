//! Blobs from a tarball into containerd: streamed, hashed on both sides, only those that are missing.

use std::{
    collections::HashSet,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    runtime::Handle,
    sync::mpsc,
    task::JoinError,
};

use crate::{
    archive::{self, ArchiveError, ArchivedBlob, ArchivedImage, BlobSink, Catalog, FileIdentity, Options},
    containerd::{Client, ContainerdError, content},
    digest::Digest,
    inventory::image::{Blob, Content, Descriptor, Image, ImageRecord, Labels},
};

/// Bytes between the tarball's reader and containerd's writer.
const PIPE: usize = 1 << 20;

/// Why blobs could not be copied.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    #[error("{}: blob {digest}: {source}", path.display())]
    Write { path: PathBuf, digest: Digest, source: ContainerdError },
    #[error("{}: reading it ended: {source}", path.display())]
    Ended { path: PathBuf, source: JoinError },
}

impl CopyError {
    pub fn path(&self) -> Option<PathBuf> {
        match self {
            Self::Archive(error) => Some(error.path.clone()),
            Self::Write { path, .. } | Self::Ended { path, .. } => Some(path.clone()),
        }
    }
}

/// The catalog, shared by all repairs.
#[derive(Debug, Clone)]
pub struct Shelf {
    pub catalog: Arc<Mutex<Catalog>>,
    pub options: Options,
    pub dirs: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
}

/// Where blobs are to be read.
#[derive(Debug, Clone)]
pub struct Found {
    pub path: PathBuf,
    identity: FileIdentity,
    blobs: Vec<ArchivedBlob>,
    options: Options,
}

impl Shelf {
    pub fn new(
        options: Options,
        dirs: Vec<PathBuf>,
        files: Vec<PathBuf>,
        normalise: fn(&str) -> Option<String>,
    ) -> Self {
        let catalog = Arc::new(Mutex::new(Catalog::new(options.clone(), normalise)));
        Self { catalog, options, dirs, files }
    }

    /// Looks for tarballs that came, changed or went; unchanged ones are not read again.
    pub async fn rescan(&self) -> Vec<archive::Change> {
        let Self { catalog, options: _, dirs, files } = self.clone();
        let scan = move || catalog.lock().unwrap_or_else(PoisonError::into_inner).rescan(&dirs, &files);
        // A scan that panicked found nothing.
        tokio::task::spawn_blocking(scan).await.unwrap_or_default()
    }

    /// Tarballs that can't be read, and why.
    pub fn unreadable(&self) -> Vec<String> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.failures().take(5).map(ToString::to_string).collect()
    }

    /// IDs and normalised names of all images.
    pub fn contents(&self) -> (HashSet<Digest>, HashSet<String>) {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = catalog.images().map(|listed| listed.image.id).collect();
        let names = catalog.images().flat_map(|listed| &listed.image.names);
        (ids, names.filter_map(|name| crate::name::normalise(name).ok()).collect())
    }

    /// The same shelf with one more tarball.
    pub fn with(&self, path: PathBuf) -> Self {
        let mut shelf = self.clone();
        if !shelf.files.contains(&path) {
            shelf.files.push(path);
        }
        shelf
    }

    /// A tarball that has all of the wanted blobs of the image.
    pub fn find(&self, id: Option<Digest>, wanted: &[Blob]) -> Option<Found> {
        let wanted: HashSet<Digest> = wanted.iter().map(|blob| blob.digest).collect();
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = catalog.by_id(&id?);
        listed.into_iter().find_map(|listed| {
            let blobs: Vec<ArchivedBlob> = listed
                .image
                .blobs
                .iter()
                .filter(|blob| wanted.contains(&blob.descriptor.digest))
                .cloned()
                .collect();
            let has: HashSet<Digest> = blobs.iter().map(|blob| blob.descriptor.digest).collect();
            (has.len() == wanted.len()).then(|| Found {
                path: listed.archive.path.clone(),
                identity: listed.archive.identity,
                blobs,
                options: self.options.clone(),
            })
        })
    }

    /// An archived image by its ID or a normalised name.
    pub fn image(&self, id: Option<Digest>, name: Option<&str>) -> Option<ArchivedImage> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let listed = match (id, name) {
            (Some(id), _) => catalog.by_id(&id),
            (None, Some(name)) => catalog.by_name(name),
            (None, None) => Vec::new(),
        };
        listed.into_iter().next().map(|listed| listed.image.clone())
    }

    /// The tarball that holds an image.
    pub fn path(&self, id: Digest) -> Option<PathBuf> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.by_id(&id).into_iter().next().map(|listed| listed.archive.path.clone())
    }
}

/// An archived image as it should be in containerd: its names, its digest where that is genuine, its ID.
pub(super) fn wanted(archived: &ArchivedImage) -> Image {
    let ArchivedImage { names, id, target, genuine, blobs, chain } = archived;
    let mut all: Vec<String> = names.iter().filter_map(|name| crate::name::normalise(name).ok()).collect();
    if *genuine {
        let by_digest = |name: &String| {
            crate::name::repository(name).ok().map(|repository| format!("{repository}@{}", target.digest))
        };
        let with_digest: Vec<String> = all.iter().filter_map(by_digest).collect();
        all.extend(with_digest);
    }
    all.push(id.to_string());
    all.sort();
    all.dedup();
    let records = all
        .into_iter()
        .map(|name| ImageRecord { name, target: target.clone(), labels: Labels::new() })
        .collect();
    let blobs: Vec<Blob> = blobs
        .iter()
        .map(|blob| Blob {
            digest: blob.descriptor.digest,
            size: blob.descriptor.size,
            media_type: blob.descriptor.media_type.clone(),
            labels: blob.labels.clone(),
        })
        .collect();
    let content = Content {
        target: target.clone(),
        id: Some(*id),
        manifest: Some(target.clone()),
        blobs,
        chain: chain.clone(),
    };
    Image { records, content: Arc::new(content) }
}

/// Copies the wanted blobs, with the labels that they had; returns the bytes moved.
pub(super) async fn copy(client: &Client, found: Found, wanted: Vec<Blob>) -> Result<u64, CopyError> {
    let Found { path, identity, blobs, options } = found;
    let labels: std::collections::HashMap<Digest, Labels> =
        wanted.into_iter().map(|blob| (blob.digest, blob.labels)).collect();
    let (started, mut streams) = mpsc::channel::<(Descriptor, DuplexStream)>(1);
    let handle = Handle::current();
    let archived: Vec<(Digest, Labels)> =
        blobs.iter().map(|blob| (blob.descriptor.digest, blob.labels.clone())).collect();
    let reading_path = path.clone();
    let reading = tokio::task::spawn_blocking(move || {
        let mut sink = Pipe { handle, started, open: None };
        let wanted: Vec<&ArchivedBlob> = blobs.iter().collect();
        archive::extract(&reading_path, &identity, &wanted, &options, &mut sink)
    });
    let mut failure = None;
    while let Some((descriptor, mut stream)) = streams.recv().await {
        let Descriptor { digest, size, .. } = descriptor;
        // What the blob's labels were; a tarball's own where they are not known.
        let mut blob_labels: Labels = archived
            .iter()
            .find(|(archived, _)| *archived == digest)
            .map(|(_, labels)| labels.clone())
            .unwrap_or_default();
        blob_labels.extend(labels.get(&digest).cloned().unwrap_or_default());
        if let Err(source) = content::write(client, digest, size, &blob_labels, &mut stream).await {
            failure = Some(CopyError::Write { path: path.clone(), digest, source });
            break;
        }
    }
    drop(streams);
    let extracted = reading.await.map_err(|source| CopyError::Ended { path, source })?;
    match (extracted, failure) {
        // A blob that is wrong in the tarball is refused on both sides: the tarball's reader says where it is.
        (Err(error), None) => Err(error.into()),
        (Err(error), Some(CopyError::Write { source: ContainerdError::Mismatch { .. }, .. })) => {
            Err(error.into())
        }
        (_, Some(failure)) => Err(failure),
        (Ok(extracted), None) => Ok(extracted.bytes),
    }
}

/// Hands each blob to an asynchronous reader.
struct Pipe {
    handle: Handle,
    started: mpsc::Sender<(Descriptor, DuplexStream)>,
    open: Option<DuplexStream>,
}

impl BlobSink for Pipe {
    fn begin(&mut self, descriptor: &Descriptor) -> io::Result<()> {
        let (write, read) = tokio::io::duplex(PIPE);
        self.started
            .blocking_send((descriptor.clone(), read))
            .map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.open = Some(write);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(open) = &mut self.open else { return Err(io::ErrorKind::BrokenPipe.into()) };
        self.handle.block_on(open.write_all(bytes))
    }

    fn finish(&mut self, verified: bool) -> io::Result<()> {
        let Some(mut open) = self.open.take() else { return Ok(()) };
        if !verified {
            // One byte too many: whatever the reader has by now, it can't take it for the blob.
            let _refused = self.handle.block_on(open.write_all(&[0]));
        }
        self.handle.block_on(open.shutdown())
    }
}
