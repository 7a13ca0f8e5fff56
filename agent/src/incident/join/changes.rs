//! Records that changed: moved to another target, or robbed of their pin.

use super::{Changed, Join, NEXT_NAME};
use crate::{
    digest::Digest,
    incident::{
        Outcome,
        asked::{Blame, Question, senders},
        cause,
    },
    inventory::image::Labels,
    probe::record::Boottime,
};

/// Names of one image that lost their pins by one request.
struct Unpinned {
    image: Option<Digest>,
    names: Vec<String>,
    labels: Vec<String>,
    blame: Blame,
}

impl Join {
    pub(super) fn tell_changes(&mut self, now: Boottime, out: &mut Vec<Outcome>) {
        let due = |changed: &mut Changed| now.0.saturating_sub(changed.at.0) >= NEXT_NAME.as_nanos() as u64;
        let due: Vec<Changed> = self.changed.extract_if(.., due).collect();
        let mut unpinned: Vec<(Changed, Vec<String>)> = Vec::new();
        for changed in due {
            if changed.again || changed.before.target.digest != changed.after.target.digest {
                let creation = self.book.blame(&Question::Changed { name: &changed.after.name }, changed.at);
                // The request that deleted it is used up with the one that created it.
                let names = [changed.before.name.clone()];
                let blame = match changed.again {
                    true => self.book.blame(&Question::Deleted { id: None, names: &names }, changed.at),
                    false => creation,
                };
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
        let mut groups: Vec<Unpinned> = Vec::new();
        for (changed, labels) in unpinned {
            let blame = self.book.blame(&Question::Changed { name: &changed.after.name }, changed.at);
            let sender = cause::request(&blame).map(|(asked, _)| asked.request.process.key);
            let same = groups.iter_mut().find(|group| {
                group.image == changed.image
                    && cause::request(&group.blame).map(|(asked, _)| asked.request.process.key) == sender
            });
            match same {
                Some(group) => {
                    group.names.push(changed.after.name);
                    group.labels.extend(labels);
                    group.labels.sort();
                    group.labels.dedup();
                }
                None => groups.push(Unpinned {
                    image: changed.image,
                    names: vec![changed.after.name],
                    labels,
                    blame,
                }),
            }
        }
        for Unpinned { image, names, labels, blame } in groups {
            let cause = cause::of_request(&blame, None, &[]);
            let actor = cause::request(&blame).map(|(asked, _)| asked.request.process.clone());
            let candidates = match &blame {
                Blame::Several { candidates } => senders(candidates),
                Blame::Seen { .. } | Blame::Inferred { .. } | Blame::Nobody => Vec::new(),
            };
            out.push(Outcome::Unpinned { image, names, labels, actor, candidates, cause });
        }
    }
}

/// The labels of a pin that were there and are not any more.
fn pins_dropped(before: &Labels, after: &Labels) -> Vec<String> {
    before
        .iter()
        .filter(|(key, value)| key.ends_with(".pinned") && after.get(*key) != Some(value))
        .map(|(key, _)| key.clone())
        .collect()
}
