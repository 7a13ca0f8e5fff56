//! What the keeper knows of one image: as it should be, what holds it, and how its repairs went.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{backoff::Backoff, policy::Selected, repair::Put};
use crate::{
    config::{Hold, Mode},
    digest::Digest,
    hold::Taken,
    inventory::image::{Content, Image, ImageRecord},
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Kept {
    /// The names that it should have, with their labels.
    pub(super) want: BTreeMap<String, ImageRecord>,
    pub(super) content: Arc<Content>,
    pub(super) selected: Option<Selected>,
    pub(super) holds: BTreeMap<Hold, Taken>,
    /// Why a hold could not be looked at, or a repair failed, last time.
    pub(super) trouble: Option<String>,
    /// A task works on it.
    pub(super) busy: bool,
    /// When it is to be looked at.
    pub(super) due: Option<Instant>,
    /// Whether what is missing is to be put back.
    pub(super) repair: bool,
    /// A repair doesn't begin before this, whatever happens meanwhile.
    pub(super) not_before: Option<Instant>,
    pub(super) backoff: Backoff,
    /// Failed repairs in a row.
    pub(super) failures: u32,
    /// Its incidents that are not over.
    pub(super) cases: Vec<Uuid>,
    /// Those whose repair may begin.
    pub(super) allowed: Vec<Uuid>,
    /// Those that the running task works for.
    pub(super) working: Vec<Uuid>,
    pub(super) told_ineffective: bool,
    /// An unpin was told that the next pin answers.
    pub(super) unpinned: Vec<String>,
    /// Blobs that are found missing without an incident are one: what is known of how it came about.
    pub(super) inspect: Option<&'static str>,
    /// What was put back and could not be verified yet.
    pub(super) unverified: Option<Put>,
    /// Its holds are to go.
    pub(super) let_go: Option<LetGo>,
}

/// Why an image's holds go.
#[derive(Debug, Clone)]
pub(super) struct LetGo {
    pub(super) why: String,
    /// What has to be held first: the image that took its place.
    pub(super) after: Digest,
}

impl Kept {
    pub(super) fn new(content: Arc<Content>) -> Self {
        Self {
            want: BTreeMap::new(),
            content,
            selected: None,
            holds: BTreeMap::new(),
            trouble: None,
            busy: false,
            due: None,
            repair: false,
            not_before: None,
            backoff: Backoff::default(),
            failures: 0,
            cases: Vec::new(),
            allowed: Vec::new(),
            working: Vec::new(),
            told_ineffective: false,
            unpinned: Vec::new(),
            inspect: None,
            unverified: None,
            let_go: None,
        }
    }

    pub(super) fn image(&self) -> Image {
        Image { records: self.want.values().cloned().collect(), content: Arc::clone(&self.content) }
    }

    /// Takes a reading of the content, unless what is known is the better one: while its files are missing, an image reads
    /// as less than it is.
    pub(super) fn learn(&mut self, content: Arc<Content>) {
        let rank = |content: &Content| (content.id.is_some(), content.blobs.len());
        if rank(&content) >= rank(&self.content) {
            self.content = content;
        }
    }

    /// Whether anything may be changed for it.
    pub(super) fn is_kept(&self) -> bool {
        self.selected.as_ref().is_some_and(|selected| selected.mode == Mode::Protect)
    }

    /// Whether something of it waits to be put back.
    pub(super) fn is_missing(&self) -> bool {
        self.repair || !self.allowed.is_empty() || !self.working.is_empty()
    }

    /// When the next task for it begins.
    pub(super) fn begins(&self) -> Option<Instant> {
        let due = self.due?;
        Some(self.not_before.filter(|_| self.repair).map_or(due, |not_before| due.max(not_before)))
    }

    pub(super) fn look(&mut self, after: Duration) {
        let at = Instant::now() + after;
        self.due = Some(self.due.map_or(at, |due| due.min(at)));
    }
}
