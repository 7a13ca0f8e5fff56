//! Makes a record fit its line: lists of at most 20 entries with the counts of all, and at most 16 KiB in all, because
//! containerd splits longer lines of a pod's output and some shippers stop at them.
//!
//! What goes first is what a reader misses least: entries of lists, arguments, evidence, parents, the ends of long
//! texts. The same record is always cut the same way, and `cut` says what was.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

/// The longest line, without its end.
pub(crate) const LINE: usize = 16 << 10;
/// The most entries of a list.
const LIST: usize = 20;
/// The most entries of a map of counters.
const COUNTERS: usize = 64;
/// Lists that tell the number of all their entries when they are cut.
const COUNTED: [&str; 6] = ["names", "blobs", "snapshots", "candidates", "images", "changed"];
/// Lists that always tell it: what was lost is summed up by them.
const ALWAYS: [&str; 2] = ["blobs", "snapshots"];

/// Limits of one attempt, from generous to tight.
#[derive(Debug, Clone, Copy)]
struct Limits {
    list: usize,
    argv: usize,
    evidence: usize,
    parents: usize,
    /// Bytes of a text as JSON writes it.
    text: usize,
}

const STEPS: [Limits; 7] = [
    Limits { list: LIST, argv: 256, evidence: LIST, parents: 4, text: 4096 },
    Limits { list: 5, argv: 256, evidence: LIST, parents: 4, text: 4096 },
    Limits { list: 2, argv: 32, evidence: LIST, parents: 4, text: 1024 },
    Limits { list: 2, argv: 8, evidence: 8, parents: 4, text: 512 },
    Limits { list: 1, argv: 4, evidence: 4, parents: 4, text: 256 },
    Limits { list: 1, argv: 2, evidence: 2, parents: 2, text: 128 },
    Limits { list: 1, argv: 1, evidence: 1, parents: 1, text: 96 },
];

/// `record`, an event as JSON, cut until it fits.
pub(crate) fn fit(mut record: Value) -> Value {
    for limits in STEPS {
        let mut cut = BTreeSet::new();
        if let Value::Object(fields) = &mut record {
            // The cuts of the step before are still true.
            if let Some(Value::Array(before)) = fields.remove("cut") {
                cut.extend(before.iter().filter_map(Value::as_str).map(str::to_owned));
            }
            object(fields, "", limits, &mut cut);
            if !cut.is_empty() {
                fields.insert("cut".into(), json!(cut));
            }
        }
        if serde_json::to_string(&record).is_ok_and(|line| line.len() <= LINE) {
            break;
        }
    }
    record
}

fn object(fields: &mut Map<String, Value>, path: &str, limits: Limits, cut: &mut BTreeSet<String>) {
    let mut counts = Vec::new();
    for (key, value) in fields.iter_mut() {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        if let Value::Array(entries) = value {
            count(key, entries, limits.list, &mut counts);
        }
        each(key, value, &path, limits, cut);
    }
    for (key, count) in counts {
        // Who made the record may know of more than it lists.
        fields.entry(key).or_insert(count);
    }
    if ["seen", "lost"].contains(&path) && fields.len() > COUNTERS && fields.values().all(Value::is_number) {
        *fields = std::mem::take(fields).into_iter().take(COUNTERS).collect();
        cut.insert(path.to_owned());
    }
}

fn count(key: &str, entries: &[Value], limit: usize, counts: &mut Vec<(String, Value)>) {
    if !(ALWAYS.contains(&key) || COUNTED.contains(&key) && entries.len() > limit) {
        return;
    }
    counts.push((format!("{key}_count"), json!(entries.len())));
    let bytes: Option<Vec<u64>> = entries.iter().map(|entry| entry.get("bytes")?.as_u64()).collect();
    if let Some(bytes) = bytes
        && ["blobs", "images"].contains(&key)
    {
        let sum = bytes.iter().fold(0_u64, |sum, bytes| sum.saturating_add(*bytes));
        counts.push((format!("{key}_bytes"), json!(sum)));
    }
}

fn each(key: &str, value: &mut Value, path: &str, limits: Limits, cut: &mut BTreeSet<String>) {
    match value {
        Value::Array(entries) => {
            let most = match key {
                "argv" => limits.argv,
                "evidence" => limits.evidence,
                "parents" => limits.parents,
                // One entry a hook, of which there are a dozen.
                "hooks" => LIST.min(limits.list * 10),
                _ => limits.list,
            };
            // The counts say that a list is cut; of those without counts, `cut` does.
            if entries.len() > most {
                entries.truncate(most);
                if !(COUNTED.contains(&key) && limits.list == LIST) {
                    cut.insert(path.to_owned());
                }
            }
            for entry in entries {
                each("", entry, path, limits, cut);
            }
        }
        Value::Object(fields) => object(fields, path, limits, cut),
        Value::String(text) => {
            if shorten(text, limits.text) {
                cut.insert(path.to_owned());
            }
        }
        // Three digits are microseconds, and every JSON reader reads them alike, which the chain needs.
        Value::Number(number) => {
            if key.ends_with("_ms")
                && let Some(exact) = number.as_f64()
                && let Some(rounded) = serde_json::Number::from_f64((exact * 1000.0).round() / 1000.0)
            {
                *number = rounded;
            }
        }
        Value::Bool(_) | Value::Null => {}
    }
}

/// Cuts a text so that JSON writes it with at most `limit` bytes. Whether it was longer.
fn shorten(text: &mut String, limit: usize) -> bool {
    if text.len() <= limit / 6 {
        return false;
    }
    let mut written = 0;
    let mut keep = 0;
    for (at, character) in text.char_indices() {
        written += match character {
            '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
            control if u32::from(control) < 0x20 => 6,
            other => other.len_utf8(),
        };
        if written > limit {
            text.truncate(keep);
            text.push('…');
            return true;
        }
        if written + '…'.len_utf8() <= limit {
            keep = at + character.len_utf8();
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_keep_20_entries_and_tell_the_number_and_size_of_all() {
        let blobs: Vec<Value> = (1..=30).map(|bytes| json!({"digest": "d", "bytes": bytes})).collect();
        let record = fit(json!({"lost": {"blobs": blobs, "snapshots": ["7"]}}));
        assert_eq!(record["lost"]["blobs"].as_array().map(Vec::len), Some(20));
        assert_eq!(record["lost"]["blobs_count"], 30);
        assert_eq!(record["lost"]["blobs_bytes"], 465);
        assert_eq!(record["lost"]["snapshots_count"], 1);
        assert_eq!(record.get("cut"), None);
    }

    #[test]
    fn a_count_that_is_given_stands() {
        let record = fit(json!({"names": vec!["n"; 21], "names_count": 500}));
        assert_eq!(record["names_count"], 500);
    }

    #[test]
    fn a_long_record_says_what_was_cut() {
        let argv = vec!["x".repeat(1000); 40];
        let record = fit(json!({"type": "image.deleted", "actor": {"argv": argv}, "message": "short"}));
        assert!(record.to_string().len() <= LINE);
        assert_eq!(record["cut"], json!(["actor.argv"]));
        assert_eq!(record["message"], "short");
    }

    #[test]
    fn milliseconds_have_three_digits() {
        let record = fit(json!({"took_ms": 1.234_567_8, "repair": {"delete_to_usable_ms": 0.1 + 0.2}}));
        assert_eq!(record, json!({"took_ms": 1.235, "repair": {"delete_to_usable_ms": 0.3}}));
    }

    proptest! {
        #[test]
        fn a_text_keeps_its_limit_as_written(text in any::<String>(), limit in 12_usize..60) {
            let mut short = text.clone();
            let cut = shorten(&mut short, limit);
            prop_assert!(serde_json::to_string(&short).unwrap().len() <= limit + 2);
            prop_assert_eq!(cut, short != text);
        }
    }
}
