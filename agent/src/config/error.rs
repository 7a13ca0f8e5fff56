//! Why a config can't be used: the file, the line, what is wrong and what was probably meant.

use std::{fmt, io, path::PathBuf};

use super::Source;

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("{}: can't be read", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: too large for a config: at most {limit} bytes are read", path.display())]
    TooLarge { path: PathBuf, limit: u64 },
    #[error("{}: is not UTF-8", path.display())]
    NotText { path: PathBuf },
    /// No TOML.
    #[error("{}:{line}: {message}", path.display())]
    Syntax { path: PathBuf, line: usize, message: String },
    #[error("{}:{line}: unknown key {key:?}{table}{hint}", path.display())]
    UnknownKey { path: PathBuf, line: usize, key: String, table: Table, hint: Hint },
    /// A value of the wrong type or form.
    #[error("{}:{line}: {key}: {message}{hint}", path.display())]
    Value { path: PathBuf, line: usize, key: String, message: String, hint: Hint },
    /// A value that has the right form and can't work.
    #[error("{origin}: {key}: {problem}")]
    Impossible { origin: Source, key: String, problem: Problem },
    /// Files that are right each by itself and not together.
    #[error("{}: does not fit what the files before it say: {message}", path.display())]
    Merge { path: PathBuf, message: String },
}

/// What about a value can't work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error("{} is not an absolute path", .0.display())]
    Relative(PathBuf),
    #[error("{} is too long for a unix socket: at most 107 bytes", .0.display())]
    SocketPath(PathBuf),
    #[error(
        "{0:?} is no containerd namespace: letters, digits and single . _ - between them, at most 76 bytes"
    )]
    Namespace(String),
    #[error("{0:?} is where imgwarden keeps its own records: name the namespace whose images are guarded")]
    OwnNamespace(String),
    #[error("{0:?} is no node name: at most 253 printable characters")]
    Node(String),
    #[error("a rule needs `names` or `used`: it would mean every image")]
    MatchesAll,
    #[error("a rule without holds protects nothing: leave `holds` out, or write mode = \"observe\"")]
    NoHolds,
    #[error("{given} is too short: at least {least}")]
    TooShort { given: String, least: &'static str },
    #[error("{given} is too small: at least {least}")]
    TooSmall { given: String, least: &'static str },
    #[error("{segment} is more than journal.max_size, {all}: it must hold at least two segments")]
    SegmentTooLarge { segment: String, all: String },
    #[error("{} is state_dir: links need a directory of their own", .0.display())]
    LinksInState(PathBuf),
}

/// The table that a key stands in; nothing for the top.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table(pub(super) String);

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " in [{}]", self.0) }
    }
}

/// What was probably meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// One that is spelt alike.
    Meant(String),
    /// The same key is known elsewhere.
    Elsewhere(String),
    /// Nothing is alike: these are known.
    Known(Vec<String>),
    None,
}

impl Hint {
    /// The word of `known` that `given` was probably meant to be.
    pub(super) fn closest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let alike = |word: &str| strsim::jaro_winkler(&given.to_lowercase(), word);
        known
            .into_iter()
            .map(|word| (alike(word), word))
            .filter(|(score, _)| *score >= 0.8)
            .max_by(|one, other| one.0.total_cmp(&other.0))
            .map(|(_, word)| Self::Meant(word.to_owned()))
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meant(word) => write!(f, "; did you mean {word:?}?"),
            Self::Elsewhere(table) if table.is_empty() => f.write_str("; it belongs above the first [table]"),
            Self::Elsewhere(table) => write!(f, "; it belongs in [{table}]"),
            Self::Known(words) => write!(f, "; known here: {}", words.join(", ")),
            Self::None => Ok(()),
        }
    }
}
