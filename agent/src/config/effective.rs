//! The config as it is in force: each value with where it comes from, a hash of all, what differs between two.

use serde::Serialize;
use serde_json::Value;

use super::{Config, Source, keys::Key};
use crate::digest::Digest;

/// A value in force.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Entry {
    /// `probe.ring`, `protect[0].names`.
    pub key: String,
    pub value: Value,
    pub source: Source,
}

impl Config {
    /// Every value in force, in the order of the keys.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.collect(&self.to_json(), Key::top(), "", &mut entries);
        entries
    }

    /// Of everything that is in force, whichever file says it.
    pub fn hash(&self) -> Digest {
        Digest::of(self.to_json().to_string().as_bytes())
    }

    /// The keys whose values differ.
    pub fn changed(&self, other: &Self) -> Vec<String> {
        let (before, after) = (self.entries(), other.entries());
        let differs = |entry: &&Entry, others: &[Entry]| {
            !others.iter().any(|other| other.key == entry.key && other.value == entry.value)
        };
        let mut keys: Vec<_> = before.iter().filter(|entry| differs(entry, &after)).collect();
        keys.extend(after.iter().filter(|entry| differs(entry, &before)));
        let mut keys: Vec<_> = keys.into_iter().map(|entry| entry.key.clone()).collect();
        keys.sort();
        keys.dedup();
        keys
    }

    /// All values are texts, numbers, lists and tables with text keys, and all paths came from UTF-8: nothing in them
    /// can fail to be JSON.
    fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn collect(&self, value: &Value, known: &Key, prefix: &str, entries: &mut Vec<Entry>) {
        for (name, key) in &known.keys {
            let Some(value) = value.get(name) else { continue };
            let dotted = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            match value {
                Value::Array(items) if key.repeated => {
                    for (index, item) in items.iter().enumerate() {
                        self.collect(item, key, &format!("{dotted}[{index}]"), entries);
                    }
                }
                value if !key.keys.is_empty() => self.collect(value, key, &dotted, entries),
                value => {
                    let source = self.sources.get(&dotted).cloned().unwrap_or(Source::Default);
                    entries.push(Entry { key: dotted, value: value.clone(), source });
                }
            }
        }
    }
}
