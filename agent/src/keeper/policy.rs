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
        // A name by digest follows the tags of its repository: whoever excepts `base/scratch:*` means it too.
        let follows = |name: &str| {
            name.split_once('@').is_some_and(|(repository, _)| {
                let tag =
                    |other: &&str| other.strip_prefix(repository).is_some_and(|rest| rest.starts_with(':'));
                names.iter().any(tag)
            })
        };
        for name in names.iter().copied().filter(|name| !follows(name)) {
            let by_name = name::normalise(name).is_ok_and(|name| self.known.archived_names.contains(&name));
            let facts = |archived| Facts {
                sandbox: self.known.sandbox.clone(),
                own: self.known.own.clone(),
                archived,
                used_within,
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
    use crate::config::Config;

    fn policy(text: &str) -> Policy {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("config.toml");
        std::fs::write(&file, text).unwrap();
        let config = Config::load(Some(&file)).unwrap();
        Policy { rules: Arc::new(Rules::new(&config)), known: Known::default() }
    }

    fn select(policy: &Policy, names: &[&str]) -> Option<Vec<String>> {
        policy.select(None, names.iter().copied(), None).map(|selected| selected.names)
    }

    #[test]
    fn a_name_by_digest_follows_the_tag_of_its_repository() {
        let digest = format!("@sha256:{}", "0".repeat(64));
        let policy = policy("[[protect]]\nnames = [\"r.test/*\"]\nexcept = [\"r.test/job:*\"]\n");
        let (job, web) = (format!("r.test/job{digest}"), format!("r.test/web{digest}"));
        assert_eq!(select(&policy, &["r.test/job:1", &job]), None, "excepted by its tag");
        assert_eq!(select(&policy, &["r.test/web:1", &web]), Some(vec!["r.test/web:1".to_owned()]));
        assert_eq!(select(&policy, &[&web]), Some(vec![web.clone()]), "alone it stands for itself");
    }
}
