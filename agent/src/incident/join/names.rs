//! Names that went together become one incident, unless they come back first.

use std::time::Duration;

use super::{Going, Join, LATEST, RETAG, remaining};
use crate::{
    incident::{
        Incident, Kind, Orphaned, Outcome,
        asked::{Blame, Question},
        cause,
    },
    inventory::{self, Inventory, image::ImageRecord},
    probe::record::Boottime,
    wire::request::{Call, Request},
};

impl Join {
    pub(super) fn tell_deletions(&mut self, now: Boottime, inventory: &Inventory, out: &mut Vec<Outcome>) {
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
            let asked = self.book.knows(&question, last);
            let all = going.image.is_none_or(|id| inventory.names_of(id).is_empty());
            let due = passed >= LATEST
                || match asked.map(|asked| &asked.request) {
                    // Nobody retags through CRI: what it deletes is told when its last name is gone.
                    Some(Request { call: Call::RemoveImage { .. }, .. }) => all,
                    // A client that is still there may delete the other names, or create this one again.
                    Some(request) => passed >= RETAG && (all || self.book.ended(request.process.key)),
                    None => passed >= RETAG,
                };
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

    pub(super) fn deleted(
        &mut self,
        going: Going,
        blame: &Blame,
        at: Boottime,
        inventory: &Inventory,
    ) -> Incident {
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
}

fn orphaned(orphaned: inventory::Orphaned) -> Orphaned {
    let inventory::Orphaned { last_name, names, blobs, chain, bytes: _ } = orphaned;
    let blobs = blobs.into_iter().map(|blob| (blob.digest, blob.size)).collect();
    Orphaned { last_name, names, blobs, snapshots: chain }
}
