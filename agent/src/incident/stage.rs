//! The stage: keeps the inventory current from containerd's events, feeds the join, hands outcomes to the keeper.
//!
//! Takes what was seen and containerd's events. Reconnects for ever, and says once that it waits. After a reconnect it
//! subscribes first and lists then: what changed meanwhile is found by comparing.

use std::{path::PathBuf, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{
    Outcome,
    asked::Meant,
    directories::Directories,
    join::Join,
    seen::{Dropped, Seen},
};
use crate::{
    audit::{
        Body, Clock, Draft,
        agent::{self, GapKind},
        teller::Voice,
    },
    containerd::{
        Client, ContainerdError, Cri, Store, content,
        events::{self, Event, Events, Kind},
        introspect, snapshots,
    },
    hold::{self, HoldError, shadow},
    inventory::{
        self, Change, Inventory, InventoryError, Limits,
        image::{Image, ImageRecord},
    },
    keeper::{Known, Order, Shelf, Tools},
    probe::record::{Boottime, Gap},
};

/// How long it waits before it tries to connect again.
const RECONNECT: Duration = Duration::from_millis(250);
/// And at most, when it never worked.
const RECONNECT_AT_MOST: Duration = Duration::from_secs(2);
/// An event that is handled this long after it was sent is one of a queue.
const BEHIND: Duration = Duration::from_millis(10);
/// How long after the stop what was seen may still be explained: containerd's event follows a request in milliseconds.
const LAST: Duration = Duration::from_millis(200);
/// The pause in what comes after which what is due is done: what explains it comes first.
const TICK: Duration = Duration::from_millis(1);
/// How long what is due waits for that pause at most.
const OVERDUE: Duration = Duration::from_millis(500);
/// How long gaps are collected before they are told.
const GAPS: Duration = Duration::from_millis(100);
/// The most that is taken of what is there already, before what is due is done.
const AT_ONCE: usize = 4096;
/// Names that were said to be deleted and stand, at most.
const STANDING: usize = 512;
/// Behind by that much, no deletion is told before this pause between events: its creation may be the next in the queue.
const CAUGHT_UP: Duration = Duration::from_millis(20);

/// What the stage works with.
#[derive(Debug)]
pub struct Stage {
    pub client: Client,
    /// containerd's root directory.
    pub root: PathBuf,
    /// Whether nothing may be changed, not even for a moment.
    pub observe: bool,
    pub shelf: Shelf,
    pub own_image: Option<String>,
    pub seen: mpsc::Receiver<Seen>,
    pub dropped: Arc<Dropped>,
    pub orders: mpsc::Sender<Order>,
    pub voice: Voice,
    /// Told once containerd was reached, or found not to be there.
    pub started: Option<Box<agent::Started>>,
    /// What is known of the connection, for those who ask.
    pub connection: tokio::sync::watch::Sender<Connection>,
}

/// How things stand with containerd.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Connection {
    pub connected: bool,
    pub version: Option<String>,
}

/// Why a connection ended or did not come about.
#[derive(Debug, thiserror::Error)]
enum StageError {
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error("{}: {source}", path.display())]
    Socket { path: PathBuf, source: std::io::Error },
    #[error("containerd has no content directory of its own: nothing can be watched or held")]
    NoStore,
}

/// What lives as long as the agent.
struct Life {
    join: Join,
    inventory: Option<Inventory>,
    directories: Directories,
    /// When containerd's last event was handled.
    heard: Boottime,
    /// When what was due was last done.
    ticked: Boottime,
    /// When something is due next, as far as that was known the last time that it was asked.
    next: Option<Boottime>,
    /// Since when there are gaps to be told.
    gap_at: Option<Boottime>,
    gaps: Vec<(GapKind, u64)>,
    /// How old containerd's last event was when it was handled.
    behind: Duration,
    /// Names that were said to be deleted and stand: their creation is to come, or the event was forged.
    standing: Vec<inventory::Gone>,
    /// The one that CRI unpacks images with.
    snapshotter: String,
}

impl Stage {
    pub async fn run(mut self, stop: CancellationToken) {
        let mut life = Life {
            join: Join::new(self.client.namespace(), std::process::id()),
            inventory: None,
            directories: Directories::new(!self.observe),
            heard: Boottime::default(),
            ticked: Boottime::default(),
            next: None,
            gap_at: None,
            gaps: Vec::new(),
            behind: Duration::ZERO,
            standing: Vec::new(),
            snapshotter: String::new(),
        };
        let mut wait = RECONNECT;
        let mut told = false;
        loop {
            let connected = tokio::select! {
                () = stop.cancelled() => return self.finish(&mut life, None).await,
                connected = self.connect(&mut life) => connected,
            };
            match connected {
                Ok(events) => {
                    (wait, told) = (RECONNECT, false);
                    let ended = self.follow(&mut life, events, &stop).await;
                    self.connection.send_modify(|connection| connection.connected = false);
                    match ended {
                        Ok(events) => return self.finish(&mut life, Some(events)).await,
                        Err(error) => tracing::warn!(%error, "containerd is gone; waiting for it"),
                    }
                }
                Err(error) => {
                    if !told {
                        let address = self.client.address().display();
                        tracing::warn!(%error, %address, "containerd does not answer; waiting for it");
                        told = true;
                    }
                    self.tell_started().await;
                    wait = (wait * 2).min(RECONNECT_AT_MOST);
                }
            }
            let until = tokio::time::Instant::now() + wait;
            // What the kernel sees meanwhile is kept: it explains what the reconnect finds.
            loop {
                let mut out = Vec::new();
                tokio::select! {
                    () = stop.cancelled() => return self.finish(&mut life, None).await,
                    Some(seen) = self.seen.recv() => self.take(&mut life, seen, &mut out),
                    () = tokio::time::sleep_until(until) => break,
                }
                self.hand_on(out).await;
            }
            // Nothing else is due: what containerd did last is explained by the list that the reconnect reads.
            self.tell_gaps(&mut life).await;
        }
    }

    async fn connect(&mut self, life: &mut Life) -> Result<Events, StageError> {
        let path = self.client.address().to_owned();
        let socket = |source| StageError::Socket { path: path.clone(), source };
        let peer = tokio::net::UnixStream::connect(&path).await.map_err(socket)?;
        let pid = peer.peer_cred().map_err(socket)?.pid();
        drop(peer);
        let events = events::subscribe(&self.client).await?;
        let cri = Cri::new(&self.client);
        let status = cri.status().await?;
        let store = Store::find(&self.client, &cri).await?.ok_or(StageError::NoStore)?;
        let version = introspect::version(&self.client).await?;
        if let Some(pid) = pid.and_then(|pid| u32::try_from(pid).ok()) {
            life.join.server(pid);
        }
        let now = crate::probe::now();
        life.join.heard_again(now);
        let mut out = Vec::new();
        let first = life.inventory.is_none();
        let inventory = match life.inventory.take() {
            None => Inventory::load(&self.client, Limits::default()).await?,
            Some(mut inventory) => {
                let relisted = inventory.relist(&self.client, Some(&store), now).await;
                life.inventory = Some(inventory);
                let relisted = relisted?;
                for gone in relisted.vanished {
                    life.join.gone(gone.record, Some(gone.content), now);
                }
                let inventory = life.inventory.take().unwrap_or_default();
                for (before, after) in relisted.changed {
                    let image = inventory.content(after.target.digest).and_then(|content| content.id);
                    life.join.changed(before, after, image, now);
                }
                inventory
            }
        };
        // Later, what vanished is found by the list. Read before anything is held: what is held is remembered anew.
        let remembered = if first { shadow::remembered(&self.client).await? } else { Vec::new() };
        let tools =
            hold::Tools { client: self.client.clone(), cri, snapshotter: store.snapshotter.clone(), store };
        life.snapshotter.clone_from(&tools.snapshotter);
        life.standing.clear();
        life.directories.connected(&tools.client, &tools.snapshotter);
        let known = Known { sandbox: status.sandbox_image, own: self.own_image.clone(), ..Known::default() };
        let tools = Tools { hold: tools, shelf: self.shelf.clone() };
        self.connection.send_replace(Connection { connected: true, version: Some(version.clone()) });
        if let Some(started) = &mut self.started {
            started.containerd = Some(version);
        }
        self.tell_started().await;
        self.order(Order::Connected { tools: Box::new(tools), known: Box::new(known) }).await;
        for image in inventory.all() {
            life.directories.unknown(&image.content);
            self.order(Order::Present(image)).await;
        }
        for remembered in remembered {
            let image = remembered.image;
            let target = image.content.target.digest;
            let moved = image.records.iter().filter_map(|record| inventory.record(&record.name));
            let moved = moved.filter(|record| record.target.digest != target).cloned().collect();
            self.order(Order::Remembered { image: image.clone(), moved }).await;
            missed(&mut life.join, &inventory, image, now, &mut out);
        }
        if inventory.left_out() > 0 {
            life.gap(GapKind::Images, inventory.left_out() as u64);
        }
        life.inventory = Some(inventory);
        self.hand_on(out).await;
        Ok(events)
    }

    /// Until the agent stops (`Ok`: the events may go on) or the connection ends.
    async fn follow(
        &mut self,
        life: &mut Life,
        mut events: Events,
        stop: &CancellationToken,
    ) -> Result<Events, StageError> {
        loop {
            let mut out = Vec::new();
            let due = life.due();
            if life.is_overdue() {
                // A busy socket brings something all the time: what is due is not to wait for ever for a pause in that.
                self.catch_up(life, &mut events, &mut out).await?;
                self.hand_on(std::mem::take(&mut out)).await;
                self.do_due(life).await;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(events),
                Some(seen) = self.seen.recv() => self.take(life, seen, &mut out),
                event = events.next() => self.heard(life, event, &mut events, &mut out).await?,
                directories = life.directories.learnt() => {
                    for directory in directories {
                        life.join.number(directory.number, directory.chain_id);
                    }
                }
                () = tokio::time::sleep(due), if due < Duration::MAX => self.do_due(life).await,
            }
            self.hand_on(out).await;
        }
    }

    async fn do_due(&mut self, life: &mut Life) {
        self.tick(life).await;
        life.directories.learn(crate::probe::now());
        life.ticked = crate::probe::now();
        life.behind = Duration::ZERO;
        life.next = None;
    }

    /// Takes what is already there.
    async fn catch_up(
        &mut self,
        life: &mut Life,
        events: &mut Events,
        out: &mut Vec<Outcome>,
    ) -> Result<(), StageError> {
        for _ in 0..AT_ONCE {
            let Ok(seen) = self.seen.try_recv() else { break };
            self.take(life, seen, out);
        }
        for _ in 0..AT_ONCE {
            tokio::select! {
                biased;
                event = events.next() => self.heard(life, event, events, out).await?,
                () = std::future::ready(()) => break,
            }
        }
        Ok(())
    }

    /// One of containerd's events, or its end.
    async fn heard(
        &mut self,
        life: &mut Life,
        event: Result<Option<Event>, ContainerdError>,
        events: &mut Events,
        out: &mut Vec<Outcome>,
    ) -> Result<(), StageError> {
        let unreadable = events.take_unreadable();
        if unreadable > 0 {
            life.gap(GapKind::ContainerdEvents, unreadable);
        }
        match event? {
            Some(event) => self.event(life, &event, out).await,
            None => Err(ended(&self.client)),
        }
    }

    /// What is due.
    async fn tick(&mut self, life: &mut Life) {
        let now = crate::probe::now();
        let mut out = Vec::new();
        if let Some(inventory) = &mut life.inventory {
            life.join.tick(now, inventory, &mut out);
            inventory.expire(now);
        }
        self.hand_on(out).await;
        self.tell_gaps(life).await;
    }

    /// The agent stops: what was seen is explained as far as it can be, and told.
    async fn finish(&mut self, life: &mut Life, mut events: Option<Events>) {
        let until = tokio::time::Instant::now() + LAST;
        let mut seeing = true;
        loop {
            let mut out = Vec::new();
            tokio::select! {
                biased;
                seen = self.seen.recv(), if seeing => match seen {
                    Some(seen) => self.take(life, seen, &mut out),
                    None => seeing = false,
                },
                event = next(&mut events) => match event {
                    // What can't be asked any more is found at the next start.
                    Some(event) => drop(self.event(life, &event, &mut out).await),
                    None => events = None,
                },
                () = tokio::time::sleep_until(until) => break,
            }
            self.hand_on(out).await;
        }
        let mut out = Vec::new();
        let inventory = life.inventory.take().unwrap_or_default();
        life.join.finish(crate::probe::now(), &inventory, &mut out);
        self.hand_on(out).await;
        self.tell_gaps(life).await;
    }

    fn take(&mut self, life: &mut Life, seen: Seen, out: &mut Vec<Outcome>) {
        let empty = Inventory::default();
        let inventory = life.inventory.as_ref().unwrap_or(&empty);
        match seen {
            Seen::Request(request) => life.join.request(request, inventory),
            Seen::Removal(removal) => life.join.removed(removal, inventory, out),
            Seen::Exited { key, at } => life.join.exited(key, at),
            Seen::Gap { what, count } => {
                let what = match what {
                    Gap::Sends => GapKind::Sends,
                    Gap::Removals => {
                        out.push(Outcome::RemovalsMissed);
                        GapKind::Removals
                    }
                    Gap::Unreadable => GapKind::SendsUnreadable,
                    Gap::Execs => GapKind::Execs,
                };
                life.gap(what, count);
            }
            Seen::Undecoded { count } => life.gap(GapKind::Requests, count),
        }
        let dropped = self.dropped.take();
        if dropped > 0 {
            life.gap(GapKind::Requests, dropped);
        }
    }

    async fn event(
        &mut self,
        life: &mut Life,
        event: &Event,
        out: &mut Vec<Outcome>,
    ) -> Result<(), StageError> {
        if event.namespace != self.client.namespace() {
            return Ok(());
        }
        let at = Clock::now().uptime_at(event.at).min(crate::probe::now());
        let Some(inventory) = &mut life.inventory else { return Ok(()) };
        let mut change = match inventory.apply(&self.client, event, at).await {
            Ok(change) => change,
            Err(error) if error.is_unreachable() => return Err(error.into()),
            Err(error) => {
                // One image that can't be read must not keep the others from being seen.
                tracing::warn!(%error, event = ?event.kind, "an image could not be read");
                Change::None
            }
        };
        if let (Change::None, Kind::ImageCreated { name, .. }) = (&change, &event.kind)
            && inventory.record(name).is_none()
        {
            // It was created and deleted again since: for the order of things it is put in, as it last was.
            let gone = inventory.gone().find(|gone| gone.record.name == *name).cloned();
            if let Some(gone) = gone {
                change = inventory.put(gone.record, gone.content, at);
            }
        }
        life.heard = crate::probe::now();
        life.behind = Duration::from_nanos(life.heard.0.saturating_sub(at.0));
        match change {
            Change::Deleted(gone) => {
                life.standing.retain(|other| other.record.name != gone.record.name);
                if inventory::stands(&self.client, &gone.record).await {
                    // It was created again since, or never deleted: the event of the creation decides.
                    inventory.put(gone.record.clone(), Arc::clone(&gone.content), at);
                    if life.standing.len() >= STANDING {
                        life.standing.remove(0);
                    }
                    life.standing.push(gone);
                } else {
                    let inventory::Gone { at, record, content } = gone;
                    life.join.facts(image_filesystem(&self.root));
                    life.join.gone(record, Some(content), at);
                }
            }
            Change::Created { record, content } => {
                let resolution = inventory.resolve(&record.name);
                let meant = Meant { ids: resolution.ids, names: resolution.names };
                life.join.created(&record, &meant, at);
                life.directories.unknown(&content);
                self.present(life, &record).await;
            }
            Change::Updated { before, after } => {
                if let Kind::ImageCreated { .. } = event.kind
                    && let Some(index) = life.standing.iter().position(|gone| gone.record.name == after.name)
                {
                    let gone = life.standing.remove(index);
                    life.join.gone(gone.record, Some(gone.content), gone.at);
                    let resolution = inventory.resolve(&after.name);
                    life.join.created(&after, &Meant { ids: resolution.ids, names: resolution.names }, at);
                    self.present(life, &after).await;
                    return Ok(());
                }
                let image = inventory.content(after.target.digest).and_then(|content| content.id);
                life.join.changed(before, after.clone(), image, at);
                self.present(life, &after).await;
            }
            Change::Moved { before, after, content } => {
                life.join.changed(before.record, after.clone(), content.id, at);
                life.directories.unknown(&content);
                self.present(life, &after).await;
            }
            Change::None => self.gone_below(life, &event.kind, at, out).await,
        }
        Ok(())
    }

    /// Content or a snapshot was said to be deleted. Anyone with the socket can forge an event: what is still there was
    /// not deleted.
    async fn gone_below(&self, life: &mut Life, kind: &Kind, at: Boottime, out: &mut Vec<Outcome>) {
        let Some(inventory) = &life.inventory else { return };
        match kind {
            Kind::ContentDeleted { digest } => {
                let standing = content::info(&self.client, *digest).await.is_ok_and(|info| info.is_some());
                if !standing {
                    life.join.content_deleted(*digest, at, inventory, out);
                }
            }
            Kind::SnapshotRemoved { key, .. } => {
                let found = snapshots::stat(&self.client, &life.snapshotter, key).await;
                if !found.is_ok_and(|found| found.is_some()) {
                    life.join.snapshot_removed(key, at, inventory, out);
                }
            }
            _ => {}
        }
    }

    async fn present(&self, life: &Life, record: &ImageRecord) {
        let image = life.inventory.as_ref().and_then(|inventory| inventory.image_of(&record.name));
        if let Some(image) = image {
            self.order(Order::Present(image)).await;
        }
    }

    async fn hand_on(&self, out: Vec<Outcome>) {
        for outcome in out {
            self.order(Order::Found(outcome)).await;
        }
    }

    async fn order(&self, order: Order) {
        if self.orders.send(order).await.is_err() {
            tracing::debug!("the keeper has ended");
        }
    }

    async fn tell_started(&mut self) {
        if let Some(started) = self.started.take() {
            self.tell(Draft::now(Body::AgentStarted(*started))).await;
        }
    }

    async fn tell_gaps(&self, life: &mut Life) {
        life.gap_at = None;
        for (what, count) in life.gaps.drain(..) {
            let gap =
                agent::Gap { count: Some(count), to: Some(Timestamp::now().into()), ..agent::Gap::of(what) };
            self.tell(Draft::now(Body::AgentGap(gap))).await;
        }
    }

    async fn tell(&self, draft: Draft) {
        if let Err(error) = self.voice.tell(draft).await {
            tracing::error!(%error, "an event could not be told");
        }
    }
}

impl Life {
    /// How long nothing has to be done if nothing happens.
    fn due(&mut self) -> Duration {
        let now = crate::probe::now();
        let gaps = self.gap_at.map(|at| Boottime(at.0 + GAPS.as_nanos() as u64));
        let deadlines = [self.next, self.join.deadline(now), self.directories.deadline(), gaps];
        self.next = deadlines.into_iter().flatten().min();
        let Some(next) = self.next else { return Duration::MAX };
        // A deadline that has passed is met at once, but not in a busy loop, and not between events that come in a row.
        let after = |at: Boottime, pause: Duration| at.0.saturating_add(pause.as_nanos() as u64);
        let pause = if self.behind > BEHIND { after(self.heard, CAUGHT_UP) } else { 0 };
        Duration::from_nanos(next.0.max(pause).saturating_sub(now.0)).max(TICK)
    }

    /// Whether what is due has waited long enough for a pause.
    fn is_overdue(&self) -> bool {
        let now = crate::probe::now();
        let late = |at: Boottime| now.0.saturating_sub(at.0) > OVERDUE.as_nanos() as u64;
        self.next.is_some_and(late) && late(self.ticked)
    }

    fn gap(&mut self, what: GapKind, count: u64) {
        self.gap_at.get_or_insert_with(crate::probe::now);
        match self.gaps.iter_mut().find(|(kind, _)| *kind == what) {
            Some((_, total)) => *total += count,
            None => self.gaps.push((what, count)),
        }
    }
}

/// An image that was whole once and has lost names while nobody looked.
fn missed(join: &mut Join, inventory: &Inventory, image: Image, now: Boottime, out: &mut Vec<Outcome>) {
    let Image { records, content } = image;
    // A name that points elsewhere now has moved: it is not missing.
    let missing: Vec<ImageRecord> =
        records.into_iter().filter(|record| inventory.record(&record.name).is_none()).collect();
    if !missing.is_empty() {
        join.missed(missing, content, now, inventory, out);
    }
}

/// The next event; waits for ever when there are none to come.
async fn next(events: &mut Option<Events>) -> Option<Event> {
    match events {
        Some(events) => events.next().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

fn ended(client: &Client) -> StageError {
    let source = std::io::ErrorKind::ConnectionAborted.into();
    StageError::Socket { path: client.address().to_owned(), source }
}

/// How full the file system of the images is: the kubelet decides by that.
fn image_filesystem(root: &std::path::Path) -> Vec<String> {
    let Ok(stat) = rustix::fs::statvfs(root) else { return Vec::new() };
    if stat.f_blocks == 0 {
        return Vec::new();
    }
    let available = stat.f_bavail * 100 / stat.f_blocks;
    vec![format!("{available} % of the image file system was available")]
}
