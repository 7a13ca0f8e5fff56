//! Where a value comes from, for `config show` and for errors.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::Serialize;

/// The source of each value that is not the default, by its dotted key (`containerd.address`, `protect[1].names`).
pub type Sources = BTreeMap<String, Source>;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// Built in.
    Default,
    /// Found on this node; the text says by what.
    Found(String),
    /// Written in a file.
    File {
        path: PathBuf,
        /// From 1.
        line: usize,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Found(by) => write!(f, "found: {by}"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
        }
    }
}
