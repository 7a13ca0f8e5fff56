//! Which names are protected, by which rule, and how. Takes a config and what is known of a name; decides nothing else.

use std::time::Duration;

use super::{Config, Defaults, HoldSet, Mode, Pattern, Priority, Protect};
use crate::name;

/// What is known of a name beside its spelling.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// CRI's sandbox image, as CRI spells it.
    pub sandbox: Option<String>,
    /// imgwarden's own image.
    pub own: Option<String>,
    /// Whether an archive has the image.
    pub archived: bool,
    /// How long ago a container of the image last ran here; zero while one does. Absent: none did.
    pub used_within: Option<Duration>,
}

/// Why and how a name is protected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// `sandbox`, `self`, `archives`, or `protect[0]` for the first `[[protect]]`.
    pub rule: String,
    pub priority: Priority,
    pub holds: HoldSet,
    /// The rule's own, unless everything is only observed.
    pub mode: Mode,
}

/// The rules of a config, ready to be asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Rules {
    mode: Mode,
    defaults: Defaults,
    protect: Vec<Protect>,
}

impl Rules {
    pub fn new(config: &Config) -> Self {
        Self { mode: config.mode, defaults: config.defaults.clone(), protect: config.protect.clone() }
    }

    /// The rule that counts for a name, in any spelling, or for an image ID. Of the rules that match, the one with the
    /// highest priority counts; of equals the first: sandbox, self, `[[protect]]` in order, archives.
    pub fn matches(&self, name: &str, facts: &Facts) -> Option<Match> {
        let name = spelt(name);
        if any(&self.defaults.excluded, &name) {
            return None;
        }
        let is = |other: &Option<String>| other.as_ref().is_some_and(|other| spelt(other) == name);
        let critical = |rule: &str| (rule.to_owned(), Priority::Critical, HoldSet::ALL, Mode::Protect);
        let Defaults { sandbox, own, archives, excluded: _ } = &self.defaults;

        let sandbox = (*sandbox && is(&facts.sandbox)).then(|| critical("sandbox"));
        let own = (*own && is(&facts.own)).then(|| critical("self"));
        let rules = self.protect.iter().enumerate().filter(|(_, rule)| selects(rule, &name, facts));
        let rules =
            rules.map(|(index, rule)| (format!("protect[{index}]"), rule.priority, rule.holds, rule.mode));
        let archives = (*archives && facts.archived)
            .then(|| ("archives".to_owned(), Priority::Normal, HoldSet::ALL, Mode::Protect));

        let all = sandbox.into_iter().chain(own).chain(rules).chain(archives);
        let first_of_highest = all.reduce(|first, next| if next.1 > first.1 { next } else { first })?;
        let (rule, priority, holds, mode) = first_of_highest;
        let mode = if self.mode == Mode::Observe { Mode::Observe } else { mode };
        Some(Match { rule, priority, holds, mode })
    }

    /// The rule that counts for an image with these names.
    pub fn best<'a>(&self, names: impl IntoIterator<Item = &'a str>, facts: &Facts) -> Option<Match> {
        let matches = names.into_iter().filter_map(|name| self.matches(name, facts));
        matches.reduce(|first, next| if next.priority > first.priority { next } else { first })
    }
}

/// Whether a rule means a name.
fn selects(rule: &Protect, name: &str, facts: &Facts) -> bool {
    let Protect { names, except, used, priority: _, holds: _, mode: _ } = rule;
    let named = if names.is_empty() { used.is_some() } else { any(names, name) };
    let recent = used.is_none_or(|limit| facts.used_within.is_some_and(|ago| ago <= limit.get()));
    named && recent && !any(except, name)
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// A name as containerd would look for it; what is no name stays as it is (`ctr` may record anything).
fn spelt(name: &str) -> String {
    name::normalise(name).unwrap_or_else(|_| name.to_owned())
}
