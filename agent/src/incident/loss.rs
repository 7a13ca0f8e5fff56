//! Files that went: which incident do they belong to?
//!
//! A removal by containerd belongs to the incident whose names alone referenced the blob, by digest: one GC pass
//! collects the garbage of many requests. A removal by anyone else is damage to the images that have the blob.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::{
    digest::Digest,
    probe::record::{Boottime, Process, ProcessKey, Removal},
};

/// Files that one process removes from one image within this pause are one damage.
pub(super) const TOGETHER: Duration = Duration::from_millis(80);
/// And at the latest after this they are told.
pub(super) const TOGETHER_AT_MOST: Duration = Duration::from_millis(400);
/// How long a removal by containerd waits for the deletion that explains it: the event and the record take different
/// ways to the agent.
pub(super) const UNEXPLAINED: Duration = Duration::from_millis(400);
/// Removals without an incident that are told one by one, per process and ten seconds.
const TOLD_ONE_BY_ONE: u64 = 20;
const FOLD: Duration = Duration::from_secs(10);
const MOST_FOLDERS: usize = 256;

/// Damage that is being collected: one process, one image.
#[derive(Debug)]
pub(super) struct Damage {
    pub(super) image: Option<Digest>,
    pub(super) target: Digest,
    pub(super) removals: Vec<Removal>,
    /// Whether containerd's process did it.
    pub(super) by_server: bool,
}

impl Damage {
    pub(super) fn due(&self) -> Boottime {
        let (Some(first), Some(last)) = (self.removals.first(), self.removals.last()) else {
            return Boottime(0);
        };
        Boottime(
            (last.at.0 + TOGETHER.as_nanos() as u64).min(first.at.0 + TOGETHER_AT_MOST.as_nanos() as u64),
        )
    }
}

/// Counts removals without an incident, so that a storm is told in numbers.
#[derive(Debug, Default)]
pub(super) struct Folder(HashMap<ProcessKey, Storm>);

#[derive(Debug)]
struct Storm {
    actor: Arc<Process>,
    since: Boottime,
    told: u64,
    folded: u64,
}

impl Folder {
    /// Whether this one is told by itself.
    pub(super) fn tells(&mut self, actor: &Arc<Process>, at: Boottime) -> bool {
        if self.0.len() >= MOST_FOLDERS && !self.0.contains_key(&actor.key) {
            return false;
        }
        let storm = self.0.entry(actor.key).or_insert_with(|| Storm {
            actor: actor.clone(),
            since: at,
            told: 0,
            folded: 0,
        });
        if storm.told < TOLD_ONE_BY_ONE {
            storm.told += 1;
            return true;
        }
        storm.folded += 1;
        false
    }

    /// Storms that are over: the actor and how many were not told.
    pub(super) fn over(&mut self, now: Boottime) -> Vec<(Arc<Process>, u64)> {
        let ended: Vec<ProcessKey> = self
            .0
            .iter()
            .filter(|(_, storm)| now.0.saturating_sub(storm.since.0) > FOLD.as_nanos() as u64)
            .map(|(key, _)| *key)
            .collect();
        ended
            .into_iter()
            .filter_map(|key| self.0.remove(&key))
            .filter(|storm| storm.folded > 0)
            .map(|storm| (storm.actor, storm.folded))
            .collect()
    }

    pub(super) fn deadline(&self) -> Option<Boottime> {
        self.0.values().map(|storm| Boottime(storm.since.0 + FOLD.as_nanos() as u64 + 1)).min()
    }
}
