//! What can be wrong with an archive: faults end the reading, problems are found in an archive that could be read.

use std::{error::Error, fmt, io, path::PathBuf};

use crate::digest::Digest;

use super::compression::Compression;

/// Why a file could not be read as an archive.
#[derive(Debug)]
pub struct ArchiveError {
    pub path: PathBuf,
    pub fault: Fault,
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault)
    }
}

impl Error for ArchiveError {
    /// The fault is part of the message, so its source comes next.
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.fault.source()
    }
}

/// What is wrong, without the path. Offsets are those of the uncompressed tar. Entry names are quoted and escaped.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("can't be read")]
    Io(#[source] io::Error),
    #[error("is not a regular file")]
    NotAFile,
    #[error("is empty")]
    Empty,
    #[error("not a tar archive, but {0}")]
    NotTar(&'static str),
    #[error("{0} compression is not supported: gzip, zstd, lz4 and bzip2 are")]
    Compression(&'static str),
    #[error("zstd window too large: more than {limit_mib} MiB of memory would be needed to read it")]
    Window {
        limit_mib: u64,
        #[source]
        source: io::Error,
    },
    #[error("truncated at {}", at(entry, *offset))]
    Truncated { entry: Option<String>, offset: u64 },
    #[error("damaged {compression} stream at {}", at(entry, *offset))]
    Corrupt {
        compression: Compression,
        entry: Option<String>,
        offset: u64,
        #[source]
        source: io::Error,
    },
    #[error("damaged tar header after {}: {what}", at(entry, *offset))]
    Header { entry: Option<String>, offset: u64, what: &'static str },
    #[error("more than {limit} entries")]
    Entries { limit: usize },
    #[error("more than {limit} images")]
    Images { limit: usize },
    #[error("unpacks to more than {limit} bytes")]
    Unpacked { limit: u64 },
    #[error("entry {entry:?} has an absolute name: make the archive with relative names")]
    AbsoluteName { entry: String },
    #[error("entry {entry:?} points outside of the archive")]
    OutsideName { entry: String },
    #[error("no image archive: it has neither manifest.json nor index.json{}", hint.map(|h| format!(" ({h})")).unwrap_or_default())]
    Unrecognised { hint: Option<&'static str> },
    #[error("several image archives in one: {first:?} and {second:?}")]
    Ambiguous { first: String, second: String },
    #[error("entry {entry:?}: {size} bytes are too much for a JSON document (limit {limit})")]
    DocumentSize { entry: String, size: u64, limit: u64 },
    #[error("its JSON documents are too large to be kept together (limit {limit} bytes)")]
    Documents { limit: u64 },
    #[error("entry {entry:?} at offset {offset} is no valid JSON document of its kind")]
    Document {
        entry: String,
        offset: u64,
        #[source]
        source: serde_json::Error,
    },
    #[error("no images: {entry:?} lists none")]
    NoImages { entry: String },
    #[error("was replaced or changed since it was catalogued")]
    Replaced,
    #[error("entry {entry:?} at offset {offset} holds {found}, not {expected}")]
    Mismatch { entry: String, offset: u64, expected: Digest, found: Digest },
    #[error("entry {entry:?} at offset {offset} has {found} bytes, not {expected}")]
    Size { entry: String, offset: u64, expected: u64, found: u64 },
    #[error("layer {entry:?} at offset {offset} unpacks to {found}, but the config says {expected}")]
    Unpacks { entry: String, offset: u64, expected: Digest, found: Digest },
    #[error("layer {entry:?} at offset {offset} can't be unpacked")]
    Layer {
        entry: String,
        offset: u64,
        #[source]
        source: io::Error,
    },
    #[error("blob {digest} could not be stored")]
    Sink {
        digest: Digest,
        #[source]
        source: io::Error,
    },
    #[error("reading it was stopped")]
    Stopped,
}

impl Fault {
    /// The file itself could not be read: nothing is known about what it holds.
    pub fn is_unreadable(&self) -> bool {
        matches!(self, Self::Io(_) | Self::NotAFile | Self::Stopped)
    }
}

fn at(entry: &Option<String>, offset: u64) -> String {
    match entry {
        Some(entry) => format!("entry {entry:?} (offset {offset})"),
        None => format!("offset {offset}"),
    }
}

/// What was found in an archive that could be read. `image` is the image's first name, or its digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveProblem {
    #[error("entry {entry:?} at offset {offset} holds {found}, not {expected}")]
    Mismatch { entry: String, offset: u64, expected: Digest, found: Digest },
    #[error("entry {entry:?} at offset {offset} has {found} bytes, not the {expected} of its descriptor")]
    Size { entry: String, offset: u64, expected: u64, found: u64 },
    #[error("image {image:?}: {what} is absent")]
    Absent { image: String, what: String },
    #[error("image {image:?}: {what} is damaged")]
    Damaged { image: String, what: String },
    #[error("image {image:?}: {what} is a link that leads nowhere")]
    Dangling { image: String, what: String },
    #[error("image {image:?}: {entry:?} is a sparse file, which no image tool writes")]
    Sparse { image: String, entry: String },
    #[error("image {image:?}: {layers} layers, but {diff_ids} diff IDs in its config")]
    LayerCount { image: String, layers: usize, diff_ids: usize },
    #[error(
        "image {image:?}: layer {entry:?} at offset {offset} unpacks to {found}, but its config says {expected}"
    )]
    DiffId { image: String, entry: String, offset: u64, expected: Digest, found: Digest },
    #[error("image {image:?}: layer {entry:?} at offset {offset} can't be unpacked: {why}")]
    Layer { image: String, entry: String, offset: u64, why: String },
    #[error("image {image:?}: {entry:?} at offset {offset} can't be understood: {why}")]
    Document { image: String, entry: String, offset: u64, why: String },
    #[error("image {image:?}: {digest:?} is no sha256 digest")]
    Digest { image: String, digest: String },
    #[error("image {image:?}: indexes are nested too deep")]
    Nesting { image: String },
    #[error("image {image:?} has no manifest for {os}/{architecture}")]
    NoPlatform { image: String, os: String, architecture: String },
    #[error("image {image:?} is for {os}/{architecture}, not for this node")]
    ForeignPlatform { image: String, os: String, architecture: String },
    #[error("image {image:?} has no name: it can be found by its ID only")]
    Nameless { image: String },
    #[error(
        "image {image:?} is called {text:?}, which is a tag without a repository: it can be found by its ID only"
    )]
    BareTag { image: String, text: String },
    #[error("image {image:?}: index.json calls it {index:?}, manifest.json {manifest:?}; {used} counts")]
    NamesDiffer { image: String, index: Vec<String>, manifest: Vec<String>, used: &'static str },
    #[error("{image:?} is no image but an artifact ({media_type:?})")]
    Artifact { image: String, media_type: String },
    #[error(
        "entry {entry:?} is there more than once with different contents: the last counts (offset {offset})"
    )]
    Duplicate { entry: String, offset: u64 },
    #[error("the end-of-archive mark is missing")]
    NoEnd,
    #[error("something follows the end-of-archive mark at offset {offset}: {what}")]
    Trailing { offset: u64, what: String },
    #[error("{expected} by {list}, but the file is {found}")]
    Checksum { list: String, expected: Digest, found: Digest },
    #[error("{more} more problems were not kept")]
    More { more: usize },
}

impl ArchiveProblem {
    /// Something is wrong: an image was refused, or would have been. False for what is merely worth knowing.
    pub fn is_damage(&self) -> bool {
        match self {
            Self::Mismatch { .. }
            | Self::Size { .. }
            | Self::Absent { .. }
            | Self::Damaged { .. }
            | Self::Dangling { .. }
            | Self::Sparse { .. }
            | Self::LayerCount { .. }
            | Self::DiffId { .. }
            | Self::Layer { .. }
            | Self::Document { .. }
            | Self::Digest { .. }
            | Self::Nesting { .. }
            | Self::NoPlatform { .. }
            | Self::Checksum { .. }
            | Self::More { .. } => true,
            Self::ForeignPlatform { .. }
            | Self::Nameless { .. }
            | Self::BareTag { .. }
            | Self::NamesDiffer { .. }
            | Self::Artifact { .. }
            | Self::Duplicate { .. }
            | Self::NoEnd
            | Self::Trailing { .. } => false,
        }
    }
}
