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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn patterns_mean_names() {
        let id = format!("sha256:{}", "0a".repeat(32));
        let digested = format!("docker.io/library/nginx@{id}");
        for (pattern, name, means) in [
            ("nginx", "docker.io/library/nginx:latest", true),
            ("nginx", "docker.io/library/nginx:1", false),
            ("index.docker.io/rancher/pause:3.5", "docker.io/rancher/pause:3.5", true),
            ("nginx:1.*", "docker.io/library/nginx:1.27", true),
            ("nginx:1.*", "docker.io/library/nginx:2.0", false),
            ("nginx:1.*", "docker.io/other/nginx:1.27", false),
            ("nginx*", "docker.io/library/nginx:1.27", true),
            ("nginx*", &digested, true),
            ("nginx:*", &digested, false),
            ("nginx@*", &digested, true),
            ("rancher/*", "docker.io/rancher/pause:3.5", true),
            ("rancher/*", "docker.io/rancher/a/b:1", false),
            ("rancher/**", "docker.io/rancher/a/b:1", true),
            ("index.docker.io/rancher/*", "docker.io/rancher/pause:3.5", true),
            ("docker.io/nginx:*", "docker.io/library/nginx:1", true),
            ("docker.io/**", "docker.io/library/nginx:1", true),
            ("docker.io/**", "quay.io/library/nginx:1", false),
            ("r.example.com/base/**", "r.example.com/base/a/b:1", true),
            ("r.example.com/base/**", "r.example.com/base/a:1", true),
            ("r.example.com/base/**", "r.example.com/basement/a:1", false),
            ("r.example.com:5000/*", "r.example.com:5000/a:1", true),
            ("r.example.com/*/app", "r.example.com/x/app:latest", true),
            ("r.example.com/*/app", "r.example.com/x/app:1", false),
            ("r.example.com/**/app:*", "r.example.com/app:1", true),
            ("r.example.com/**/app:*", "r.example.com/x/y/app:1", true),
            ("*.example.com/**", "r.example.com/x:1", true),
            ("*/pause:*", "registry.k8s.io/pause:3.10", true),
            ("**/pause:*", "docker.io/rancher/pause:3.5", true),
            ("**", "docker.io/library/nginx:1", true),
            ("**", &id, true),
            ("[fd00::1]:5000/*", "[fd00::1]:5000/a:1", true),
            (&id, &id, true),
            ("sha256:0a*", &id, true),
            ("sha256:0b*", &id, false),
        ] {
            assert_eq!(pattern.parse::<Pattern>().unwrap().matches(name), means, "{pattern} {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_is_refused_with_what_would_be() {
        for (pattern, why) in [
            ("", "a name pattern is empty"),
            (
                "r.io/app**:1",
                r#""r.io/app**:1" is no name pattern: `**` stands for whole path elements; write "r.io/**/app*:1""#,
            ),
            (
                "r.io/{a,b}*",
                r#""r.io/{a,b}*" is no name pattern: of the characters that no image name has, only `*` has a meaning"#,
            ),
            ("Nginx", r#""Nginx" is no name pattern"#),
        ] {
            assert_eq!(pattern.parse::<Pattern>().unwrap_err().to_string(), why);
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_refused(text in "[a-z0-9.:@/*_\\[\\]-]{0,60}|\\PC{0,60}", name in "\\PC{0,60}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                pattern.matches(&name);
            }
        }

        #[test]
        fn a_name_means_itself(name in "[a-z]{1,8}(\\.io)?/[a-z]{1,8}(:[a-z0-9]{1,4})?") {
            let normal = name::normalise(&name).unwrap();
            prop_assert!(name.parse::<Pattern>().unwrap().matches(&normal));
        }
    }
}
