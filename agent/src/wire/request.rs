//! What `wire` emits: one gRPC call that a client sent.

use std::{fmt, sync::Arc};

use super::method::MethodSet;
use crate::probe::record::{Boottime, Connection, Process};

/// One gRPC call, as far as it could be known from the side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub connection: Connection,
    /// The HTTP/2 stream.
    pub stream: u32,
    /// When the last byte of the message that matters was sent.
    pub at: Boottime,
    pub process: Arc<Process>,
    pub method: Method,
    /// The `containerd-namespace` header.
    pub namespace: Header,
    pub call: Call,
    /// Whether the connection was seen from its first byte, without a gap in its headers.
    pub whole: bool,
    /// If `method` is a symbol: methods that it is not, because the client sent their paths in full while the
    /// symbol's entry was alive, which an encoder does not do with a path that has an entry. True of all requests
    /// with this symbol, earlier ones included.
    pub ruled_out: MethodSet,
}

/// `:path` of the call.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Method {
    /// `/package.Service/Method`.
    Path(String),
    /// An index into HPACK entries that were inserted before the agent attached: equal symbols are the same method.
    Symbol(Symbol),
    /// The header block was lost.
    Lost,
}

/// An HPACK entry that was inserted before the agent attached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Symbol {
    pub connection: Connection,
    /// Insertions seen on the connection, less the index, less 2^32 for each time that any connection's count
    /// began anew: negative, stable while the connection's headers are seen without a gap, and never used again.
    pub slot: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Header {
    Absent,
    Known(String),
    /// Sent as an index into entries inserted before the agent attached, or lost.
    Unknown,
}

/// The calls that matter, decoded. Strings are cut at 1 KiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// CRI; `image` is a name or an image ID.
    RemoveImage {
        image: String,
    },
    /// CRI; the credentials are never decoded.
    PullImage {
        image: String,
    },
    ImagesCreate {
        name: String,
    },
    ImagesUpdate {
        name: String,
        fields: Vec<String>,
    },
    ImagesDelete {
        name: String,
        sync: bool,
    },
    ContentDelete {
        digest: String,
    },
    ContentUpdate {
        digest: String,
    },
    SnapshotsRemove {
        snapshotter: String,
        key: String,
    },
    SnapshotsCleanup {
        snapshotter: String,
    },
    LeasesDelete {
        id: String,
    },
    LeasesDeleteResource {
        id: String,
        resource: String,
    },
    /// `names`: image names that the destination mentions.
    Transfer {
        names: Vec<String>,
    },
    NamespacesDelete {
        name: String,
    },
    /// The method is a symbol or lost: what its body would mean if it were one of the methods above.
    Opaque(Shape),
    /// The body was lost, or is not what the method's message looks like.
    Lost,
}

/// The first message of a call with an unknown method, by its protobuf shape.
///
/// The strings have the form of names, but what the method is nobody knows: they may be anything, a secret included.
/// They are there to be compared with the inventory's names, and must not be printed before they were found in it.
#[derive(Clone, PartialEq, Eq)]
pub enum Shape {
    /// `f1{f1 "…"}`: ImageStatus, RemoveImage or PullImage of this image.
    ImageSpec { image: String },
    /// `f1 "…"` (and perhaps `f2`): Images/Delete or Get, Content/Delete or Info, Leases/Delete, Namespaces/Delete…
    Name { name: String },
    /// `f1 "…"`, `f2 "…"`: Snapshots/Remove or Stat.
    Pair { first: String, second: String },
    /// None of these, or longer than 1 KiB.
    Other,
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ImageSpec { image: _ } => "ImageSpec(not shown)",
            Self::Name { name: _ } => "Name(not shown)",
            Self::Pair { first: _, second: _ } => "Pair(not shown)",
            Self::Other => "Other",
        })
    }
}
