//! The join: names that went, requests, removals and time become incidents.
//!
//! An image's names that go together are one incident. It is told as soon as a known call explains it and all the
//! names of the image are gone, and else after a pause in which the name may be created again: a deletion followed by
//! a creation is a retag, not a loss.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use uuid::Uuid;

use super::{
    Incident, Kind, Lost, Orphaned, Outcome,
    asked::{Blame, Book, Meant, Question, references},
    burst::Bursts,
    cause,
    loss::{Damage, Folder, UNEXPLAINED},
};
use crate::{
    digest::Digest,
    inventory::{
        Inventory, Resolution,
        image::{Content, ImageRecord},
    },
    probe::record::{Boottime, Entry, ProcessKey, Removal},
    wire::request::Request,
};

mod changes;
mod files;
mod names;
mod telling;

use files::{listed, owners_of_chain};
use telling::remaining;

/// The pause after the last name in which a creation makes it a retag. The deletion is told at most 100 ms after it.
const RETAG: Duration = Duration::from_millis(70);
/// A deletion is told at the latest this long after its last name went.
const LATEST: Duration = Duration::from_millis(95);
/// When a deletion that is not told yet is looked at.
const LOOKS: [Duration; 6] = [
    Duration::from_millis(1),
    Duration::from_millis(5),
    Duration::from_millis(15),
    Duration::from_millis(30),
    RETAG,
    LATEST,
];
/// The pause between the records that one client changes.
const NEXT_NAME: Duration = Duration::from_millis(25);
/// How long a repair waits for a creation, while the client that deleted natively is still there.
const RECREATE: Duration = Duration::from_millis(500);
/// An incident is over when nothing more was seen for this long.
const QUIET: Duration = Duration::from_secs(3);
/// How long a closed incident still explains removals: containerd collects late when its database is large.
const EXPLAINS: Duration = Duration::from_secs(120);
/// Longer than anything waits to be told.
const FINISHES: Duration = Duration::from_secs(1);
const MOST_CLOSED: usize = 1024;
const MOST_NUMBERS: usize = 65_536;
const MOST_UNEXPLAINED: usize = 16_384;

/// Names of one image that went, not told yet.
#[derive(Debug)]
struct Going {
    image: Option<Digest>,
    content: Option<Arc<Content>>,
    target: Digest,
    gone: Vec<(ImageRecord, Boottime)>,
}

/// An incident that was told and is not over.
#[derive(Debug)]
struct Live {
    incident: Incident,
    lost: Lost,
    /// The last thing that was seen of it.
    last: Boottime,
    /// When the repair may begin at the latest; absent when it was allowed.
    repair: Option<Boottime>,
    /// The client whose end allows the repair.
    sender: Option<ProcessKey>,
}

/// A closed incident, for late removals.
#[derive(Debug)]
struct Closed {
    id: Uuid,
    at: Boottime,
    orphaned: Orphaned,
}

/// A record whose labels or target changed.
#[derive(Debug)]
struct Changed {
    before: ImageRecord,
    after: ImageRecord,
    image: Option<Digest>,
    at: Boottime,
    /// It was deleted and created again.
    again: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Join {
    book: Book,
    own: u32,
    /// containerd's processes, the newest last: its socket's listener.
    servers: VecDeque<u32>,
    going: Vec<Going>,
    live: Vec<Live>,
    closed: VecDeque<Closed>,
    damage: Vec<Damage>,
    changed: Vec<Changed>,
    /// Removals by containerd that nothing explains yet.
    unexplained: Vec<Removal>,
    bursts: Bursts,
    folder: Folder,
    /// Snapshot directories whose chain ID is known.
    numbers: HashMap<u64, Digest>,
    /// What is known of the image filesystem, for the evidence.
    facts: Vec<String>,
}

impl Join {
    /// `own` is the agent's pid: what it does itself is nobody's incident.
    pub fn new(namespace: &str, own: u32) -> Self {
        Self {
            book: Book::new(namespace),
            own,
            servers: VecDeque::new(),
            going: Vec::new(),
            live: Vec::new(),
            closed: VecDeque::new(),
            damage: Vec::new(),
            changed: Vec::new(),
            unexplained: Vec::new(),
            bursts: Bursts::default(),
            folder: Folder::default(),
            numbers: HashMap::new(),
            facts: Vec::new(),
        }
    }

    /// The process behind the socket, after each connect.
    pub fn server(&mut self, pid: u32) {
        self.servers.retain(|known| *known != pid);
        self.servers.push_back(pid);
        if self.servers.len() > 4 {
            self.servers.pop_front();
        }
    }

    /// containerd can be heard again: what went meanwhile is handed in next.
    pub fn heard_again(&mut self, now: Boottime) {
        self.book.heard_again(now);
    }

    /// Which chain a snapshot directory belongs to.
    pub fn number(&mut self, number: u64, chain: Digest) {
        if self.numbers.len() >= MOST_NUMBERS {
            // Far more than a node has images: most are of images that went long ago, and all can be learnt again.
            self.numbers.clear();
        }
        self.numbers.insert(number, chain);
    }

    pub fn facts(&mut self, facts: Vec<String>) {
        self.facts = facts;
    }

    pub fn request(&mut self, request: Request, inventory: &Inventory) {
        let meant = references(&request.call)
            .map(|text| inventory.resolve_since(text, request.at))
            .map(|Resolution { name: _, ids, names }| Meant { ids, names })
            .unwrap_or_default();
        self.book.add(request, meant);
    }

    pub fn exited(&mut self, key: ProcessKey, at: Boottime) {
        self.book.exited(key, at);
        for live in &mut self.live {
            if live.sender == Some(key) {
                live.repair = live.repair.map(|due| due.min(at));
            }
        }
    }

    /// A record went. `record` is what it was.
    pub fn gone(&mut self, record: ImageRecord, content: Option<Arc<Content>>, at: Boottime) {
        let image = content.as_ref().and_then(|content| content.id);
        let target = record.target.digest;
        self.book.touched(image, &record.name);
        let same = |going: &&mut Going| match (going.image, image) {
            (Some(one), Some(other)) => one == other,
            _ => going.target == target,
        };
        match self.going.iter_mut().find(same) {
            Some(going) => going.gone.push((record, at)),
            None => self.going.push(Going { image, content, target, gone: vec![(record, at)] }),
        }
    }

    /// A record was created. `meant` is what its name means from now on.
    pub fn created(&mut self, record: &ImageRecord, meant: &Meant, at: Boottime) {
        self.book.created(&record.name, at, meant);
        for index in 0..self.going.len() {
            let Some(position) = self.going[index].gone.iter().position(|(gone, _)| gone.name == record.name)
            else {
                continue;
            };
            let (before, _) = self.going[index].gone.remove(position);
            if self.going[index].gone.is_empty() {
                self.going.remove(index);
            }
            self.changed.push(Changed { before, after: record.clone(), image: None, at, again: true });
            return;
        }
    }

    /// A record's labels or target changed.
    pub fn changed(&mut self, before: ImageRecord, after: ImageRecord, image: Option<Digest>, at: Boottime) {
        self.book.touched(image, &after.name);
        self.changed.push(Changed { before, after, image, at, again: false });
    }

    /// containerd's metadata of a blob was deleted in the watched namespace.
    pub fn content_deleted(
        &mut self,
        digest: Digest,
        at: Boottime,
        inventory: &Inventory,
        out: &mut Vec<Outcome>,
    ) {
        let blame = self.book.blame(&Question::ContentDeleted { digest }, at);
        for image in listed(inventory, inventory.owners_of_blob(digest)) {
            let cause = cause::of_request(&blame, None, &self.facts);
            let incident = self.damaged(&image, &blame, cause, at, inventory);
            self.open(incident, at, out);
        }
    }

    /// A snapshot's metadata was removed. The garbage collector removes them too: only an image that is still listed
    /// is damaged by it.
    pub fn snapshot_removed(
        &mut self,
        key: &str,
        at: Boottime,
        inventory: &Inventory,
        out: &mut Vec<Outcome>,
    ) {
        let Ok(chain) = key.parse::<Digest>() else { return };
        let blame = self.book.blame(&Question::SnapshotRemoved { key }, at);
        if matches!(blame, Blame::Nobody) {
            return;
        }
        for content in owners_of_chain(inventory, chain) {
            let cause = cause::of_request(&blame, None, &self.facts);
            let mut incident = self.damaged(&content, &blame, cause, at, inventory);
            incident.lost.snapshots.push(chain);
            self.open(incident, at, out);
        }
    }

    /// Names of an image went while nobody looked.
    pub fn missed(
        &mut self,
        records: Vec<ImageRecord>,
        content: Arc<Content>,
        at: Boottime,
        inventory: &Inventory,
        out: &mut Vec<Outcome>,
    ) {
        let image = content.id;
        let remaining = remaining(inventory, image);
        let orphaned = Orphaned {
            last_name: remaining.is_empty(),
            names: records.iter().map(|record| record.name.clone()).collect(),
            ..Orphaned::default()
        };
        let mut cause = cause::of_request(&Blame::Nobody, None, &[]);
        cause.evidence = vec!["it went while the agent was not running, or could not see".to_owned()];
        let (kind, blame) = (Kind::Deleted, Blame::Nobody);
        let incident =
            self.incident(kind, image, records, remaining, Some(content), &blame, cause, orphaned, (at, at));
        let id = incident.id;
        self.open(incident, at, out);
        if let Some(live) = self.live.iter_mut().find(|live| live.incident.id == id) {
            live.repair = Some(at);
        }
    }

    /// The kernel saw an entry go.
    pub fn removed(&mut self, removal: Removal, inventory: &Inventory, out: &mut Vec<Outcome>) {
        if removal.process.key.pid == self.own {
            return;
        }
        if let Entry::Directory = removal.entry {
            out.push(Outcome::DirectoryRemoved { actor: removal.process.clone(), at: removal.at });
            return;
        }
        if self.lost(&removal, inventory, out) {
            return;
        }
        if self.servers.contains(&removal.process.key.pid) {
            if self.unexplained.len() >= MOST_UNEXPLAINED {
                let oldest = self.unexplained.remove(0);
                self.astray(oldest, out);
            }
            self.unexplained.push(removal);
        } else {
            self.damage_by(removal, inventory, false, out);
        }
    }

    /// What is due. `now` is boot time; events that are already waiting are to be handed in first.
    pub fn tick(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
        self.tell_changes(now, out);
        self.tell_deletions(now, inventory, out);
        self.explain(now, inventory, out);
        self.tell_damage(now, inventory, out);
        self.allow_repairs(now, out);
        self.close(now, out);
        self.book.expire(now);
        self.bursts.expire(now, out);
        for (actor, count) in self.folder.over(now) {
            out.push(Outcome::RemovalsFolded { count, actor, at: now });
        }
    }

    /// Nothing more is to come: what waits to be explained is told as it is, and every incident is closed. Nothing is
    /// allowed to be repaired by it: that a pause is cut short says nothing about who would create a name again.
    pub fn finish(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
        let late = Boottime(now.0.saturating_add(FINISHES.as_nanos() as u64));
        self.tell_changes(late, out);
        self.tell_deletions(late, inventory, out);
        self.explain(late, inventory, out);
        self.tell_damage(late, inventory, out);
        for Live { incident, lost, .. } in std::mem::take(&mut self.live) {
            out.push(Outcome::Closed { incident: incident.id, lost });
        }
        let over = Boottime(u64::MAX);
        self.bursts.expire(over, out);
        for (actor, count) in self.folder.over(over) {
            out.push(Outcome::RemovalsFolded { count, actor, at: now });
        }
    }

    /// When `tick` has something to do, if nothing else happens before.
    pub fn deadline(&self, now: Boottime) -> Option<Boottime> {
        let after = |at: Boottime, wait: Duration| Boottime(at.0 + wait.as_nanos() as u64);
        // The request that explains a deletion may be read a moment after the event.
        let going = self.going.iter().flat_map(|going| going.gone.last()).map(|(_, at)| {
            let steps = LOOKS.iter().map(|wait| after(*at, *wait));
            steps.into_iter().find(|step| *step > now).unwrap_or(now)
        });
        let live = self
            .live
            .iter()
            .map(|live| live.repair.unwrap_or(after(live.last, QUIET)).min(after(live.last, QUIET)));
        let damage = self.damage.iter().map(Damage::due);
        let changed = self.changed.iter().map(|changed| after(changed.at, NEXT_NAME));
        let unexplained = self.unexplained.first().map(|removal| after(removal.at, UNEXPLAINED));
        going
            .chain(live)
            .chain(damage)
            .chain(changed)
            .chain(unexplained)
            .chain(self.bursts.deadline())
            .chain(self.folder.deadline())
            .chain(self.book.deadline())
            .min()
    }

    fn allow_repairs(&mut self, now: Boottime, out: &mut Vec<Outcome>) {
        for live in &mut self.live {
            if live.repair.is_some_and(|due| due <= now) {
                live.repair = None;
                out.push(Outcome::Repair { incident: live.incident.id });
            }
        }
    }

    fn close(&mut self, now: Boottime, out: &mut Vec<Outcome>) {
        let over = |live: &mut Live| now.0.saturating_sub(live.last.0) >= QUIET.as_nanos() as u64;
        for live in self.live.extract_if(.., over) {
            let Live { incident, lost, .. } = live;
            self.closed.push_back(Closed { id: incident.id, at: now, orphaned: incident.orphaned });
            out.push(Outcome::Closed { incident: incident.id, lost });
        }
        while self.closed.len() > MOST_CLOSED
            || self
                .closed
                .front()
                .is_some_and(|closed| now.0.saturating_sub(closed.at.0) > EXPLAINS.as_nanos() as u64)
        {
            self.closed.pop_front();
        }
    }
}
