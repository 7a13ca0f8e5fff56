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
    AskedFor, Incident, Kind, Lost, Orphaned, Outcome,
    asked::{Asked, Blame, Book, Meant, Question, references, senders},
    burst::Bursts,
    cause,
    loss::{Damage, Folder, UNEXPLAINED},
};
use crate::{
    audit::cause::Cause,
    digest::Digest,
    inventory::{
        self, Inventory, Resolution,
        image::{Content, ImageRecord, Labels},
    },
    probe::record::{Boottime, Entry, ProcessKey, Removal},
    wire::request::{Call, Header, Method, Request},
};

/// The pause after the last name in which a creation makes it a retag. The deletion is told at most 100 ms after it.
const RETAG: Duration = Duration::from_millis(70);
/// The pause between the names that one call deletes.
const NEXT_NAME: Duration = Duration::from_millis(25);
/// How long a repair waits for a creation, while the client that deleted natively is still there.
const RECREATE: Duration = Duration::from_millis(500);
/// An incident is over when nothing more was seen for this long.
const QUIET: Duration = Duration::from_secs(3);
/// How long a closed incident still explains removals: containerd collects late when its database is large.
const EXPLAINS: Duration = Duration::from_secs(120);
const MOST_CLOSED: usize = 1024;
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

    /// Which chain a snapshot directory belongs to.
    pub fn number(&mut self, number: u64, chain: Digest) {
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
    pub fn created(&mut self, record: &ImageRecord, meant: &Meant, at: Boottime, out: &mut Vec<Outcome>) {
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
            // The request that deleted it is used up, and so is the one that created it.
            let names = [before.name.clone()];
            let blame = self.book.blame(&Question::Deleted { id: None, names: &names }, at);
            self.book.blame(&Question::Changed { name: &record.name }, at);
            let actor = cause::request(&blame).map(|(asked, _)| asked.request.process.clone());
            out.push(Outcome::Retagged { name: record.name.clone(), before, after: record.clone(), actor });
            return;
        }
    }

    /// A record's labels or target changed.
    pub fn changed(&mut self, before: ImageRecord, after: ImageRecord, image: Option<Digest>, at: Boottime) {
        self.changed.push(Changed { before, after, image, at });
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

    /// When `tick` has something to do, if nothing else happens before.
    pub fn deadline(&self) -> Option<Boottime> {
        let after = |at: Boottime, wait: Duration| Boottime(at.0 + wait.as_nanos() as u64);
        let going =
            self.going.iter().flat_map(|going| going.gone.last()).map(|(_, at)| after(*at, NEXT_NAME));
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

    fn tell_deletions(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
        let mut index = 0;
        while index < self.going.len() {
            let Some(&(_, last)) = self.going[index].gone.last() else {
                self.going.remove(index);
                continue;
            };
            let passed = Duration::from_nanos(now.0.saturating_sub(last.0));
            let going = &self.going[index];
            let names: Vec<String> = going.gone.iter().map(|(record, _)| record.name.clone()).collect();
            let question = Question::Deleted { id: going.image, names: &names };
            let asked_of_cri = || {
                self.book
                    .knows(&question, last)
                    .is_some_and(|asked| matches!(asked.request.call, Call::RemoveImage { .. }))
            };
            let all = going.image.is_none_or(|id| inventory.names_of(id).is_empty());
            // Nobody retags through CRI: what it deletes is told when its last name is gone.
            let due = passed >= RETAG || (passed >= NEXT_NAME || all) && asked_of_cri();
            if !due {
                index += 1;
                continue;
            }
            let going = self.going.remove(index);
            let blame = self.book.blame(&Question::Deleted { id: going.image, names: &names }, last);
            let incident = self.deleted(going, &blame, last, inventory);
            self.open(incident, last, out);
        }
    }

    fn deleted(&mut self, going: Going, blame: &Blame, at: Boottime, inventory: &Inventory) -> Incident {
        let Going { image, content, target: _, gone } = going;
        let expiry = gone.iter().find_map(|(record, _)| record.labels.get(cause::EXPIRES)).cloned();
        let cause = cause::of_request(blame, expiry.as_deref(), &self.facts);
        let began = cause::request(blame)
            .map(|(asked, _)| asked.request.at)
            .or(gone.first().map(|(_, first)| *first))
            .unwrap_or(at);
        let records: Vec<ImageRecord> = gone.into_iter().map(|(record, _)| record).collect();
        let names: Vec<String> = records.iter().map(|record| record.name.clone()).collect();
        let orphaned = orphaned(inventory.orphaned_by(&names));
        let remaining = remaining(inventory, image);
        self.incident(Kind::Deleted, image, records, remaining, content, blame, cause, orphaned, (at, began))
    }

    fn damaged(
        &mut self,
        content: &Arc<Content>,
        blame: &Blame,
        cause: Cause,
        at: Boottime,
        inventory: &Inventory,
    ) -> Incident {
        let id = content.id;
        let remaining = remaining(inventory, id);
        let records = records_of(inventory, content);
        let content = Some(Arc::clone(content));
        let began = cause::request(blame).map_or(at, |(asked, _)| asked.request.at);
        let orphaned = Orphaned::default();
        self.incident(Kind::Damaged, id, records, remaining, content, blame, cause, orphaned, (at, began))
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where an incident is put together")]
    fn incident(
        &mut self,
        kind: Kind,
        image: Option<Digest>,
        records: Vec<ImageRecord>,
        remaining: Vec<String>,
        content: Option<Arc<Content>>,
        blame: &Blame,
        cause: Cause,
        orphaned: Orphaned,
        (at, began): (Boottime, Boottime),
    ) -> Incident {
        let actor = cause::request(blame).map(|(asked, _)| asked.request.process.clone());
        let candidates = match blame {
            Blame::Several { candidates } => senders(candidates),
            Blame::Seen { .. } | Blame::Inferred { .. } | Blame::Nobody => Vec::new(),
        };
        let request = cause::request(blame).map(|(asked, count)| asked_for(asked, count));
        let bytes = orphaned.blobs.values().sum();
        let burst = self.bursts.of(actor.as_ref(), image, bytes, at);
        Incident {
            id: Uuid::now_v7(),
            kind,
            image,
            records,
            remaining,
            content,
            actor,
            candidates,
            request,
            cause,
            orphaned,
            lost: Lost::default(),
            burst,
            at,
            began,
        }
    }

    /// Tells an incident, and says when it may be repaired.
    fn open(&mut self, incident: Incident, last: Boottime, out: &mut Vec<Outcome>) {
        let of_cri = incident.request.as_ref().is_some_and(|request| {
            request.method.as_deref().is_some_and(|method| method.ends_with("ImageService/RemoveImage"))
        });
        let sender = incident.actor.as_ref().map(|actor| actor.key);
        let id = incident.id;
        let at_once = of_cri || incident.kind == Kind::Damaged;
        out.push(Outcome::Opened(Box::new(incident.clone())));
        let repair = if at_once {
            out.push(Outcome::Repair { incident: id });
            None
        } else if sender.is_some_and(|key| self.book.ended(key)) {
            Some(last)
        } else {
            Some(Boottime(last.0 + RECREATE.as_nanos() as u64))
        };
        let lost = incident.lost.clone();
        self.live.push(Live { incident, lost, last, repair, sender });
    }

    /// Whether the removal belongs to an incident that is known.
    fn lost(&mut self, removal: &Removal, inventory: &Inventory, out: &mut Vec<Outcome>) -> bool {
        let chain = match removal.entry {
            Entry::Snapshot(number) => self.numbers.get(&number).copied(),
            Entry::Blob(_) | Entry::Directory => None,
        };
        for live in self.live.iter_mut().rev() {
            let (lost, orphaned) = (&mut live.lost, &live.incident.orphaned);
            let fits = match (removal.entry, chain) {
                (Entry::Blob(digest), _) => {
                    orphaned.blobs.get(&digest).map(|size| lost.blobs.insert(digest, *size)).is_some()
                }
                (Entry::Snapshot(_), Some(chain)) => {
                    let fits = orphaned.snapshots.contains(&chain);
                    if fits && !lost.snapshots.contains(&chain) {
                        lost.snapshots.push(chain);
                    }
                    fits
                }
                (Entry::Snapshot(number), None) => {
                    let fits = lost.numbers.len() + lost.snapshots.len() < orphaned.snapshots.len();
                    if fits && !lost.numbers.contains(&number) {
                        lost.numbers.push(number);
                    }
                    fits
                }
                (Entry::Directory, _) => false,
            };
            if fits {
                live.last = live.last.max(removal.at);
                if let Some(image) = live.incident.image
                    && live.repair.is_none()
                    && !inventory.names_of(image).is_empty()
                {
                    out.push(Outcome::Shaken { image });
                }
                return true;
            }
        }
        false
    }

    /// Removals by containerd that are explained by now, or never will be.
    fn explain(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
        for removal in std::mem::take(&mut self.unexplained) {
            if self.lost(&removal, inventory, out) {
                continue;
            }
            if now.0.saturating_sub(removal.at.0) < UNEXPLAINED.as_nanos() as u64 {
                self.unexplained.push(removal);
                continue;
            }
            let owned = match removal.entry {
                Entry::Blob(digest) => !listed(inventory, inventory.owners_of_blob(digest)).is_empty(),
                Entry::Snapshot(number) => self
                    .numbers
                    .get(&number)
                    .is_some_and(|chain| !owners_of_chain(inventory, *chain).is_empty()),
                Entry::Directory => false,
            };
            if owned {
                self.damage_by(removal, inventory, true, out);
            } else if matches!(removal.entry, Entry::Blob(_)) {
                self.astray(removal, out);
            }
            // A snapshot of no image is a container's own layer: it goes with its container, every day.
        }
    }

    fn damage_by(
        &mut self,
        removal: Removal,
        inventory: &Inventory,
        by_server: bool,
        out: &mut Vec<Outcome>,
    ) {
        let owners = match removal.entry {
            Entry::Blob(digest) => listed(inventory, inventory.owners_of_blob(digest)),
            Entry::Snapshot(number) => {
                self.numbers.get(&number).map(|chain| owners_of_chain(inventory, *chain)).unwrap_or_default()
            }
            Entry::Directory => Vec::new(),
        };
        if owners.is_empty() {
            self.astray(removal, out);
            return;
        }
        for owner in owners {
            let image = owner.id;
            let target = owner.target.digest;
            let same = |damage: &&mut Damage| {
                damage.target == target
                    && damage.by_server == by_server
                    && damage.removals.first().is_some_and(|first| first.process.key == removal.process.key)
            };
            match self.damage.iter_mut().find(same) {
                Some(damage) => damage.removals.push(removal.clone()),
                None => {
                    self.damage.push(Damage { image, target, removals: vec![removal.clone()], by_server })
                }
            }
        }
    }

    fn tell_damage(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
        for damage in self.damage.extract_if(.., |damage| damage.due() <= now).collect::<Vec<_>>() {
            let Damage { image, target, removals, by_server } = damage;
            let (Some(first), Some(last)) = (removals.first(), removals.last()) else { continue };
            let Some(owner) = inventory.content(target) else {
                for removal in removals {
                    self.astray(removal, out);
                }
                continue;
            };
            let mut lost = Lost::default();
            for removal in &removals {
                match removal.entry {
                    Entry::Blob(digest) => {
                        let size = owner.blobs.iter().find(|blob| blob.digest == digest);
                        lost.blobs.insert(digest, size.map_or(0, |blob| blob.size));
                    }
                    Entry::Snapshot(number) => match self.numbers.get(&number) {
                        Some(chain) => lost.snapshots.push(*chain),
                        None => lost.numbers.push(number),
                    },
                    Entry::Directory => {}
                }
            }
            let cause = if by_server { cause::of_collection() } else { cause::of_removal(first) };
            let mut incident = self.damaged(owner, &Blame::Nobody, cause, first.at, inventory);
            if !by_server {
                incident.actor = Some(first.process.clone());
                incident.burst =
                    self.bursts.of(incident.actor.as_ref(), image, lost.blobs.values().sum(), first.at);
            }
            let last = last.at;
            incident.lost = lost;
            self.open(incident, last, out);
        }
    }

    /// A removal that belongs to no image.
    fn astray(&mut self, removal: Removal, out: &mut Vec<Outcome>) {
        let Removal { at, process, entry, how: _ } = removal;
        if !self.folder.tells(&process, at) {
            return;
        }
        match entry {
            Entry::Blob(digest) => {
                let incident = self
                    .closed
                    .iter()
                    .rev()
                    .find(|closed| closed.orphaned.blobs.contains_key(&digest))
                    .map(|closed| closed.id);
                out.push(Outcome::BlobRemoved { digest, actor: process, incident, at });
            }
            Entry::Snapshot(number) => {
                let chain = self.numbers.get(&number).copied();
                out.push(Outcome::SnapshotRemoved { number, chain, actor: process, at });
            }
            Entry::Directory => {}
        }
    }

    fn tell_changes(&mut self, now: Boottime, out: &mut Vec<Outcome>) {
        let due = |changed: &mut Changed| now.0.saturating_sub(changed.at.0) >= NEXT_NAME.as_nanos() as u64;
        let due: Vec<Changed> = self.changed.extract_if(.., due).collect();
        let mut unpinned: Vec<(Changed, Vec<String>)> = Vec::new();
        for changed in due {
            if changed.before.target.digest != changed.after.target.digest {
                let blame = self.book.blame(&Question::Changed { name: &changed.after.name }, changed.at);
                let actor = cause::request(&blame).map(|(asked, _)| asked.request.process.clone());
                let Changed { before, after, .. } = changed;
                out.push(Outcome::Retagged { name: after.name.clone(), before, after, actor });
                continue;
            }
            let dropped = pins_dropped(&changed.before.labels, &changed.after.labels);
            if !dropped.is_empty() {
                unpinned.push((changed, dropped));
            }
        }
        // One actor that clears many pins is one event.
        let mut groups: Vec<(Option<Digest>, Vec<String>, Vec<String>, Blame)> = Vec::new();
        for (changed, labels) in unpinned {
            let blame = self.book.blame(&Question::Changed { name: &changed.after.name }, changed.at);
            let sender = cause::request(&blame).map(|(asked, _)| asked.request.process.key);
            let same = groups.iter_mut().find(|(image, _, _, other)| {
                *image == changed.image
                    && cause::request(other).map(|(asked, _)| asked.request.process.key) == sender
            });
            match same {
                Some((_, names, all, _)) => {
                    names.push(changed.after.name);
                    all.extend(labels);
                    all.sort();
                    all.dedup();
                }
                None => groups.push((changed.image, vec![changed.after.name], labels, blame)),
            }
        }
        for (image, names, labels, blame) in groups {
            let cause = cause::of_request(&blame, None, &[]);
            let actor = cause::request(&blame).map(|(asked, _)| asked.request.process.clone());
            let candidates = match &blame {
                Blame::Several { candidates } => senders(candidates),
                Blame::Seen { .. } | Blame::Inferred { .. } | Blame::Nobody => Vec::new(),
            };
            out.push(Outcome::Unpinned { image, names, labels, actor, candidates, cause });
        }
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

/// Contents that a name points to now.
fn listed(inventory: &Inventory, contents: Vec<Arc<Content>>) -> Vec<Arc<Content>> {
    contents.into_iter().filter(|content| !records_of(inventory, content).is_empty()).collect()
}

fn owners_of_chain(inventory: &Inventory, chain: Digest) -> Vec<Arc<Content>> {
    let all = inventory.all().into_iter().map(|image| image.content);
    all.filter(|content| content.chain.contains(&chain)).collect()
}

fn records_of(inventory: &Inventory, content: &Content) -> Vec<ImageRecord> {
    inventory.records().filter(|record| record.target.digest == content.target.digest).cloned().collect()
}

fn remaining(inventory: &Inventory, image: Option<Digest>) -> Vec<String> {
    image.map(|id| inventory.names_of(id).into_iter().collect()).unwrap_or_default()
}

fn orphaned(orphaned: inventory::Orphaned) -> Orphaned {
    let inventory::Orphaned { last_name, names, blobs, chain, bytes: _ } = orphaned;
    let blobs = blobs.into_iter().map(|blob| (blob.digest, blob.size)).collect();
    Orphaned { last_name, names, blobs, snapshots: chain }
}

/// The labels of a pin that were there and are not any more.
fn pins_dropped(before: &Labels, after: &Labels) -> Vec<String> {
    before
        .iter()
        .filter(|(key, value)| key.ends_with(".pinned") && after.get(*key) != Some(value))
        .map(|(key, _)| key.clone())
        .collect()
}

fn asked_for(asked: &Asked, count: u32) -> AskedFor {
    let Asked { request, .. } = asked;
    AskedFor {
        method: match &request.method {
            Method::Path(path) => Some(path.clone()),
            Method::Symbol(_) | Method::Lost => None,
        },
        target: references(&request.call).map(str::to_owned),
        namespace: match &request.namespace {
            Header::Known(name) => Some(name.clone()),
            Header::Absent | Header::Unknown => None,
        },
        at: request.at,
        count,
    }
}
