//! Whole events against files: `tests/golden/NAME.json`.
//!
//! What differs from run to run (times, pids, ids, digests, durations, sizes, directories) is replaced by placeholders;
//! equal values get equal placeholders, numbered as they first appear, so that what belongs together still does.
//! `IMGWARDEN_BLESS=1` writes the files instead of comparing.

use std::{collections::BTreeMap, env, fs, path::PathBuf};

use serde_json::Value;
use similar::TextDiff;

use crate::scratch::{cache_dir, workspace};

mod text;

/// Replaces what differs from run to run.
#[derive(Debug, Default)]
pub struct Normaliser {
    /// Texts and their placeholders: directories of the test.
    texts: Vec<(String, String)>,
    /// What was seen, by the kind of placeholder.
    seen: BTreeMap<&'static str, Vec<String>>,
}

/// Fields that are wholly the machine's: named, never compared.
const OPAQUE: [&str; 9] =
    ["host", "boot_id", "cgroup", "parents", "uptime_ns", "prev", "login_uid", "login_user", "session_id"];

impl Normaliser {
    /// Knows nothing of the test's directories but the shared ones.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
            .text(&cache_dir().to_string_lossy(), "<cache>")
            .text(&workspace().to_string_lossy(), "<workspace>")
    }

    /// Replaces a text wherever it stands; earlier ones win.
    #[must_use]
    pub fn text(mut self, text: &str, placeholder: &str) -> Self {
        self.texts.insert(0, (text.to_owned(), placeholder.to_owned()));
        self
    }

    /// A comparable copy of an event.
    pub fn event(&mut self, event: &Value) -> Value {
        self.value("", event)
    }

    fn value(&mut self, key: &str, value: &Value) -> Value {
        if OPAQUE.contains(&key) {
            return Value::from(format!("<{key}>"));
        }
        match value {
            Value::Object(fields) => {
                // In the order of the file, so that numbering is stable.
                fields.iter().map(|(key, value)| (key.clone(), self.value(key, value))).collect()
            }
            Value::Array(items) => {
                let mut items: Vec<Value> = items.iter().map(|item| self.value(key, item)).collect();
                // Blobs come by digest, which depends on the version of busybox.
                items.sort_by_cached_key(|item| item["digest"].as_str().map(str::to_owned));
                Value::from(items)
            }
            Value::Number(number) if key == "pid" => {
                Value::from(self.placeholder("pid", &number.to_string()))
            }
            Value::Number(_) if key.ends_with("_ms") => Value::from("<ms>"),
            Value::Number(number) if key == "seq" || is_size(key) && number.as_u64() != Some(0) => {
                Value::from(format!("<{key}>"))
            }
            Value::String(string) => Value::from(self.string(string)),
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        }
    }

    fn string(&mut self, string: &str) -> String {
        let mut string = string.to_owned();
        for (text, placeholder) in &self.texts {
            string = string.replace(text, placeholder);
        }
        text::replace_tokens(&string, |kind, token| self.placeholder(kind, token))
    }

    /// The placeholder of a value: the same for the same.
    fn placeholder(&mut self, kind: &'static str, value: &str) -> String {
        let seen = self.seen.entry(kind).or_default();
        let number = seen.iter().position(|known| known == value).unwrap_or_else(|| {
            seen.push(value.to_owned());
            seen.len() - 1
        });
        format!("<{kind} {}>", number + 1)
    }
}

/// Whether a field counts bytes, which depend on the version of busybox.
fn is_size(key: &str) -> bool {
    key == "bytes" || key == "size" || key.ends_with("_bytes") || key.starts_with("bytes_")
}

/// Panics with a diff unless the events are those of the golden file.
pub fn expect_golden(name: &str, normaliser: &mut Normaliser, events: &[Value]) {
    let normal: Vec<Value> = events.iter().map(|event| normaliser.event(event)).collect();
    let mut got = serde_json::to_string_pretty(&normal).expect("JSON can be printed");
    got.push('\n');
    let path = path(name);
    if env::var_os("IMGWARDEN_BLESS").is_some_and(|bless| bless == "1") {
        fs::write(&path, got).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        return;
    }
    let want = fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; IMGWARDEN_BLESS=1 writes it", path.display()));
    assert!(
        got == want,
        "{} differs; IMGWARDEN_BLESS=1 takes the new one:\n{}",
        path.display(),
        TextDiff::from_lines(&want, &got).unified_diff().header("golden", "this run")
    );
}

fn path(name: &str) -> PathBuf {
    workspace().join("tests/golden").join(format!("{name}.json"))
}
