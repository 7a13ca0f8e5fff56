//! Files that went: lost with an incident, damage of an image that is listed, or neither.

use std::sync::Arc;

use super::{Join, telling::records_of};
use crate::{
    digest::Digest,
    incident::{
        Lost, Outcome,
        asked::Blame,
        cause,
        loss::{Damage, UNEXPLAINED},
    },
    inventory::{Inventory, image::Content},
    probe::record::{Boottime, Entry, Removal},
};

impl Join {
    /// Whether the removal belongs to an incident that is known.
    pub(super) fn lost(&mut self, removal: &Removal, inventory: &Inventory, out: &mut Vec<Outcome>) -> bool {
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
                    // Where an image's directories are known, an unknown one is somebody else's.
                    let known =
                        || orphaned.snapshots.iter().any(|chain| self.numbers.values().any(|c| c == chain));
                    let fits = lost.numbers.len() < orphaned.snapshots.len() && !known();
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
    pub(super) fn explain(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
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

    pub(super) fn damage_by(
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
                    self.damage.push(Damage { image, target, removals: vec![removal.clone()], by_server });
                }
            }
        }
    }

    pub(super) fn tell_damage(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
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
    pub(super) fn astray(&mut self, removal: Removal, out: &mut Vec<Outcome>) {
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
}

/// Contents that a name points to now.
pub(super) fn listed(inventory: &Inventory, contents: Vec<Arc<Content>>) -> Vec<Arc<Content>> {
    contents.into_iter().filter(|content| !records_of(inventory, content).is_empty()).collect()
}

pub(super) fn owners_of_chain(inventory: &Inventory, chain: Digest) -> Vec<Arc<Content>> {
    let all = inventory.all().into_iter().map(|image| image.content);
    all.filter(|content| content.chain.contains(&chain)).collect()
}
