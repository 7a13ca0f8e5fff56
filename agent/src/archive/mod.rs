//! What local image tarballs hold: docker-archive and OCI layout, plain or compressed.
//!
//! [`read`] takes a file and gives the images in it that this node could run, each with the blobs that it needs, where
//! they lie, and the labels they must get in containerd. [`Catalog`] keeps that for directories of files. [`extract`]
//! streams wanted blobs out again, verified. Everything is synchronous and streams: no layer is ever held in memory.
//!
//! Never: trusts a file name, an extension or a digest that is only written down. An image is listed when every blob of
//! it was hashed; what is wrong with the others is in [`Archive::problems`]. Nothing here writes to disk or talks to
//! containerd.
//!
//! The way of a byte: [`compression`] → [`walk`] (tar entries) → [`contents`] (one pass: digests, JSON documents) →
//! [`oci`] or [`docker`] (images).

use std::{
    fs::Metadata,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    digest::Digest,
    inventory::image::{Descriptor, Labels},
};

mod catalog;
mod checksum;
mod compression;
mod contents;
mod docker;
mod document;
mod error;
mod extract;
mod image;
pub mod labels;
mod oci;
mod platform;
mod read;
mod walk;

pub use catalog::{Catalog, Change, Listed, archives_in};
pub use checksum::{Checksum, checksum};
pub use compression::Compression;
pub use error::{ArchiveError, ArchiveProblem, Fault};
pub use extract::{BlobSink, Extracted, extract};
pub use platform::Platform;
pub use read::read;

/// A tarball that was read to its end.
#[derive(Debug, Clone)]
pub struct Archive {
    pub path: PathBuf,
    /// The file as it was when it was read.
    pub identity: FileIdentity,
    pub form: Form,
    pub compression: Compression,
    /// The images that this node could take from it. Every blob was hashed.
    pub images: Vec<ArchivedImage>,
    /// What is wrong or odd, [damage](ArchiveProblem::is_damage) and mere notes. At most [`Limits::problems`].
    pub problems: Vec<ArchiveProblem>,
}

/// Which file a path meant: a file that was replaced or written to is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
    /// Bytes on disk, compressed.
    pub size: u64,
    /// Seconds and nanoseconds since 1970.
    pub mtime: (i64, i64),
}

impl From<&Metadata> for FileIdentity {
    fn from(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// How the images lie in the tar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `index.json` and `blobs/`.
    OciLayout,
    /// `manifest.json`, as `docker save` writes it.
    DockerArchive,
}

impl Form {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OciLayout => "oci",
            Self::DockerArchive => "docker",
        }
    }
}

/// One image of an archive: everything that shares a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedImage {
    /// As they stand in the archive, neither normalised nor checked. Empty for an image that was saved by ID.
    pub names: Vec<String>,
    /// The image ID: the config's digest.
    pub id: Digest,
    /// What a record would point to: an index or a manifest. Of a docker-archive: the manifest that containerd
    /// would make of it.
    pub target: Descriptor,
    /// The target's bytes come from the archive, so `name@digest` means the same as elsewhere. False for a
    /// docker-archive.
    pub genuine: bool,
    /// Indexes, manifest, config and layers, in that order, each digest once.
    pub blobs: Vec<ArchivedBlob>,
    /// Chain IDs of the layers, bottom first.
    pub chain: Vec<Digest>,
}

impl ArchivedImage {
    /// Bytes of all blobs.
    pub fn size(&self) -> u64 {
        self.blobs.iter().map(|blob| blob.descriptor.size).sum()
    }
}

/// A blob, where it lies, and the labels that it needs in containerd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedBlob {
    pub descriptor: Descriptor,
    /// GC references, the uncompressed digest, and sources that the archive names.
    pub labels: Labels,
    /// What the bytes unpack to: of layers only, and checked while they are extracted.
    pub diff_id: Option<Digest>,
    pub place: Place,
}

/// Where the bytes of a blob are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the entry of this name, whose header is at `offset` of the uncompressed tar.
    Entry { name: String, offset: u64 },
    /// Nowhere: they were made here, from what the archive says.
    Made(Arc<[u8]>),
}

/// How much an archive may ask of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Entries of one tar, extension headers included.
    pub entries: usize,
    /// Bytes of one JSON document; containerd's own limit.
    pub document: u64,
    /// Bytes of all documents that are kept while one archive is read.
    pub documents: u64,
    /// Bytes of one archive after decompression, and of all its layers after theirs.
    pub unpacked: u64,
    /// Largest zstd window, as a power of two: it is memory. `zstd --long` writes 27.
    pub window_log: u32,
    /// Images of one archive.
    pub images: usize,
    /// Problems that are kept of one archive.
    pub problems: usize,
    /// Archives in one catalog.
    pub archives: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 200_000,
            document: 20 << 20,
            documents: 64 << 20,
            unpacked: 512 << 30,
            window_log: 27,
            images: 10_000,
            problems: 256,
            archives: 4_096,
        }
    }
}

/// How closely an archive is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Depth {
    /// Every blob is hashed. Compressed layers are not unpacked: that they match the config's diff IDs is checked when
    /// they are extracted.
    #[default]
    Content,
    /// Compressed layers are unpacked too, and compared to the diff IDs.
    Layers,
}

/// Ends a read from another thread.
#[derive(Debug, Clone, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// What [`read`] is to do.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub limits: Limits,
    pub depth: Depth,
    /// Of an index, the manifest of this platform is taken.
    pub platform: Platform,
    pub stop: Stop,
}
