//! What is done when something was found: it is told, and what may be repaired is made ready for it.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{Case, Keeper, Kept, SETTLE, Selected, policy, tally::Tally, tell};
use crate::{
    audit::{self, Body, Clock, Draft},
    config::Mode,
    digest::Digest,
    incident::{Incident, Kind, Outcome},
    inventory::image::{Content, ImageRecord},
};

impl Keeper {
    pub(super) async fn found(&mut self, outcome: Outcome) {
        let clock = Clock::now();
        match outcome {
            Outcome::Opened(incident) => self.opened(*incident, &clock).await,
            Outcome::Repair { incident } => self.allow(incident).await,
            Outcome::Shaken { image } => {
                for target in self.targets_of(image) {
                    if let Some(kept) = self.kept.get_mut(&target) {
                        kept.repair = true;
                    }
                    self.look(target, SETTLE);
                }
            }
            Outcome::Closed { incident, lost } => {
                if let Some(case) = self.cases.get_mut(&incident) {
                    case.lost = Some(lost);
                }
                self.close(incident).await;
            }
            Outcome::Retagged { name, before, after, actor } => {
                self.retagged(name, &before, after, actor, &clock).await;
            }
            Outcome::Unpinned { image, names, labels, actor, candidates, cause } => {
                let targets = image.map(|image| self.targets_of(image)).unwrap_or_default();
                let target = targets.into_iter().find(|target| {
                    self.kept
                        .get(target)
                        .is_some_and(|kept| names.iter().any(|name| kept.want.contains_key(name)))
                });
                let Some((target, kept)) =
                    target.and_then(|target| Some((target, self.kept.get_mut(&target)?)))
                else {
                    return;
                };
                kept.unpinned.clone_from(&names);
                let would = observed(kept.selected.as_ref(), "it would have been pinned again");
                let (candidates, candidates_count) = tell::candidates(&candidates, &clock);
                let body = Body::ImageUnpinned(Box::new(audit::image::Pin {
                    image: policy::subject(image, names.into_iter(), kept.selected.as_ref()),
                    actor: actor.as_ref().map(|process| tell::actor(process, &clock)),
                    candidates,
                    candidates_count,
                    request: None,
                    label: labels.join(", "),
                    why: Some(cause.evidence.join("; ")),
                    images: None,
                    images_count: None,
                    would,
                }));
                self.tell(Draft::now(body)).await;
                self.look(target, Duration::ZERO);
            }
            Outcome::RemovalsMissed => self.look_at_all(),
            Outcome::BlobRemoved { .. }
            | Outcome::SnapshotRemoved { .. }
            | Outcome::RemovalsFolded { .. }
            | Outcome::DirectoryRemoved { .. }
            | Outcome::BurstClosed { .. } => {
                if let Outcome::DirectoryRemoved { .. } = outcome {
                    // Whole directories can go without any of their files being seen to.
                    self.look_at_all();
                }
                let tally = match &outcome {
                    Outcome::BurstClosed { burst, .. } => self.tallies.take(*burst),
                    _ => Tally::default(),
                };
                if let Some(draft) = tell::apart(&outcome, tally, &clock) {
                    self.tell(draft).await;
                }
            }
        }
    }

    /// Something of any image may be missing.
    fn look_at_all(&mut self) {
        for target in self.kept.keys().copied().collect::<Vec<_>>() {
            self.look(target, SETTLE);
        }
    }

    pub(super) async fn opened(&mut self, incident: Incident, clock: &Clock) {
        self.counts.incidents.fetch_add(1, Ordering::Relaxed);
        let mut selected: Option<Selected> = None;
        let mut targets = Vec::new();
        for (target, content, records) in by_target(&incident) {
            let kept = self.kept.entry(target).or_insert_with(|| Kept::new(content));
            for record in records {
                kept.want.entry(record.name.clone()).or_insert(record);
            }
            self.select(target);
            let Some(kept) = self.kept.get_mut(&target) else { continue };
            kept.cases.push(incident.id);
            if let Some(found) = kept.selected.clone() {
                if incident.kind == Kind::Deleted && !incident.orphaned.last_name {
                    // A name that nobody protects went alone: it is not missed.
                    let gone: Vec<&str> =
                        incident.records.iter().map(|record| record.name.as_str()).collect();
                    let want = kept.want.clone();
                    kept.want.retain(|name, _| {
                        !gone.contains(&name.as_str()) || policy::belongs(name, &found, &want)
                    });
                }
                if selected.as_ref().is_none_or(|best| found.priority > best.priority) {
                    selected = Some(found);
                }
                if found_missing(&incident, kept) {
                    targets.push(target);
                }
            } else if incident.kind == Kind::Deleted {
                for record in &incident.records {
                    kept.want.remove(&record.name);
                }
            }
        }
        let subject = subject(&incident, selected.as_ref());
        let would = observed(selected.as_ref(), "it would have been put back");
        let draft = tell::opened(&incident, subject, clock, would);
        if selected.is_some() {
            self.tallies.of(incident.burst).protected += 1;
        }
        let mut case = Case::new(incident);
        case.repair = match &selected {
            None => Some(Case::ended(audit::repair::Outcome::NotProtected, None)),
            Some(selected) if selected.mode == Mode::Observe => {
                Some(Case::ended(audit::repair::Outcome::Observed, None))
            }
            Some(_) if targets.is_empty() => Some(Case::ended(audit::repair::Outcome::NotNeeded, None)),
            Some(_) => None,
        };
        case.selected = selected;
        self.cases.insert(case.incident.id, case);
        self.tell(draft).await;
    }

    /// Nobody will create the names again by himself.
    pub(super) async fn allow(&mut self, incident: Uuid) {
        let Some(case) = self.cases.get(&incident) else { return };
        if case.repair.is_some() {
            return;
        }
        let now = Instant::now();
        let targets: Vec<Digest> = self
            .kept
            .iter()
            .filter(|(_, kept)| kept.cases.contains(&incident) && kept.is_kept())
            .map(|(target, _)| *target)
            .collect();
        for target in targets {
            let Some(kept) = self.kept.get_mut(&target) else { continue };
            kept.repair = true;
            kept.allowed.push(incident);
            let until = kept.backoff.until(now, self.options.backoff_max);
            kept.not_before = until;
            kept.due = Some(now);
            if let Some(until) = until {
                let reason = "it keeps being deleted: repairs are delayed, not given up";
                self.defer(target, reason, until).await;
            }
        }
    }

    pub(super) async fn defer(&mut self, target: Digest, reason: &str, until: Instant) {
        let Some(kept) = self.kept.get(&target) else { return };
        let at = jiff::Timestamp::now()
            .saturating_add(
                jiff::SignedDuration::try_from(until.saturating_duration_since(Instant::now()))
                    .unwrap_or_default(),
            )
            .unwrap_or(jiff::Timestamp::MAX);
        let body = Body::ImageRestoreDeferred(Box::new(audit::repair::NotRestored {
            image: self.subject(kept),
            method: None,
            reason: reason.to_owned(),
            until: Some(at.into()),
            source: None,
            bytes_moved: None,
            took_ms: None,
            verified: None,
            actor: None,
        }));
        let incident = kept.cases.last().copied();
        self.tell(Draft { incident, ..Draft::now(body) }).await;
    }

    /// Ends an incident, if both the kernel and the repair are done with it.
    pub(super) async fn close(&mut self, id: Uuid) {
        if !self.cases.get(&id).is_some_and(Case::over) {
            return;
        }
        let Some(case) = self.cases.remove(&id) else { return };
        for kept in self.kept.values_mut() {
            kept.cases.retain(|open| *open != id);
        }
        let Case { incident, repair, lost, until, selected } = case;
        let clock = Clock::now();
        let subject = subject(&incident, selected.as_ref());
        let lost = lost.unwrap_or_default();
        self.tell(tell::closed(&incident, &lost, subject, repair, until, &clock)).await;
        self.forget();
    }

    /// Closes an incident that the agent's end leaves undone.
    pub(super) async fn leave(&mut self, id: Uuid) {
        let Some(case) = self.cases.get_mut(&id) else { return };
        case.lost.get_or_insert_default();
        case.repair.get_or_insert_with(|| {
            let reason = "the agent stopped before it; its next start looks again".to_owned();
            Case::ended(audit::repair::Outcome::Deferred, Some(reason))
        });
        self.close(id).await;
    }

    /// Images that nobody protects and that have no names left are not kept in mind.
    pub(super) fn forget(&mut self) {
        self.kept.retain(|_, kept| {
            let wanted = kept.selected.is_some() || !kept.want.is_empty();
            wanted || !kept.cases.is_empty() || kept.let_go.is_some() || kept.busy
        });
    }

    pub(super) async fn retagged(
        &mut self,
        name: String,
        before: &ImageRecord,
        after: ImageRecord,
        actor: Option<Arc<crate::probe::record::Process>>,
        clock: &Clock,
    ) {
        let moved = before.target.digest != after.target.digest;
        if moved && let Some(old) = self.kept.get_mut(&before.target.digest) {
            old.want.remove(&name);
            self.select(before.target.digest);
            self.moved(before.target.digest, &name, after.target.digest);
        }
        let Some(kept) = self.kept.get(&after.target.digest).or_else(|| self.kept.get(&before.target.digest))
        else {
            return;
        };
        let body = Body::ImageRetagged(Box::new(audit::image::Retagged {
            image: self.subject(kept),
            name,
            actor: actor.as_ref().map(|process| tell::actor(process, clock)),
            request: None,
            before: Some(before.target.digest),
            after: Some(after.target.digest),
        }));
        self.tell(Draft::now(body)).await;
        self.forget();
    }
}

/// The incident's images: one a target.
pub(super) fn by_target(incident: &Incident) -> Vec<(Digest, Arc<Content>, Vec<ImageRecord>)> {
    let Some(content) = &incident.content else { return Vec::new() };
    let mut targets: BTreeMap<Digest, Vec<ImageRecord>> = BTreeMap::new();
    for record in &incident.records {
        targets.entry(record.target.digest).or_default().push(record.clone());
    }
    targets
        .into_iter()
        .map(|(target, records)| {
            let content = if content.target.digest == target {
                Arc::clone(content)
            } else {
                Arc::new(Content { target: records[0].target.clone(), ..(**content).clone() })
            };
            (target, content, records)
        })
        .collect()
}

/// Whether the incident took something that the image should have.
pub(super) fn found_missing(incident: &Incident, kept: &Kept) -> bool {
    match incident.kind {
        Kind::Damaged => true,
        Kind::Deleted => incident.records.iter().any(|record| kept.want.contains_key(&record.name)),
    }
}

pub(super) fn subject(incident: &Incident, selected: Option<&Selected>) -> audit::Image {
    let names =
        incident.records.iter().map(|record| record.name.clone()).chain(incident.remaining.iter().cloned());
    let unique: std::collections::BTreeSet<String> = names.collect();
    policy::subject(incident.image, unique.into_iter(), selected)
}

pub(super) fn observed(selected: Option<&Selected>, what: &str) -> Option<audit::repair::Would> {
    selected
        .filter(|selected| selected.mode == Mode::Observe)
        .map(|_| audit::repair::Would { method: None, why: Some(what.to_owned()) })
}
