//! Keeping: what is done about an incident, and what is held before one.
//!
//! Takes [`Order`]s: images as they are, and what `incident` emits. Emits drafts for the journal. One image is worked
//! on by one task at a time, level-triggered ([`repair`]). Critical images go first. It never deletes anything that
//! imgwarden did not add.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    task::{self, JoinSet},
};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    audit::{self, Draft, teller::Voice},
    config::{HoldSet, Priority},
    digest::Digest,
    incident::Outcome,
    inventory::image::{Image, ImageRecord},
    serve::{RestoreRefused, Restored},
};

mod backoff;
mod by_hand;
mod case;
mod copy;
mod critical;
mod found;
mod incidents;
mod kept;
mod let_go;
mod outcomes;
mod policy;
mod repair;
mod show;
mod tally;
mod tell;

pub use backoff::Copies;
pub use copy::Shelf;
pub use policy::{Known, Policy, Selected};
pub use repair::{Done, Job, RepairError, Tools};

use case::Case;
use critical::Quiet;
use kept::Kept;
use tally::Tallies;

/// Images that are worked on side by side.
const SIDE_BY_SIDE: usize = 4;
/// The pause after a change before an image's holds are looked at: a client that is busy retagging is not disturbed.
const SETTLE: Duration = Duration::from_millis(150);
/// How long after the stop what is due is still begun.
const LAST: Duration = Duration::from_secs(2);
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
    /// What `burst.closed` says of a burst.
    tallies: Tallies,
    tasks: JoinSet<Done>,
    /// What each task works on, and whether it repairs.
    working: HashMap<task::Id, (Digest, bool)>,
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
            tallies: Tallies::default(),
            tasks: JoinSet::new(),
            working: HashMap::new(),
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
                Some(done) = self.tasks.join_next_with_id(), if !self.tasks.is_empty() => self.ended(done).await,
                order = orders.recv() => match order {
                    Some(order) => self.take(order).await,
                    None => break,
                },
                () = tokio::time::sleep_until(next.into()), if next < far() => {}
            }
        }
        self.finish(orders).await;
    }

    /// Takes what was ordered before the stop, ends what was begun, and closes what stays undone.
    async fn finish(&mut self, mut orders: mpsc::Receiver<Order>) {
        orders.close();
        while let Some(order) = orders.recv().await {
            self.take(order).await;
        }
        let until = Instant::now() + LAST;
        loop {
            if Instant::now() < until {
                self.start_due().await;
            }
            match self.tasks.join_next_with_id().await {
                Some(done) => self.ended(done).await,
                None => break,
            }
        }
        for id in self.cases.keys().copied().collect::<Vec<_>>() {
            self.leave(id).await;
        }
    }

    async fn ended(&mut self, done: Result<(task::Id, Done), task::JoinError>) {
        match done {
            Ok((id, done)) => {
                self.working.remove(&id);
                self.done(done).await;
            }
            Err(error) => {
                tracing::error!(%error, "a repair ended without an answer; it is tried again");
                let Some((target, repair)) = self.working.remove(&error.id()) else { return };
                if let Some(kept) = self.kept.get_mut(&target) {
                    kept.busy = false;
                    kept.failures += 1;
                    let cases = std::mem::take(&mut kept.working);
                    kept.look(outcomes::retry(kept.failures, self.options.backoff_max));
                    outcomes::kept_again(Some(kept), &cases, repair);
                }
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

    /// Starts what is due, the most important first.
    async fn start_due(&mut self) {
        let Some(tools) = self.tools.clone() else { return };
        let now = Instant::now();
        while self.tasks.len() < SIDE_BY_SIDE {
            let due = self
                .kept
                .iter()
                .filter(|(_, kept)| !kept.busy && kept.begins().is_some_and(|begins| begins <= now));
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
            let task = self.tasks.spawn(async move { repair::settle(&tools, job).await });
            self.working.insert(task.id(), (target, repair));
        }
    }

    fn next_due(&self) -> Instant {
        if self.tools.is_none() || self.tasks.len() >= SIDE_BY_SIDE {
            return far();
        }
        let due = self.kept.values().filter(|kept| !kept.busy).filter_map(Kept::begins);
        due.chain(self.quiet.due()).min().unwrap_or_else(far)
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

/// So far ahead that it never comes.
fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}
