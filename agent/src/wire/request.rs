//! What `wire` emits: one gRPC call that a client sent.

use std::sync::Arc;

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
    /// Whether the connection was seen from its first byte.
    pub whole: bool,
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
    /// Insertions seen on the connection, less the index: negative, and stable while the connection lives.
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
#[derive(Debug, Clone, PartialEq, Eq)]
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
