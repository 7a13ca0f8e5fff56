//! Keeping: what is done about an incident, and what is held before one.
//!
//! Takes [`Order`]s: images as they are, and what `incident` emits. Emits drafts for the journal. One image is worked
//! on by one task at a time, level-triggered ([`repair`]). Critical images go first. It never deletes anything that
//! imgwarden did not add.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    audit::{self, Body, Clock, Draft, teller::Voice},
    config::{Hold, HoldSet, Mode, Priority},
    digest::Digest,
    hold::State,
    incident::{Incident, Kind, Outcome},
    inventory::image::{Content, Image, ImageRecord},
    name,
    serve::{Refusal, RestoreRefused, Restored},
};

mod backoff;
mod case;
mod copy;
mod critical;
mod found;
mod kept;
mod let_go;
mod policy;
mod repair;
mod show;
mod tell;

pub use backoff::Copies;
pub use copy::Shelf;
pub use policy::{Known, Policy, Selected};
pub use repair::{Done, Job, RepairError, Tools};

use case::Case;
use critical::Quiet;
use kept::Kept;
use repair::Repaired;

/// Images that are worked on side by side.
const SIDE_BY_SIDE: usize = 4;
/// The pause after a change before an image's holds are looked at: a client that is busy retagging is not disturbed.
const SETTLE: Duration = Duration::from_millis(150);
/// How long a failed repair waits, at first; it doubles.
const RETRY: Duration = Duration::from_secs(2);
/// The label that CRI reads.
const PIN: &str = "io.cri-containerd.pinned=pinned";

/// What the keeper is told.
#[derive(Debug)]
pub enum Order {
    /// containerd answers: what it is.
    Connected { tools: Box<Tools>, known: Box<Known> },
    /// An image is there, with these names: after the start, a creation, an update.
    Present(Image),
    /// An image as it was once held, which is still there in part: what is missing of it is not missed by the list.
    /// `moved` are those of its names that point elsewhere now.
    Remembered { image: Image, moved: Vec<ImageRecord> },
    /// What `incident` found.
    Found(Outcome),
    /// A person asks for an image.
    Restore {
        image: String,
        from: Option<PathBuf>,
        answer: oneshot::Sender<Result<Restored, RestoreRefused>>,
    },
    /// A person asks what is held.
    Images { answer: oneshot::Sender<Vec<crate::serve::ImageStatus>> },
    /// A person asks what another config would do.
    Plan { policy: Option<Policy>, answer: oneshot::Sender<crate::serve::Plan> },
}

/// What the keeper may do.
#[derive(Debug, Clone)]
pub struct Options {
    pub policy: Policy,
    pub backoff_max: Duration,
    pub copies: Copies,
}

/// What was done since the start; read by others.
#[derive(Debug, Default)]
pub struct Counts {
    pub images: AtomicU64,
    pub protected: AtomicU64,
    pub held: AtomicU64,
    pub incidents: AtomicU64,
    pub restored: AtomicU64,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Keeper {
    options: Options,
    tools: Option<Arc<Tools>>,
    voice: Voice,
    counts: Arc<Counts>,
    /// By target digest.
    kept: HashMap<Digest, Kept>,
    cases: HashMap<Uuid, Case>,
    tasks: JoinSet<Done>,
    /// When critical images that are absent are looked for.
    quiet: Quiet,
    /// People who wait for an image.
    waiting: Vec<(Digest, oneshot::Sender<Result<Restored, RestoreRefused>>)>,
}

impl Keeper {
    pub fn new(options: Options, voice: Voice) -> Self {
        Self {
            options,
            tools: None,
            voice,
            counts: Arc::default(),
            kept: HashMap::new(),
            cases: HashMap::new(),
            tasks: JoinSet::new(),
            quiet: Quiet::default(),
            waiting: Vec::new(),
        }
    }

    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.counts)
    }

    /// Until `stop`, or until nobody gives orders any more. What is being repaired is finished first.
    pub async fn run(mut self, mut orders: mpsc::Receiver<Order>, stop: CancellationToken) {
        loop {
            self.put_in_critical().await;
            self.start_due().await;
            let next = self.next_due();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(done) = self.tasks.join_next(), if !self.tasks.is_empty() => match done {
                    Ok(done) => self.done(done).await,
                    Err(error) => tracing::error!(%error, "a repair ended without an answer"),
                },
                order = orders.recv() => match order {
                    Some(order) => self.take(order).await,
                    None => break,
                },
                () = tokio::time::sleep_until(next.into()), if next < far() => {}
            }
        }
        while let Some(done) = self.tasks.join_next().await {
            if let Ok(done) = done {
                self.done(done).await;
            }
        }
    }

    async fn take(&mut self, order: Order) {
        match order {
            Order::Connected { tools, known } => {
                tools.shelf.rescan().await;
                for why in tools.shelf.unreadable() {
                    tracing::warn!("an archive can't be used: {why}");
                }
                let (ids, names) = tools.shelf.contents();
                self.options.policy.known = Known { archived_ids: ids, archived_names: names, ..*known };
                self.tools = Some(Arc::new(*tools));
                self.quiet.disturb(Instant::now());
                for target in self.kept.keys().copied().collect::<Vec<_>>() {
                    self.select(target);
                    if let Some(kept) = self.kept.get_mut(&target) {
                        kept.inspect = Some(found::UNSEEN);
                    }
                    self.look(target, SETTLE);
                }
            }
            Order::Present(image) => self.present(image),
            Order::Remembered { image, moved } => self.remembered(image, &moved),
            Order::Found(outcome) => self.found(outcome).await,
            Order::Restore { image, from, answer } => self.restore(&image, from, answer).await,
            // Who asked may have gone: then nobody misses the answer.
            Order::Images { answer } => drop(answer.send(self.images())),
            Order::Plan { policy, answer } => drop(answer.send(self.plan(policy.as_ref()))),
        }
        self.count();
    }

    fn present(&mut self, image: Image) {
        let Image { records, content } = image;
        let target = content.target.digest;
        if !self.kept.contains_key(&target) {
            self.quiet.disturb(Instant::now());
        }
        let kept = self
            .kept
            .entry(target)
            .or_insert_with(|| Kept { inspect: Some(found::UNSEEN), ..Kept::new(Arc::clone(&content)) });
        kept.learn(content);
        for record in records {
            kept.want.insert(record.name.clone(), record);
        }
        self.select(target);
        self.look(target, SETTLE);
    }

    /// Applies the rules to one image.
    fn select(&mut self, target: Digest) {
        let Some(kept) = self.kept.get_mut(&target) else { return };
        kept.selected =
            self.options.policy.select(kept.content.id, kept.want.keys().map(String::as_str), None);
    }

    fn look(&mut self, target: Digest, after: Duration) {
        if let Some(kept) = self.kept.get_mut(&target)
            && kept.is_kept()
        {
            kept.look(after);
        }
    }

    async fn found(&mut self, outcome: Outcome) {
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
            Outcome::Unpinned { image, names, labels, actor, candidates: _, cause } => {
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
                let body = Body::ImageUnpinned(Box::new(audit::image::Pin {
                    image: policy::subject(image, names.into_iter(), kept.selected.as_ref()),
                    actor: actor.as_ref().map(|process| tell::actor(process, &clock)),
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
            Outcome::BlobRemoved { .. }
            | Outcome::SnapshotRemoved { .. }
            | Outcome::RemovalsFolded { .. }
            | Outcome::DirectoryRemoved { .. }
            | Outcome::BurstClosed { .. } => {
                if let Some(draft) = tell::apart(&outcome, &clock) {
                    self.tell(draft).await;
                }
            }
        }
    }

    async fn opened(&mut self, incident: Incident, clock: &Clock) {
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
    async fn allow(&mut self, incident: Uuid) {
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
            kept.due = Some(until.unwrap_or(now));
            if let Some(until) = until {
                let reason = "it keeps being deleted: repairs are delayed, not given up";
                self.defer(target, reason, until).await;
            }
        }
    }

    async fn defer(&mut self, target: Digest, reason: &str, until: Instant) {
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

    /// Starts what is due, the most important first.
    async fn start_due(&mut self) {
        let Some(tools) = self.tools.clone() else { return };
        let now = Instant::now();
        while self.tasks.len() < SIDE_BY_SIDE {
            let due =
                self.kept.iter().filter(|(_, kept)| !kept.busy && kept.due.is_some_and(|due| due <= now));
            let next = due.max_by_key(|(target, kept)| {
                let priority = kept.selected.as_ref().map_or(Priority::Normal, |selected| selected.priority);
                (kept.repair, priority, std::cmp::Reverse(**target))
            });
            let Some(target) = next.map(|(target, _)| *target) else { return };
            let let_go = match self.may_go(target) {
                Some(false) => {
                    // What takes its place is not held yet.
                    if let Some(kept) = self.kept.get_mut(&target) {
                        kept.due = Some(now + SETTLE);
                    }
                    continue;
                }
                go => go.is_some(),
            };
            let Some(kept) = self.kept.get_mut(&target) else { return };
            kept.due = None;
            kept.busy = true;
            let copies = kept.backoff.copy_until(now, self.options.copies).is_none();
            let holds = kept.selected.as_ref().map_or(HoldSet::NONE, |selected| selected.holds);
            let repair = std::mem::take(&mut kept.repair);
            kept.working = std::mem::take(&mut kept.allowed);
            let unverified = kept.unverified.take();
            let job = Job { image: kept.image(), repair, copies, holds, unverified, let_go };
            let tools = Arc::clone(&tools);
            self.tasks.spawn(async move { repair::settle(&tools, job).await });
        }
    }

    fn next_due(&self) -> Instant {
        if self.tools.is_none() || self.tasks.len() >= SIDE_BY_SIDE {
            return far();
        }
        let due = self.kept.values().filter(|kept| !kept.busy).filter_map(|kept| kept.due);
        due.chain(self.quiet.due()).min().unwrap_or_else(far)
    }

    async fn done(&mut self, done: Done) {
        let Done { target, holds, repair, faults, unverified, dropped, unheld, result, took, at } = done;
        let Some(kept) = self.kept.get_mut(&target) else { return };
        kept.busy = false;
        kept.unverified = unverified;
        let unheld_why = unheld.as_ref().map(ToString::to_string);
        kept.trouble = result.as_ref().err().map(ToString::to_string).or_else(|| unheld_why.clone());
        let now = Instant::now();
        let mut drafts = Vec::new();
        for (hold, taken) in holds {
            drafts.extend(changed_hold(kept, hold, &taken));
            kept.holds.insert(hold, taken);
        }
        let cases = std::mem::take(&mut kept.working);
        for draft in drafts {
            self.tell(draft).await;
        }
        self.let_gone(target, &dropped, unheld.is_some()).await;
        match result {
            Ok(repaired) => {
                let Some(kept) = self.kept.get_mut(&target) else { return };
                if let Some(why) = unheld_why {
                    kept.failures += 1;
                    let wait = retry(kept.failures, self.options.backoff_max);
                    kept.look(wait);
                    tracing::warn!(image = %target, %why, ?wait, "a hold could not be looked at; it is tried again");
                } else {
                    kept.failures = 0;
                }
                if let Some(repaired) = &repaired {
                    kept.backoff.began(now);
                    if repaired.bytes_moved > 0 {
                        kept.backoff.copied(now);
                    }
                    self.counts.restored.fetch_add(1, Ordering::Relaxed);
                }
                self.restored(target, cases, repaired, took, at).await;
                if !repair {
                    self.faulty(target, faults, at).await;
                }
            }
            Err(error) => {
                kept_again(self.kept.get_mut(&target), &cases, repair);
                let Some(kept) = self.kept.get_mut(&target) else { return };
                if error.is_unreachable() {
                    // Nothing is wrong with the image; it is looked at when containerd answers again.
                    kept.look(Duration::from_secs(1));
                    tracing::debug!(%error, "containerd can't be reached");
                    return;
                }
                kept.failures += 1;
                let wait = retry(kept.failures, self.options.backoff_max);
                kept.look(wait);
                if repair {
                    self.failed(target, &cases, &error, took, now + wait).await;
                } else {
                    // Nothing was to be put back.
                    tracing::warn!(image = %target, %error, ?wait, "an image could not be looked at; it is tried again");
                }
            }
        }
        self.count();
    }

    async fn restored(
        &mut self,
        target: Digest,
        cases: Vec<Uuid>,
        repaired: Option<Repaired>,
        took: Duration,
        at: crate::probe::record::Boottime,
    ) {
        let clock = Clock::now();
        let took_ms = took.as_secs_f64() * 1000.0;
        let began = cases.iter().filter_map(|id| self.cases.get(id)).map(|case| case.incident.began).min();
        let usable = began.map(|began| at.0.saturating_sub(began.0) as f64 / 1e6);
        let by_hand = self.answer(target, repaired.as_ref(), took_ms);
        if let Some(repaired) = &repaired {
            let Some(kept) = self.kept.get(&target) else { return };
            let reason = cases.is_empty().then(|| {
                if by_hand {
                    "asked by hand".to_owned()
                } else {
                    "it was missing when it was looked at".to_owned()
                }
            });
            let body = Body::ImageRestored(Box::new(tell::restored(
                self.subject(kept),
                repaired,
                took_ms,
                usable,
                reason,
            )));
            let incident = cases.first().copied();
            self.tell(tell::draft(incident, at, &clock, body)).await;
        }
        for id in cases {
            if let Some(case) = self.cases.get_mut(&id) {
                case.until = case.until.max(at);
                case.repair = Some(match &repaired {
                    Some(repaired) => audit::repair::Repair {
                        outcome: audit::repair::Outcome::Restored,
                        method: Some(tell::method(repaired.method)),
                        bytes_moved: Some(repaired.bytes_moved),
                        took_ms: Some(took_ms),
                        delete_to_usable_ms: Some(at.0.saturating_sub(case.incident.began.0) as f64 / 1e6),
                        reason: None,
                    },
                    None => Case::ended(audit::repair::Outcome::NotNeeded, None),
                });
            }
            self.close(id).await;
        }
    }

    async fn failed(
        &mut self,
        target: Digest,
        cases: &[Uuid],
        error: &RepairError,
        took: Duration,
        until: Instant,
    ) {
        let Some(kept) = self.kept.get(&target) else { return };
        // The same failure again is not news.
        let told = kept.failures > 1;
        let reason = error.to_string();
        let mut answers = Vec::new();
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 == target {
                answers.push(self.waiting.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        for answer in answers {
            let refused = RestoreRefused { reason: refusal(error), why: reason.clone() };
            // Who asked may have gone.
            drop(answer.send(Err(refused)));
        }
        if !told {
            let wait = until.saturating_duration_since(Instant::now());
            let at = jiff::Timestamp::now()
                .saturating_add(jiff::SignedDuration::try_from(wait).unwrap_or_default())
                .unwrap_or(jiff::Timestamp::MAX);
            let body = Body::ImageRestoreFailed(Box::new(audit::repair::NotRestored {
                image: self.subject(kept),
                method: error.source_path().map(|_| audit::repair::Method::Archive),
                reason: reason.clone(),
                until: Some(at.into()),
                source: error.source_path().map(|path| path.display().to_string()),
                bytes_moved: None,
                took_ms: Some(took.as_secs_f64() * 1000.0),
                verified: None,
                actor: None,
            }));
            let incident = cases.first().copied();
            self.tell(Draft { incident, ..Draft::now(body) }).await;
        }
        for id in cases {
            if let Some(case) = self.cases.get_mut(id) {
                case.repair = Some(Case::ended(audit::repair::Outcome::Failed, Some(reason.clone())));
            }
            self.close(*id).await;
        }
    }

    /// Ends an incident, if both the kernel and the repair are done with it.
    async fn close(&mut self, id: Uuid) {
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

    /// Images that nobody protects and that have no names left are not kept in mind.
    fn forget(&mut self) {
        self.kept.retain(|_, kept| {
            let wanted = kept.selected.is_some() || !kept.want.is_empty();
            wanted || !kept.cases.is_empty() || kept.let_go.is_some() || kept.busy
        });
    }

    async fn retagged(
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

    async fn restore(
        &mut self,
        image: &str,
        from: Option<PathBuf>,
        answer: oneshot::Sender<Result<Restored, RestoreRefused>>,
    ) {
        let refuse = |reason, why: String| Err(RestoreRefused { reason, why });
        let Some(tools) = self.tools.clone() else {
            drop(answer.send(refuse(Refusal::Containerd, "containerd does not answer".to_owned())));
            return;
        };
        let id: Option<Digest> = image.parse().ok();
        let spelt = name::normalise(image).ok();
        if id.is_none() && spelt.is_none() {
            drop(
                answer
                    .send(refuse(Refusal::NotAName, format!("{image:?} is neither a name nor an image ID"))),
            );
            return;
        }
        let shelf = match from {
            Some(path) => tools.shelf.with(path),
            None => tools.shelf.clone(),
        };
        shelf.rescan().await;
        let known = self.kept.iter().find(|(_, kept)| {
            id.is_some() && kept.content.id == id
                || kept.want.keys().any(|name| spelt.as_deref() == Some(name.as_str()))
        });
        let target = match known {
            Some((target, _)) => *target,
            None => match shelf.image(id, spelt.as_deref()) {
                Some(archived) => {
                    let target = archived.target.digest;
                    let image = copy::wanted(&archived);
                    self.present(image);
                    target
                }
                None => {
                    let mut why = format!("nothing on this node has {image}");
                    let unreadable = shelf.unreadable();
                    let reason = if unreadable.is_empty() { Refusal::NotFound } else { Refusal::Archive };
                    if !unreadable.is_empty() {
                        why = format!("{why}; unusable: {}", unreadable.join("; "));
                    }
                    drop(answer.send(refuse(reason, why)));
                    return;
                }
            },
        };
        let Some(kept) = self.kept.get_mut(&target) else { return };
        if self.options.policy.rules.mode() == Mode::Observe {
            let why = "mode is \"observe\": nothing is changed on this node".to_owned();
            drop(answer.send(refuse(Refusal::Observing, why)));
            return;
        }
        kept.repair = true;
        kept.look(Duration::ZERO);
        self.tools = Some(Arc::new(Tools { hold: tools.hold.clone(), shelf }));
        self.waiting.push((target, answer));
    }

    /// Tells those who wait for an image that it is back.
    fn answer(&mut self, target: Digest, repaired: Option<&Repaired>, took_ms: f64) -> bool {
        let Some(kept) = self.kept.get(&target) else { return false };
        let mut any = false;
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 != target {
                index += 1;
                continue;
            }
            any = true;
            let (_, answer) = self.waiting.swap_remove(index);
            let restored = Restored {
                id: kept.content.id.map(|id| id.to_string()),
                names: kept.want.keys().cloned().collect(),
                method: repaired.map(|repaired| tell::method_name(repaired.method).to_owned()),
                bytes_moved: repaired.map_or(0, |repaired| repaired.bytes_moved),
                took_ms,
                verified: true,
                source: repaired.and_then(|repaired| repaired.source.clone()),
            };
            // Who asked may have gone.
            drop(answer.send(Ok(restored)));
        }
        any
    }

    fn targets_of(&self, image: Digest) -> Vec<Digest> {
        let same = self.kept.iter().filter(|(_, kept)| kept.content.id == Some(image));
        same.map(|(target, _)| *target).collect()
    }

    fn subject(&self, kept: &Kept) -> audit::Image {
        policy::subject(kept.content.id, kept.want.keys().cloned(), kept.selected.as_ref())
    }

    async fn tell(&self, draft: Draft) {
        if let Err(error) = self.voice.tell(draft).await {
            tracing::error!(%error, "an event could not be told");
        }
    }

    fn count(&self) {
        let protected = self.kept.values().filter(|kept| kept.selected.is_some()).count();
        let whole = self.kept.values().filter(|kept| !kept.is_missing());
        let held = whole.filter(|kept| kept.holds.values().any(repair::stands)).count();
        self.counts.images.store(self.kept.len() as u64, Ordering::Relaxed);
        self.counts.protected.store(protected as u64, Ordering::Relaxed);
        self.counts.held.store(held as u64, Ordering::Relaxed);
    }
}

/// What a failed job was to do is still to be done.
fn kept_again(kept: Option<&mut Kept>, cases: &[Uuid], repair: bool) {
    if let Some(kept) = kept {
        kept.allowed.extend(cases);
        kept.repair |= repair;
    }
}

/// How long the next try waits after so many failures in a row.
fn retry(failures: u32, longest: Duration) -> Duration {
    RETRY.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

/// What a hold's change is told as.
fn changed_hold(kept: &mut Kept, hold: Hold, taken: &crate::hold::Taken) -> Vec<Draft> {
    let image = || policy::subject(kept.content.id, kept.want.keys().cloned(), kept.selected.as_ref());
    let mut drafts = Vec::new();
    let before = kept.holds.get(&hold);
    let pin = |names: Option<&[String]>, why: Option<String>| {
        Box::new(audit::image::Pin {
            image: match names {
                Some(names) => {
                    policy::subject(kept.content.id, names.iter().cloned(), kept.selected.as_ref())
                }
                None => image(),
            },
            actor: None,
            request: None,
            label: PIN.to_owned(),
            why,
            images: None,
            images_count: None,
            would: None,
        })
    };
    if hold == Hold::Pin && taken.changed && before.is_some() && !kept.unpinned.is_empty() {
        drafts.push(Draft::now(Body::ImageRepinned(pin(Some(&kept.unpinned), None))));
    } else if repair::stands(taken) && before.map_or(taken.changed, |before| !repair::stands(before)) {
        drafts.push(Draft::now(Body::HoldTaken(Box::new(audit::repair::HoldChanged {
            image: image(),
            hold: tell::hold(hold),
            why: kept.selected.as_ref().map(|selected| format!("rule {}", selected.rule)),
            bytes: Some(taken.bytes),
        }))));
    }
    if let State::Ineffective { why } = &taken.state
        && hold == Hold::Pin
        && !kept.told_ineffective
    {
        drafts.push(Draft::now(Body::ImagePinIneffective(pin(None, Some(why.clone())))));
        kept.told_ineffective = true;
    }
    if hold == Hold::Pin {
        kept.unpinned.clear();
    }
    drafts
}

/// The incident's images: one a target.
fn by_target(incident: &Incident) -> Vec<(Digest, Arc<Content>, Vec<ImageRecord>)> {
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
fn found_missing(incident: &Incident, kept: &Kept) -> bool {
    match incident.kind {
        Kind::Damaged => true,
        Kind::Deleted => incident.records.iter().any(|record| kept.want.contains_key(&record.name)),
    }
}

fn subject(incident: &Incident, selected: Option<&Selected>) -> audit::Image {
    let names =
        incident.records.iter().map(|record| record.name.clone()).chain(incident.remaining.iter().cloned());
    let unique: std::collections::BTreeSet<String> = names.collect();
    policy::subject(incident.image, unique.into_iter(), selected)
}

fn observed(selected: Option<&Selected>, what: &str) -> Option<audit::repair::Would> {
    selected
        .filter(|selected| selected.mode == Mode::Observe)
        .map(|_| audit::repair::Would { method: None, why: Some(what.to_owned()) })
}

fn refusal(error: &RepairError) -> Refusal {
    match error {
        RepairError::Copy(_) | RepairError::NoCopies { .. } => Refusal::Archive,
        RepairError::NoArchive { .. } => Refusal::NotFound,
        RepairError::Hold(_)
        | RepairError::Containerd(_)
        | RepairError::Unlink { .. }
        | RepairError::NotWhole { .. } => Refusal::Containerd,
    }
}

/// So far ahead that it never comes.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}
