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
    /// Of an image ID, or a name with a digest: the image's tags that it merely spells otherwise. Where all of these are
    /// excluded, it is too: nobody writes a pattern for a digest.
    pub tags: Vec<String>,
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

    /// The mode of the whole config.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// The rule that counts for a name, in any spelling, or for an image ID. Of the rules that match, the one with the
    /// highest priority counts; of equals the first: sandbox, self, `[[protect]]` in order, archives.
    pub fn matches(&self, name: &str, facts: &Facts) -> Option<Match> {
        let name = spelt(name);
        if excludes(&self.defaults.excluded, &name, facts) {
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
    named && recent && !excludes(except, name, facts)
}

fn excludes(patterns: &[Pattern], name: &str, facts: &Facts) -> bool {
    let tags = &facts.tags;
    any(patterns, name) || (!tags.is_empty() && tags.iter().all(|tag| any(patterns, &spelt(tag))))
}

fn any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}

/// A name as containerd would look for it; what is no name stays as it is (`ctr` may record anything).
fn spelt(name: &str) -> String {
    name::normalise(name).unwrap_or_else(|_| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn rules(text: &str) -> Rules {
        Rules::new(&toml::from_str(text).unwrap())
    }

    fn rule_of(rules: &Rules, name: &str, facts: &Facts) -> Option<String> {
        rules.matches(name, facts).map(|found| found.rule)
    }

    #[test]
    fn the_highest_priority_counts_and_of_equals_the_first() {
        let rules = rules(
            r#"
            [[protect]]
            names = ["nginx:*"]
            [[protect]]
            names = ["docker.io/library/**"]
            except = ["docker.io/library/scratch:*"]
            priority = "high"
            holds = ["pin", "lease"]
            mode = "observe"
            [[protect]]
            names = ["nginx:*"]
            priority = "high"
            [[protect]]
            used = "7d"
            "#,
        );
        let used = |ago| Facts { used_within: Some(ago), ..Facts::default() };
        let archived = Facts { archived: true, ..Facts::default() };
        for (name, facts, rule) in [
            ("nginx:1", Facts::default(), Some("protect[1]")),
            ("index.docker.io/nginx:1", Facts::default(), Some("protect[1]")),
            ("scratch:1", Facts::default(), None),
            ("scratch:1", archived.clone(), Some("archives")),
            ("scratch:1", used(7 * DAY), Some("protect[3]")),
            ("quay.io/a:1", used(Duration::ZERO), Some("protect[3]")),
            ("quay.io/a:1", used(8 * DAY), None),
            ("quay.io/a:1", Facts::default(), None),
            ("quay.io/a:1", Facts { used_within: Some(DAY), ..archived }, Some("protect[3]")),
        ] {
            assert_eq!(rule_of(&rules, name, &facts).as_deref(), rule, "{name} {facts:?}");
        }
        assert_eq!(
            rules.matches("nginx:1", &Facts::default()),
            Some(Match {
                rule: "protect[1]".into(),
                priority: Priority::High,
                holds: [crate::config::Hold::Pin, crate::config::Hold::Lease].into_iter().collect(),
                mode: Mode::Observe,
            })
        );
    }

    /// rke2#1830: the sandbox image's configured spelling is not its record's.
    #[test]
    fn the_sandbox_image_is_critical_whatever_its_spelling() {
        let facts = Facts { sandbox: Some("index.docker.io/rancher/pause:3.5".into()), ..Facts::default() };
        let found = rules("").matches("docker.io/rancher/pause:3.5", &facts).unwrap();
        assert_eq!((found.rule.as_str(), found.priority), ("sandbox", Priority::Critical));
        assert_eq!(rules("").matches("docker.io/rancher/pause:3.6", &facts), None);
        let own = Facts { own: Some("imgwarden/imgwarden".into()), ..Facts::default() };
        assert_eq!(
            rule_of(&rules(""), "docker.io/imgwarden/imgwarden:latest", &own).as_deref(),
            Some("self")
        );
        let off = rules("[defaults]\nsandbox = false\nself = false\narchives = false");
        assert_eq!(off.matches("rancher/pause:3.5", &Facts { archived: true, ..facts }), None);
        assert_eq!(off.matches("imgwarden/imgwarden", &own), None);
    }

    #[test]
    fn excluded_wins_over_everything() {
        let rules = rules(
            "[defaults]\nexcluded = [\"rancher/**\"]\n[[protect]]\nnames = [\"**\"]\npriority = \"critical\"",
        );
        let facts = Facts { sandbox: Some("rancher/pause:3.5".into()), archived: true, ..Facts::default() };
        assert_eq!(rules.matches("docker.io/rancher/pause:3.5", &facts), None);
        assert!(rules.matches("nginx", &facts).is_some());
        let names = ["docker.io/rancher/pause:3.5", "quay.io/pause:3.5"];
        assert_eq!(rules.best(names, &facts).map(|found| found.rule).as_deref(), Some("protect[0]"));
    }

    #[test]
    fn a_digest_is_excluded_with_its_tags() {
        let rules = rules("[[protect]]\nnames = [\"quay.io/**\"]\nexcept = [\"quay.io/job:*\"]");
        let name = format!("quay.io/job@sha256:{}", "0a".repeat(32));
        let tagged =
            |tags: &[&str]| Facts { tags: tags.iter().map(|&tag| tag.into()).collect(), ..Facts::default() };
        assert_eq!(rules.matches(&name, &tagged(&["quay.io/job:1", "quay.io/job:2"])), None);
        assert!(rules.matches(&name, &tagged(&["quay.io/job:1", "quay.io/web:1"])).is_some());
        assert!(rules.matches(&name, &tagged(&[])).is_some());
    }

    #[test]
    fn a_config_that_only_observes_observes_every_rule() {
        let rules = rules("mode = \"observe\"\n[[protect]]\nnames = [\"nginx\"]\nmode = \"protect\"");
        assert_eq!(rules.matches("nginx", &Facts::default()).unwrap().mode, Mode::Observe);
    }

    #[test]
    fn a_record_that_is_no_name_can_still_be_meant_by_a_glob() {
        let rules = rules("[[protect]]\nnames = [\"**\"]");
        assert!(rules.matches("Not A Name", &Facts::default()).is_some());
    }
}
