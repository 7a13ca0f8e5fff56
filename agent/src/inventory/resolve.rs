//! What a reference in a request means, or meant until lately.

use std::collections::BTreeSet;

use super::{Inventory, image::ImageRecord, memory::Gone};
use crate::{digest::Digest, name::normalise, probe::record::Boottime};

/// What a reference stands for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resolution {
    /// The record that the reference spells, as its name is in containerd: all that Images/Delete takes.
    pub name: Option<String>,
    /// The images' IDs. More than one when the name moved lately.
    pub ids: BTreeSet<Digest>,
    /// Every name that shares those IDs, or did until it went lately: all that RemoveImage takes.
    pub names: BTreeSet<String>,
}

impl Resolution {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl Inventory {
    /// Resolves a name in any spelling, a name with a digest, or an image ID (also cut short, as crictl sends it).
    pub fn resolve(&self, reference: &str) -> Resolution {
        self.resolve_since(reference, Boottime::default())
    }

    /// The same as it was at `at`: names that had gone before mean nothing.
    pub fn resolve_since(&self, reference: &str, at: Boottime) -> Resolution {
        let mut resolution = Resolution::default();
        // The raw text first: a record's name need not be a normal one.
        let spelled = std::iter::once(reference.to_owned()).chain(normalise(reference).ok());
        for name in spelled {
            if self.spells(&name, at, &mut resolution) {
                break;
            }
        }
        if resolution.name.is_none() {
            resolution.ids = self.ids_like(reference);
        }
        let ids = &resolution.ids;
        let shares = |id: Option<Digest>| id.is_some_and(|id| ids.contains(&id));
        let now = self.records.values().filter(|record| shares(self.id_of(record)));
        let lately =
            self.gone.iter().filter(|gone| gone.at >= at && shares(gone.content.id)).map(|gone| &gone.record);
        let names: Vec<String> = now.chain(lately).map(|record: &ImageRecord| record.name.clone()).collect();
        resolution.names.extend(names);
        resolution
    }

    /// Notes what a record of this name is and was.
    fn spells(&self, name: &str, at: Boottime, resolution: &mut Resolution) -> bool {
        let mut known = false;
        if let Some(record) = self.records.get(name) {
            known = true;
            resolution.ids.extend(self.id_of(record));
        }
        for Gone { content, .. } in self.gone.iter().filter(|gone| gone.at >= at && gone.record.name == name)
        {
            known = true;
            resolution.ids.extend(content.id);
        }
        if known {
            resolution.name = Some(name.to_owned());
            resolution.names.insert(name.to_owned());
        }
        known
    }

    fn ids_like(&self, reference: &str) -> BTreeSet<Digest> {
        let digits = reference.strip_prefix("sha256:").unwrap_or(reference);
        // Shorter ones are names more often than IDs.
        if digits.len() < 12
            || digits.len() > 64
            || digits.bytes().any(|b| !matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        {
            return BTreeSet::new();
        }
        self.contents
            .values()
            .filter_map(|content| content.id)
            .filter(|id| id.to_hex().starts_with(digits))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::memory::tests::*, *};

    const NAME: &str = "docker.io/library/app:1";

    #[test]
    fn any_spelling_and_the_id_mean_the_same_image() {
        let app = content("app", &["base"]);
        let id = digest("app");
        let by_digest = format!("docker.io/library/app@{}", app.target.digest);
        let inventory = with(&[(NAME, &app), (&by_digest, &app), (&id.to_string(), &app)]);
        let all: BTreeSet<String> = [NAME.to_owned(), by_digest.clone(), id.to_string()].into();
        for (reference, name) in [
            (NAME.to_owned(), Some(NAME.to_owned())),
            ("app:1".into(), Some(NAME.to_owned())),
            ("index.docker.io/library/app:1".into(), Some(NAME.to_owned())),
            (by_digest.clone(), Some(by_digest.clone())),
            (id.to_string(), Some(id.to_string())),
            (id.to_hex()[..13].to_owned(), None),
        ] {
            let resolution = inventory.resolve(&reference);
            assert_eq!(resolution, Resolution { name, ids: [id].into(), names: all.clone() }, "{reference}");
        }
        assert_eq!(inventory.resolve("app:2"), Resolution::default());
    }

    #[test]
    fn a_late_request_means_what_it_meant() {
        let app = content("app", &["base"]);
        let id = digest("app");
        let mut inventory = with(&[(NAME, &app), (&id.to_string(), &app)]);
        let before = inventory.resolve("app:1");
        inventory.remove(NAME, Boottime(1));
        inventory.remove(&id.to_string(), Boottime(1));
        assert_eq!(inventory.resolve("app:1"), before);
        assert_eq!(inventory.resolve(&id.to_string()).names, before.names);
        inventory.expire(Boottime(u64::MAX));
        assert_eq!(inventory.resolve("app:1"), Resolution::default());
    }

    proptest! {
        #[test]
        fn any_reference_is_resolved(reference in "[ -~]{0,80}") {
            let app = content("app", &["base"]);
            with(&[(NAME, &app)]).resolve(&reference);
        }
    }
}
