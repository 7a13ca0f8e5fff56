//! What names alone referenced: what is lost for good if they go and nothing holds it.

use std::collections::{BTreeSet, HashSet};

use super::{Inventory, image::Blob};
use crate::digest::Digest;

/// What a set of names, and no other name, referenced.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Orphaned {
    /// Whether no other name of the same images is left.
    pub last_name: bool,
    /// Those of the names that are or were known.
    pub names: Vec<String>,
    pub blobs: Vec<Blob>,
    /// Chain IDs.
    pub chain: Vec<Digest>,
    /// The sum of the blobs' sizes.
    pub bytes: u64,
}

impl Inventory {
    /// What `names` alone reference, or did until they went lately. Names that are back count as remaining only if they
    /// are not among `names`.
    pub fn orphaned_by(&self, names: &[String]) -> Orphaned {
        let asked: BTreeSet<&str> = names.iter().map(String::as_str).collect();
        // The latest that each name meant: now, or when it went.
        let mut meant = Vec::new();
        let mut known = Vec::new();
        for name in &asked {
            let content = match self.records.get(*name) {
                Some(record) => self.contents.get(&record.target.digest),
                None => self.gone().find(|gone| gone.record.name == *name).map(|gone| &gone.content),
            };
            if let Some(content) = content {
                known.push((*name).to_owned());
                meant.push(content);
            }
        }
        let remaining: Vec<_> =
            self.records.values().filter(|record| !asked.contains(record.name.as_str())).collect();
        let held: HashSet<Digest> = remaining
            .iter()
            .filter_map(|r| self.contents.get(&r.target.digest))
            .map(|c| c.target.digest)
            .collect();
        let (mut kept_blobs, mut kept_chain, mut kept_ids) = (HashSet::new(), HashSet::new(), HashSet::new());
        for content in held.iter().filter_map(|target| self.contents.get(target)) {
            kept_blobs.extend(content.blobs.iter().map(|blob| blob.digest));
            kept_chain.extend(content.chain.iter().copied());
            kept_ids.extend(content.id);
        }
        let mut orphaned = Orphaned { names: known, ..Orphaned::default() };
        orphaned.last_name = !meant.is_empty()
            && meant.iter().all(|content| {
                !held.contains(&content.target.digest) && content.id.is_none_or(|id| !kept_ids.contains(&id))
            });
        for content in meant {
            for blob in &content.blobs {
                if kept_blobs.insert(blob.digest) {
                    orphaned.bytes += blob.size;
                    orphaned.blobs.push(blob.clone());
                }
            }
            orphaned.chain.extend(content.chain.iter().copied().filter(|id| kept_chain.insert(*id)));
        }
        orphaned
    }
}

#[cfg(test)]
mod tests {
    use super::{super::memory::tests::*, *};
    use crate::probe::record::Boottime;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn blobs(orphaned: &Orphaned) -> Vec<Digest> {
        orphaned.blobs.iter().map(|blob| blob.digest).collect()
    }

    #[test]
    fn the_last_name_takes_everything_but_what_others_share() {
        let (app, other) = (content("app", &["base", "top"]), content("other", &["base"]));
        let inventory = with(&[("app:1", &app), ("app:2", &app), ("other:1", &other)]);

        let one = inventory.orphaned_by(&names(&["app:1"]));
        assert_eq!(one, Orphaned { names: names(&["app:1"]), ..Orphaned::default() });

        let both = inventory.orphaned_by(&names(&["app:1", "app:2", "never:1"]));
        assert_eq!(blobs(&both), [digest("manifest of app"), digest("app"), digest("top")]);
        assert_eq!((both.bytes, both.last_name), (30, true));
        assert_eq!(both.chain, [digest("chain top")]);
        assert_eq!(both.names, names(&["app:1", "app:2"]));
    }

    #[test]
    fn names_that_went_one_by_one_orphan_the_same() {
        let (app, other) = (content("app", &["base", "top"]), content("other", &["base"]));
        let mut inventory = with(&[("app:1", &app), ("app:2", &app), ("other:1", &other)]);
        let before = inventory.orphaned_by(&names(&["app:1", "app:2"]));
        inventory.remove("app:1", Boottime(1));
        assert!(!inventory.orphaned_by(&names(&["app:1"])).last_name);
        inventory.remove("app:2", Boottime(2));
        assert_eq!(inventory.orphaned_by(&names(&["app:1", "app:2"])), before);
    }

    #[test]
    fn unknown_names_orphan_nothing() {
        assert_eq!(with(&[]).orphaned_by(&names(&["x"])), Orphaned::default());
    }
}
