//! The keys that a config may have, taken from its type: for refusing others, and for the reference.

use std::{collections::BTreeMap, sync::LazyLock};

use serde_json::Value;

use super::Config;

/// A key: a table with keys of its own, a list of such tables, or a value.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Key {
    /// Empty for a value.
    pub keys: BTreeMap<String, Key>,
    /// Whether it is written any number of times, as `[[key]]`.
    pub repeated: bool,
    /// What it means, as the type's comment says it.
    pub meaning: String,
    /// The default, as JSON. Absent for tables.
    pub default: Option<Value>,
    /// What a text may be, in words: `duration`, `size`. Absent for tables and plain texts.
    pub form: Option<String>,
}

static TOP: LazyLock<Key> = LazyLock::new(|| {
    let schema = schemars::schema_for!(Config).to_value();
    Key::from_schema(&schema, &schema)
});

impl Key {
    /// All keys.
    pub fn top() -> &'static Self {
        &TOP
    }

    fn from_schema(schema: &Value, whole: &Value) -> Self {
        let refers = |schema: &Value| {
            let name = schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
            whole.get("$defs")?.get(name).cloned()
        };
        let target = refers(schema).unwrap_or_else(|| schema.clone());
        let item = target.get("items").map(|item| refers(item).unwrap_or_else(|| item.clone()));
        let repeated = item.as_ref().is_some_and(|item| item.get("properties").is_some());
        let table = if repeated { item.unwrap_or_default() } else { target };
        let properties = table.get("properties").and_then(Value::as_object).cloned().unwrap_or_default();
        let keys: BTreeMap<_, _> = properties
            .iter()
            .map(|(name, schema)| (name.clone(), Self::from_schema(schema, whole)))
            .collect();
        let text = |name: &str| schema.get(name).and_then(Value::as_str).map(str::to_owned);
        Self {
            default: if keys.is_empty() { schema.get("default").cloned() } else { None },
            keys,
            repeated,
            meaning: text("description").unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" "),
            form: text("format"),
        }
    }

    /// The tables in which a key of this name is known, as they are written in a file.
    pub fn tables_with(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        if self.keys.contains_key(name) {
            found.push(String::new());
        }
        for (table, key) in &self.keys {
            if key.keys.contains_key(name) {
                found.push(table.clone());
            }
        }
        found
    }
}
