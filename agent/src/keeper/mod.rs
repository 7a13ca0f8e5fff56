//! Keeping: what is done about an incident, and what is held before one.
//!
//! Takes [`Order`]s: images as they are, and what `incident` emits. Emits drafts for the journal. One image is worked
//! on at a time by one task, level-triggered: the task looks at what is there, puts back what is not, holds it, and
//! verifies. Critical images go first. It never deletes anything that it did not add.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    archive::Catalog,
    audit::{self, Body, Clock, Draft, repair::Outcome as Ended},
    config::{Mode, Rules},
    digest::Digest,
    hold::State,
    incident::{self, Incident, Lost, Outcome},
    inventory::image::{Image, ImageRecord},
    serve,
};

mod backoff;
mod case;
mod kept;
mod policy;
mod repair;
mod tell;
mod told;

pub use policy::{Policy, Selected};
pub use repair::{Done, Job, Reason, Tools};

use case::Case;
use kept::Kept;

/// Images that are worked on side by side.
const SIDE_BY_SIDE: usize = 4;
/// The pause after a change before an image's holds are looked at: a client that is busy retagging is not disturbed.
const SETTLE: Duration = Duration::from_millis(150);
/// How long a failed repair waits, at first.
const RETRY: Duration = Duration::from_secs(5);

/// What the keeper is told.
#[derive(Debug)]
pub enum Order {
    /// An image is there, with these names: after the start, a creation, an update.
    Present(Image),
    /// What `incident` found.
    Found(Outcome),
    /// containerd can be reached again, or for the first time: everything is looked at.
    Connected,
    /// A tarball came or went.
    ArchivesChanged,
    /// A person asks for an image.
    Restore { image: String, from: Option<std::path::PathBuf>, answer: tokio::sync::oneshot::Sender<serve::RestoreAnswer> },
    /// A person asks what is held.
    Images { answer: tokio::sync::oneshot::Sender<Vec<serve::ImageStatus>> },
}
