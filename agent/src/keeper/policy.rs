//! Which images are protected, by which rule, with which holds.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use crate::{
    audit,
    config::{
        HoldSet, Mode, Priority,
        rules::{Facts, Match, Rules},
    },
    digest::Digest,
    inventory::image::ImageRecord,
    name,
};

/// What is known of the node beside the names.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// CRI's sandbox image, as configured.
    pub sandbox: Option<String>,
    /// imgwarden's own image.
    pub own: Option<String>,
    /// Image IDs and normalised names that an archive holds.
    pub archived_ids: HashSet<Digest>,
    pub archived_names: HashSet<String>,
}

/// The rules, with what they need to know.
#[derive(Debug, Clone)]
pub struct Policy {
    pub rules: Arc<Rules>,
    pub known: Known,
}

/// A rule's verdict on an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    pub rule: String,
    pub priority: Priority,
    pub holds: HoldSet,
    pub mode: Mode,
    /// The names that the rules select by themselves; if there are none, those of an archived image.
    pub names: Vec<String>,
}

impl Policy {
    /// The strongest rule that selects one of the image's names.
    pub fn select<'a>(
        &self,
        id: Option<Digest>,
        names: impl Iterator<Item = &'a str>,
        used_within: Option<Duration>,
    ) -> Option<Selected> {
        let by_id = id.is_some_and(|id| self.known.archived_ids.contains(&id));
        let mut best: Option<Match> = None;
        let mut by_themselves = Vec::new();
        let mut by_their_image = Vec::new();
        let names: Vec<&str> = names.collect();
        for &name in &names {
            let by_name = name::normalise(name).is_ok_and(|name| self.known.archived_names.contains(&name));
            let facts = |archived| Facts {
                sandbox: self.known.sandbox.clone(),
                own: self.known.own.clone(),
                archived,
                used_within,
                tags: tags(name, &names),
            };
            let Some(found) = self.rules.matches(name, &facts(by_id || by_name)) else { continue };
            if by_name || !by_id || self.rules.matches(name, &facts(false)).is_some() {
                by_themselves.push(name.to_owned());
            } else {
                by_their_image.push(name.to_owned());
            }
            if best.as_ref().is_none_or(|best| found.priority > best.priority) {
                best = Some(found);
            }
        }
        let Match { rule, priority, holds, mode } = best?;
        // An archived image that has none of its archive's names is wanted by all that it has.
        let names = if by_themselves.is_empty() { by_their_image } else { by_themselves };
        Some(Selected { rule, priority, holds, mode, names })
    }
}

/// The tags among an image's names that `name` spells otherwise: of an ID all, of a name with a digest those of its
/// repository.
fn tags(name: &str, names: &[&str]) -> Vec<String> {
    let is_id = |name: &str| name.starts_with("sha256:");
    let repository = match name.split_once('@') {
        Some((repository, _)) => Some(repository),
        None if is_id(name) => None,
        None => return Vec::new(),
    };
    let spells = |tag: &&&str| {
        let same = repository
            .is_none_or(|repository| tag.strip_prefix(repository).is_some_and(|rest| rest.starts_with(':')));
        !tag.contains('@') && !is_id(tag) && same
    };
    names.iter().filter(spells).map(|&tag| tag.to_owned()).collect()
}

/// The image as an event names it.
pub(super) fn subject(
    id: Option<Digest>,
    names: impl Iterator<Item = String>,
    selected: Option<&Selected>,
) -> audit::Image {
    const LISTED: usize = 20;
    let names: Vec<String> = names.collect();
    audit::Image {
        id,
        names_count: (names.len() > LISTED).then_some(names.len() as u64),
        names: names.into_iter().take(LISTED).collect(),
        rule: selected.map(|selected| selected.rule.clone()),
        priority: selected.map(|selected| match selected.priority {
            Priority::Normal => audit::image::Priority::Normal,
            Priority::High => audit::image::Priority::High,
            Priority::Critical => audit::image::Priority::Critical,
        }),
        protected: selected.is_some(),
    }
}

/// Whether the rule lets imgwarden change anything.
pub(super) fn may_change(selected: &Selected) -> bool {
    selected.mode == Mode::Protect
}

/// Whether a name belongs to the image's identity rather than to somebody's rule: the image ID, or the digest of a
/// name that is selected.
pub(super) fn belongs(name: &str, selected: &Selected, records: &BTreeMap<String, ImageRecord>) -> bool {
    if selected.names.iter().any(|selected| selected == name) || name.starts_with("sha256:") {
        return true;
    }
    let Some((repository, _)) = name.split_once('@') else { return false };
    records.contains_key(name)
        && selected.names.iter().any(|selected| {
            selected
                .strip_prefix(repository)
                .is_some_and(|rest| rest.starts_with([':', '@']) || rest.is_empty())
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Given an image that an archive has and that `[[protect]]` means by its repository, when each of its tags is
    /// excluded, then neither its digest nor its ID brings it back in.
    #[test]
    fn an_excluded_image_has_no_other_way_in() {
        let digest = Digest::of(b"job");
        let (tag, by_digest, id) =
            ("quay.io/job:1", format!("quay.io/job@{digest}"), Digest::of(b"id").to_string());
        let names = [tag, by_digest.as_str(), id.as_str()];
        let selected = |config: &str, names: &[&str]| {
            let known = Known {
                archived_ids: [Digest::of(b"id")].into(),
                archived_names: [tag.to_owned()].into(),
                ..Known::default()
            };
            let rules = Arc::new(Rules::new(&toml::from_str(config).unwrap()));
            let policy = Policy { rules, known };
            policy.select(Some(Digest::of(b"id")), names.iter().copied(), None).map(|found| found.rule)
        };
        let all = "[[protect]]\nnames = [\"**\"]\n";
        let excluded = "[defaults]\nexcluded = [\"quay.io/job:*\"]\n";
        assert_eq!(selected(all, &names).as_deref(), Some("protect[0]"));
        assert_eq!(selected("", &names).as_deref(), Some("archives"));
        assert_eq!(selected(excluded, &names), None);
        assert_eq!(selected(&format!("{excluded}{all}"), &names), None);
        let except =
            "[defaults]\narchives = false\n[[protect]]\nnames = [\"**\"]\nexcept = [\"quay.io/job:*\"]";
        assert_eq!(selected(except, &names), None);
        // A tag that is not excluded still wants the image, and so does a digest that has no tag beside it.
        let another = [tag, "quay.io/web:1", by_digest.as_str(), id.as_str()];
        assert_eq!(selected(&format!("{excluded}{all}"), &another).as_deref(), Some("protect[0]"));
        assert_eq!(selected(except, &[by_digest.as_str()]).as_deref(), Some("protect[0]"));
    }
}
