//! A pattern of image names: `*` within a path element, `**` across. What can be normalised in it is, so that a
//! pattern and the names that it is meant for are spelt alike.

use std::{borrow::Cow, fmt, str::FromStr};

use globset::{GlobBuilder, GlobMatcher};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use crate::name::{self, NameError};

/// The longest pattern.
const LENGTH_MAX: usize = 1024;

/// Why a text is no pattern. Texts are cut to 80 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    #[error("a name pattern is empty")]
    Empty,
    #[error("{0:?} is too long for a name pattern: at most {LENGTH_MAX} bytes")]
    TooLong(String),
    #[error("{pattern:?} is no name pattern: `**` stands for whole path elements; write {better:?}")]
    Across { pattern: String, better: String },
    #[error("{0:?} is no name pattern: of the characters that no image name has, only `*` has a meaning")]
    Character(String),
    #[error("{pattern:?} is no name pattern")]
    Name { pattern: String, source: NameError },
    #[error("{pattern:?} is no name pattern")]
    Glob { pattern: String, source: globset::Error },
}

/// Matches normalised names, and image IDs.
#[derive(Clone)]
pub struct Pattern {
    /// As it was written.
    text: String,
    /// What is compared: a whole name, or a glob.
    shape: Shape,
}

#[derive(Clone)]
enum Shape {
    Name(String),
    Glob(Box<GlobMatcher>),
}

impl Pattern {
    /// Whether this means `name`, which is normalised or an image ID.
    pub fn matches(&self, name: &str) -> bool {
        match &self.shape {
            Shape::Name(whole) => whole == name,
            Shape::Glob(glob) => glob.is_match(name),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl FromStr for Pattern {
    type Err = PatternError;

    fn from_str(text: &str) -> Result<Self, PatternError> {
        if text.is_empty() {
            return Err(PatternError::Empty);
        }
        if text.len() > LENGTH_MAX {
            return Err(PatternError::TooLong(cut(text)));
        }
        if !text.contains('*') {
            let whole = if name::is_id(text) { Ok(text.to_owned()) } else { name::normalise(text) };
            let whole = whole.map_err(|source| PatternError::Name { pattern: cut(text), source })?;
            return Ok(Self { text: text.to_owned(), shape: Shape::Name(whole) });
        }
        // globset gives a meaning to ? { } [ ] \ too; the brackets of an IPv6 registry are escaped below.
        let is_known = |c: char| c.is_ascii_alphanumeric() || "._-/:@*[]".contains(c);
        if !text.chars().all(is_known) {
            return Err(PatternError::Character(cut(text)));
        }
        if let Some(wrong) = text.split('/').find(|element| element.contains("**") && *element != "**") {
            let better = text.replace(wrong, &format!("**/{}", wrong.replace("**", "*")));
            return Err(PatternError::Across { pattern: cut(text), better: cut(&better) });
        }
        let glob = GlobBuilder::new(&qualify(text).replace('[', "\\[").replace(']', "\\]"))
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|source| PatternError::Glob { pattern: cut(text), source })?;
        Ok(Self { text: text.to_owned(), shape: Shape::Glob(Box::new(glob.compile_matcher())) })
    }
}

/// Adds what a normalised name has: the registry, `library/`, and a tag where the last element says neither tag nor
/// digest nor `*`.
fn qualify(text: &str) -> String {
    let (domain, rest) = match text.split_once('/') {
        Some((first, rest)) if first.contains('*') || name::is_registry(first) => (first, rest),
        _ if text == "**" || text.starts_with("sha256:") => return text.to_owned(),
        _ => ("docker.io", text),
    };
    let domain = if domain == "index.docker.io" { "docker.io" } else { domain };
    let library = if domain == "docker.io" && !rest.contains('/') && rest != "**" { "library/" } else { "" };
    let last = rest.rsplit('/').next().unwrap_or(rest);
    let tag = if last.contains(['*', ':', '@']) { "" } else { ":latest" };
    format!("{domain}/{library}{rest}{tag}")
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(|error: PatternError| match std::error::Error::source(&error) {
            Some(source) => D::Error::custom(format_args!("{error}: {source}")),
            None => D::Error::custom(error),
        })
    }
}

impl JsonSchema for Pattern {
    fn schema_name() -> Cow<'static, str> {
        "Pattern".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        schemars::json_schema!({"type": "string", "format": "name pattern"})
    }
}
