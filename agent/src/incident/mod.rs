//! Explaining: from requests, removals and containerd's events to incidents.
//!
//! Takes what [`crate::wire`] and [`crate::probe`] saw, what containerd announced and what [`crate::inventory`] knew
//! before. Emits [`Outcome`]s: an incident that opened, that may be repaired, that is over. Reads no clock and says
//! nothing to containerd: whoever drives it passes the time, so that every rule is a test.

use std::{collections::BTreeMap, sync::Arc};

use uuid::Uuid;

use crate::{
    audit::cause::Cause,
    digest::Digest,
    inventory::image::{Content, ImageRecord},
    probe::record::{Boottime, Process},
};

pub mod asked;
pub mod burst;
pub mod cause;
mod directories;
pub mod join;
pub mod loss;
pub mod seen;
pub mod stage;
#[cfg(test)]
mod tests;

/// One deletion or one damage, as far as it is known when it is told.
#[derive(Debug, Clone)]
pub struct Incident {
    pub id: Uuid,
    pub kind: Kind,
    /// The image ID; absent when the image could not be read while it was there.
    pub image: Option<Digest>,
    /// The records that went, as they were. For damage: the records that still name the image.
    pub records: Vec<ImageRecord>,
    /// Names of the image that are still there.
    pub remaining: Vec<String>,
    pub content: Option<Arc<Content>>,
    pub actor: Option<Arc<Process>>,
    /// Everyone who could have asked, when it is not certain who did.
    pub candidates: Vec<Arc<Process>>,
    pub request: Option<AskedFor>,
    pub cause: Cause,
    pub orphaned: Orphaned,
    /// What had gone when it was told; what follows is in [`Outcome::Closed`].
    pub lost: Lost,
    /// Shared by incidents of one actor that are at most ten seconds apart.
    pub burst: Uuid,
    /// When the last name went, or the first file.
    pub at: Boottime,
    /// When it began: the request's time, or the first removal's.
    pub began: Boottime,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Names went.
    Deleted,
    /// Content or snapshots of an image went, while its names stayed.
    Damaged,
}

/// The request that an incident is blamed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedFor {
    /// Absent when the method is not known.
    pub method: Option<String>,
    pub target: Option<String>,
    pub namespace: Option<String>,
    pub at: Boottime,
    /// How many requests of this sender belong to the incident.
    pub count: u32,
}

/// What the names that went alone referenced.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Orphaned {
    pub last_name: bool,
    pub names: Vec<String>,
    /// Digest and size in bytes.
    pub blobs: BTreeMap<Digest, u64>,
    /// Chain IDs, bottom first.
    pub snapshots: Vec<Digest>,
}

/// What the kernel saw go.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    pub blobs: BTreeMap<Digest, u64>,
    /// Chain IDs of snapshots whose numbers were known.
    pub snapshots: Vec<Digest>,
    /// Numbers of snapshots that can't be translated; joined by time.
    pub numbers: Vec<u64>,
}

impl Lost {
    pub fn is_empty(&self) -> bool {
        self.blobs.is_empty() && self.snapshots.is_empty() && self.numbers.is_empty()
    }
}

/// What the join emits.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// To be told now; not yet to be repaired.
    Opened(Box<Incident>),
    /// Nobody will create the names again by himself: the repair may begin.
    Repair { incident: Uuid },
    /// Something of this image went after all: to be looked at again.
    Shaken { image: Digest },
    /// Nothing more is to come.
    Closed { incident: Uuid, lost: Lost },
    /// A name was deleted and created again, or moved to another target.
    Retagged { name: String, before: ImageRecord, after: ImageRecord, actor: Option<Arc<Process>> },
    /// Labels by which an image is pinned went.
    Unpinned {
        image: Option<Digest>,
        names: Vec<String>,
        labels: Vec<String>,
        actor: Option<Arc<Process>>,
        candidates: Vec<Arc<Process>>,
        cause: Cause,
    },
    /// A blob went that belongs to no incident.
    BlobRemoved { digest: Digest, actor: Arc<Process>, incident: Option<Uuid>, at: Boottime },
    /// A snapshot's directory went that belongs to no incident.
    SnapshotRemoved { number: u64, chain: Option<Digest>, actor: Arc<Process>, at: Boottime },
    /// More removals than are told one by one.
    RemovalsFolded { count: u64, actor: Arc<Process>, at: Boottime },
    /// A watched directory went.
    DirectoryRemoved { actor: Arc<Process>, at: Boottime },
    /// Removals that the kernel could not report: any image may have lost something.
    RemovalsMissed,
    /// No incident of this actor for ten seconds, after several.
    BurstClosed {
        burst: Uuid,
        actor: Arc<Process>,
        images: Vec<(Option<Digest>, u64)>,
        from: Boottime,
        to: Boottime,
    },
}
