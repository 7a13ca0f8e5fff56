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
    /// The names that the rules select by themselves.
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
        let mut best: Option<Match> = None;
        let mut selected = Vec::new();
        for name in names {
            let archived = id.is_some_and(|id| self.known.archived_ids.contains(&id))
                || name::normalise(name).is_ok_and(|name| self.known.archived_names.contains(&name));
            let facts = Facts {
                sandbox: self.known.sandbox.clone(),
                own: self.known.own.clone(),
                archived,
                used_within,
            };
            let Some(found) = self.rules.matches(name, &facts) else { continue };
            selected.push(name.to_owned());
            if best.as_ref().is_none_or(|best| found.priority > best.priority) {
                best = Some(found);
            }
        }
        let Match { rule, priority, holds, mode } = best?;
        Some(Selected { rule, priority, holds, mode, names: selected })
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
