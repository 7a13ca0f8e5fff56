//! What has the right form and can't work is refused before anything is started with it.

use std::{path::Path, time::Duration};

use super::{Config, ConfigError, Size, Source, Span, error::Problem};

/// The namespace of the shadow records.
const OWN_NAMESPACE: &str = "imgwarden";

/// Whether an agent can run with this config.
pub(super) fn possible(config: &Config) -> Result<(), ConfigError> {
    let Some((key, problem)) = problems(config).into_iter().next() else { return Ok(()) };
    let origin = config.sources.get(&key).cloned().unwrap_or(Source::Default);
    Err(ConfigError::Impossible { origin, key, problem })
}

/// Everything that is wrong, with the key that says it.
fn problems(config: &Config) -> Vec<(String, Problem)> {
    let mut all: Vec<(String, Problem)> = Vec::new();
    let mut add = |key: &str, problem: Option<Problem>| all.extend(problem.map(|p| (key.to_owned(), p)));
    let containerd = &config.containerd;
    add("state_dir", relative(&config.state_dir));
    add("journal.dir", relative(&config.journal.dir));
    add("control.socket", socket(&config.control.socket));
    add("containerd.address", socket(&containerd.address));
    // Not found is not wrong: a node without containerd has none of them.
    for (key, path) in [
        ("containerd.root", &containerd.root),
        ("containerd.state", &containerd.state),
        ("holds.link_dir", &config.holds.link_dir),
    ] {
        add(key, if path.as_os_str().is_empty() { None } else { relative(path) });
    }
    for path in config.archives.dirs.iter() {
        add("archives.dirs", relative(path));
    }
    for path in config.archives.files.iter() {
        add("archives.files", relative(path));
    }
    let in_state = config.holds.link_dir == config.state_dir;
    add("holds.link_dir", in_state.then(|| Problem::LinksInState(config.state_dir.clone())));
    add("containerd.namespace", namespace(&containerd.namespace));
    let node_ok = config.node.len() <= 253 && !config.node.chars().any(char::is_control);
    add("node", (!node_ok).then(|| Problem::Node(config.node.chars().take(80).collect())));

    for (index, rule) in config.protect.iter().enumerate() {
        let all_images = rule.names.is_empty() && rule.used.is_none();
        add(&format!("protect[{index}]"), all_images.then_some(Problem::MatchesAll));
        add(&format!("protect[{index}].holds"), rule.holds.is_empty().then_some(Problem::NoHolds));
        let used = rule.used.and_then(|used| too_short(used, Duration::from_secs(1), "1s"));
        add(&format!("protect[{index}].used"), used);
    }
    add("repair.backoff_max", too_short(config.repair.backoff_max, Duration::from_secs(1), "1s"));
    add("scrub.stat", too_short(config.scrub.stat, Duration::from_secs(1), "1s"));
    let hash = config.scrub.hash.and_then(|hash| too_short(hash, Duration::from_secs(60), "1m"));
    add("scrub.hash", hash);

    let Size(segment) = config.journal.max_segment;
    let Size(journal) = config.journal.max_size;
    let too_small = |given: Size| Problem::TooSmall {
        given: given.to_string(),
        least: "64KiB, four of the longest events",
    };
    add("journal.max_segment", (segment < 64 << 10).then(|| too_small(config.journal.max_segment)));
    let too_large = || Problem::SegmentTooLarge {
        segment: config.journal.max_segment.to_string(),
        all: config.journal.max_size.to_string(),
    };
    add("journal.max_segment", (segment > journal / 2).then(too_large));
    all
}

fn relative(path: &Path) -> Option<Problem> {
    (!path.is_absolute()).then(|| Problem::Relative(path.into()))
}

fn socket(path: &Path) -> Option<Problem> {
    relative(path).or_else(|| (path.as_os_str().len() > 107).then(|| Problem::SocketPath(path.into())))
}

fn too_short(given: Span, least: Duration, name: &'static str) -> Option<Problem> {
    (given.get() < least).then(|| Problem::TooShort { given: given.to_string(), least: name })
}

/// As containerd's identifiers package has it.
fn namespace(name: &str) -> Option<Problem> {
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
    if name.len() > 76 || !name.split(['.', '_', '-']).all(is_word) {
        return Some(Problem::Namespace(name.chars().take(80).collect()));
    }
    (name == OWN_NAMESPACE).then(|| Problem::OwnNamespace(name.to_owned()))
}
