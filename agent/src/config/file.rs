//! One config file: read with a limit, its keys known, its values of the right type; errors carry the line.

use std::{
    fs::File,
    io::Read as _,
    ops::Range,
    path::{Path, PathBuf},
};

use serde::Deserialize as _;
use toml::de::{DeTable, DeValue};

use super::{Config, ConfigError, Hint, error::Table, keys::Key};

/// The largest config file.
const BYTES_MAX: u64 = 1 << 20;

/// A checked file.
#[derive(Debug)]
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) table: toml::Table,
    /// Each written key with its place.
    pub(super) written: Vec<Written>,
}

/// A key as a file writes it: `probe.ring`, `protect[0].names`.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) key: String,
    /// From 1.
    pub(super) line: usize,
    /// The value's bytes in the file.
    span: Range<usize>,
}

impl ConfigFile {
    pub(super) fn read(path: &Path) -> Result<Self, ConfigError> {
        let failed = |source| ConfigError::Read { path: path.into(), source };
        let mut bytes = Vec::new();
        File::open(path).map_err(failed)?.take(BYTES_MAX + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > BYTES_MAX {
            return Err(ConfigError::TooLarge { path: path.into(), limit: BYTES_MAX });
        }
        let text = String::from_utf8(bytes).map_err(|_| ConfigError::NotText { path: path.into() })?;
        Self::parse(path, &text)
    }

    pub(super) fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let syntax = |error: toml::de::Error| ConfigError::Syntax {
            path: path.into(),
            line: line_of(text, error.span().map_or(0, |span| span.start)),
            message: one_line(error.message()),
        };
        let spanned = DeTable::parse(text).map_err(syntax)?;
        let mut walk = Walk { path, text, written: Vec::new() };
        walk.table(spanned.get_ref(), Key::top(), "", "")?;
        let written = walk.written;
        let config = toml::Deserializer::parse(text).map_err(syntax).and_then(|deserializer| {
            Config::deserialize(deserializer).map_err(|error| mistyped(path, text, &written, &error))
        });
        config?;
        Ok(Self { path: path.into(), table: toml::from_str(text).map_err(syntax)?, written })
    }
}

/// Goes through a file's tables, refuses unknown keys, and notes where each known one is written.
struct Walk<'a> {
    path: &'a Path,
    text: &'a str,
    written: Vec<Written>,
}

impl Walk<'_> {
    /// `prefix` is the dotted key with indices, `header` the table as a file's `[header]` names it.
    fn table(
        &mut self,
        table: &DeTable<'_>,
        known: &Key,
        prefix: &str,
        header: &str,
    ) -> Result<(), ConfigError> {
        for (name, value) in table {
            let line = line_of(self.text, name.span().start);
            let Some(key) = known.keys.get(name.get_ref().as_ref()) else {
                return Err(self.unknown(name.get_ref(), line, known, header));
            };
            let dotted = if prefix.is_empty() {
                name.get_ref().to_string()
            } else {
                format!("{prefix}.{}", name.get_ref())
            };
            match value.get_ref() {
                DeValue::Table(inner) if !key.keys.is_empty() && !key.repeated => {
                    self.table(inner, key, &dotted, name.get_ref())?;
                }
                DeValue::Array(items) if key.repeated => {
                    for (index, item) in items.iter().enumerate() {
                        let dotted = format!("{dotted}[{index}]");
                        let line = line_of(self.text, item.span().start);
                        self.written.push(Written { key: dotted.clone(), line, span: item.span() });
                        if let DeValue::Table(inner) = item.get_ref() {
                            self.table(inner, key, &dotted, name.get_ref())?;
                        }
                    }
                }
                _ => self.written.push(Written { key: dotted, line, span: value.span() }),
            }
        }
        Ok(())
    }

    fn unknown(&self, name: &str, line: usize, known: &Key, header: &str) -> ConfigError {
        let elsewhere = || {
            let table = Key::top().tables_with(name).into_iter().next()?;
            Some(Hint::Elsewhere(table))
        };
        let hint = Hint::closest(name, known.keys.keys().map(String::as_str))
            .or_else(elsewhere)
            .unwrap_or_else(|| Hint::Known(known.keys.keys().cloned().collect()));
        ConfigError::UnknownKey {
            path: self.path.into(),
            line,
            key: name.chars().take(80).collect(),
            table: Table(header.to_owned()),
            hint,
        }
    }
}

/// A value of the wrong type or form: its key is the narrowest written one that covers the place.
fn mistyped(path: &Path, text: &str, written: &[Written], error: &toml::de::Error) -> ConfigError {
    let start = error.span().map_or(0, |span| span.start);
    let covering = written
        .iter()
        .filter(|written| written.span.contains(&start))
        .min_by_key(|written| written.span.len());
    let message = match error.message() {
        // What serde says of every unit enum; no key of ours takes a table for a word.
        "wanted string or table" => "expected a string".to_owned(),
        other => one_line(other),
    };
    ConfigError::Value {
        path: path.into(),
        line: line_of(text, start),
        key: covering.map_or_else(|| "the config".to_owned(), |written| written.key.clone()),
        hint: meant_variant(&message),
        message,
    }
}

/// serde lists the words that are allowed: "unknown variant `x`, expected one of `a`, `b`".
fn meant_variant(message: &str) -> Hint {
    let mut words = message.split('`').skip(1).step_by(2);
    match words.next() {
        Some(given) if message.starts_with("unknown variant") => {
            Hint::closest(given, words).unwrap_or(Hint::None)
        }
        _ => Hint::None,
    }
}

/// The line of a byte, from 1.
fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().get(..at).unwrap_or(text.as_bytes());
    1 + before.iter().filter(|byte| **byte == b'\n').count()
}

fn one_line(message: &str) -> String {
    message.split_whitespace().collect::<Vec<_>>().join(" ")
}
