//! Damage that nobody was seen to do: blobs that are missing when an image is looked at, and what was remembered of an
//! image that is still there in part.
//!
//! Takes what a look found and what the shadow remembers. Emits an incident without an actor, told and repaired like all
//! others.

use std::{
    collections::{BTreeMap, hash_map::Entry},
    time::Duration,
};

use uuid::Uuid;

use super::{Keeper, SETTLE, kept::Kept, policy};
use crate::{
    audit::{Cause, Clock, Confidence, cause},
    digest::Digest,
    incident::{Incident, Kind, Lost, Orphaned},
    inventory::image::{Image, ImageRecord},
    probe::record::Boottime,
};

/// Found when the agent or containerd had just started.
pub(super) const UNSEEN: &str =
    "found at the start: it happened while the agent was not running, or could not see";
/// Found later.
const UNNOTICED: &str = "found when the image was looked at: nothing was seen that did it";
/// How long a removal that was seen may take to be explained, before what is missing is told as unexplained.
const EXPLAINED: Duration = Duration::from_secs(3);

impl Keeper {
    /// Blobs are missing, and the look was not allowed to put them back.
    pub(super) async fn faulty(&mut self, target: Digest, faults: BTreeMap<Digest, u64>, at: Boottime) {
        let Some(kept) = self.kept.get_mut(&target) else { return };
        let inspect = kept.inspect.take();
        if faults.is_empty() || !kept.cases.is_empty() || kept.repair || !kept.is_kept() {
            return;
        }
        let Some(evidence) = inspect else {
            kept.inspect = Some(UNNOTICED);
            kept.look(EXPLAINED);
            return;
        };
        let incident = Incident {
            id: Uuid::now_v7(),
            kind: Kind::Damaged,
            image: kept.content.id,
            records: kept.want.values().cloned().collect(),
            remaining: Vec::new(),
            content: Some(kept.content.clone()),
            actor: None,
            candidates: Vec::new(),
            request: None,
            cause: Cause {
                kind: cause::Kind::Unknown,
                tool: None,
                confidence: Confidence::None,
                evidence: vec![evidence.to_owned()],
            },
            orphaned: Orphaned::default(),
            lost: Lost { blobs: faults, ..Lost::default() },
            burst: Uuid::now_v7(),
            at,
            began: at,
        };
        let (id, lost) = (incident.id, incident.lost.clone());
        self.opened(incident, &Clock::now()).await;
        if let Some(case) = self.cases.get_mut(&id) {
            case.lost = Some(lost);
        }
        self.allow(id).await;
    }

    /// An image as it was once held. What containerd's metadata has lost of it since is still to be there.
    pub(super) fn remembered(&mut self, image: Image, moved: &[ImageRecord]) {
        let Image { records, content } = image;
        let target = content.target.digest;
        let by = moved.iter().find(|record| self.selects(&record.name));
        if by.is_some() {
            self.kept.entry(target).or_insert_with(|| Kept::new(content.clone()));
        }
        if let Entry::Occupied(mut known) = self.kept.entry(target) {
            let kept = known.get_mut();
            if content.blobs.len() > kept.content.blobs.len() || kept.content.id.is_none() {
                kept.content = content;
            }
            for record in records {
                if let Some(standing) = kept.want.get_mut(&record.name)
                    && standing.labels.is_empty()
                {
                    standing.labels = record.labels;
                }
            }
            self.select(target);
            self.look(target, SETTLE);
        }
        if let Some(record) = by {
            self.moved(target, &record.name, record.target.digest);
        }
    }

    /// Whether a rule selects a name by itself.
    fn selects(&self, name: &str) -> bool {
        let selected = self.options.policy.select(None, std::iter::once(name), None);
        selected.is_some_and(|selected| policy::may_change(&selected))
    }
}
