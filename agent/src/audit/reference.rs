//! docs/events.md and docs/event.schema.json, made from the types; and that they, the types and the examples agree.
//!
//! A test fails when the files on disk are not what the types say. `IMGWARDEN_BLESS=1 cargo test -p imgwarden reference`
//! writes them anew.

use std::{fmt::Write as _, fs, path::Path};

use schemars::schema_for;
use serde::Deserialize as _;
use serde_json::Value;

use super::{Event, chain, fit};

mod examples;

/// The JSON Schema of a record. Optional fields are absent or have a value: null is never written.
fn schema() -> Value {
    let mut schema = schema_for!(Event).to_value();
    without_null(&mut schema);
    schema
}

fn without_null(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(types)) = fields.get_mut("type") {
                types.retain(|kind| kind != "null");
                if let [only] = types.as_slice() {
                    let only = only.clone();
                    fields.insert("type".into(), only);
                }
            }
            if let Some(Value::Array(choices)) = fields.get_mut("anyOf") {
                choices.retain(|choice| choice["type"] != "null");
                if let [Value::Object(only)] = choices.as_slice() {
                    let only = only.clone();
                    fields.remove("anyOf");
                    fields.extend(only);
                }
            }
            fields.values_mut().for_each(without_null);
        }
        Value::Array(entries) => entries.iter_mut().for_each(without_null),
        _ => {}
    }
}

/// docs/events.md.
fn markdown() -> String {
    let schema = schema();
    let mut text = String::from(
        "# Events\n\n\
         <!-- Made from the types by `IMGWARDEN_BLESS=1 cargo test -p imgwarden reference`; don't edit. -->\n\n\
         The journal has one JSON object a line, in `events.jsonl` and its predecessors `events.N.jsonl` (N grows; the\n\
         highest is the youngest). A line has at most 16 KiB. [event.schema.json](event.schema.json) is the same as a\n\
         JSON Schema.\n\n\
         - A field that is absent is not known; null is never written; an empty list is known to be empty.\n\
         - Sizes are in bytes, durations (`_ms`) in milliseconds, times RFC 3339 in UTC with nanoseconds.\n\
         - Lists carry at most 20 entries; `…_count` and `…_bytes` are of all. What else had to be cut is in `cut`.\n\
         - Readers must accept fields and types that they don't know.\n\
         - `prev` is the SHA-256 of the record before in RFC 8785 form: `imgwarden verify` checks every link. It shows\n  \
         what was changed, removed or put in before the last record that left the node, and no more.\n\
         - Credentials in arguments are masked as `*****`.\n\n\
         ## Every event\n\n",
    );
    fields(&mut text, &schema);
    text.push_str("\n## Types\n\n| type | carries |\n|---|---|\n");
    for event in examples::all() {
        let kind = event.body.kind();
        let (name, body) = body(&schema, kind);
        let keys: Vec<String> =
            body["properties"].as_object().into_iter().flatten().map(|(key, _)| format!("`{key}`")).collect();
        let anchor = kind.replace('.', "");
        let _ = writeln!(
            text,
            "| [{kind}](#{anchor}) | [{name}](#{}): {} |",
            name.to_lowercase(),
            keys.join(", ")
        );
    }
    for event in examples::all() {
        let _ = write!(text, "\n### {}\n\n```json\n", event.body.kind());
        text.push_str(&serde_json::to_string(&event).unwrap());
        text.push_str("\n```\n");
    }
    text.push_str("\n## Structures\n");
    for (name, definition) in schema["$defs"].as_object().unwrap() {
        let _ = write!(text, "\n### {name}\n\n{}\n\n", described(definition));
        if definition["properties"].is_object() {
            fields(&mut text, definition);
        } else if let Some(choices) = definition["oneOf"].as_array() {
            text.push_str("| value | meaning |\n|---|---|\n");
            for choice in choices {
                let values =
                    choice["enum"].as_array().cloned().unwrap_or_else(|| vec![choice["const"].clone()]);
                for value in values {
                    let _ = writeln!(text, "| `{}` | {} |", value.as_str().unwrap(), described(choice));
                }
            }
        } else if let Some(values) = definition["enum"].as_array() {
            let values: Vec<String> =
                values.iter().map(|value| format!("`{}`", value.as_str().unwrap())).collect();
            let _ = writeln!(text, "{}", values.join(", "));
        }
    }
    text
}

/// The definition of what a type carries, and its name.
fn body(schema: &Value, kind: &str) -> (String, Value) {
    let variant = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .find(|variant| variant["properties"]["type"]["const"] == kind)
        .unwrap_or_else(|| panic!("{kind} is not in the schema"));
    let name = variant["$ref"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    let definition = schema["$defs"][&name].clone();
    (name, definition)
}

fn described(definition: &Value) -> String {
    definition["description"].as_str().unwrap_or("").replace('\n', " ").replace('|', "\\|")
}

fn fields(text: &mut String, definition: &Value) {
    text.push_str("| field | form | always | meaning |\n|---|---|---|---|\n");
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    for (key, field) in definition["properties"].as_object().unwrap() {
        let always = if required.iter().any(|name| name == key) { "yes" } else { "" };
        let _ = writeln!(text, "| `{key}` | {} | {always} | {} |", form(field), described(field));
    }
}

fn form(field: &Value) -> String {
    if let Some(name) = field["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    match field["type"].as_str() {
        Some("array") => format!("list of {}", form(&field["items"])),
        Some("object") if field["additionalProperties"].is_object() => {
            format!("map to {}", form(&field["additionalProperties"]))
        }
        Some(kind) => kind.to_owned(),
        None => String::new(),
    }
}

#[test]
fn the_reference_is_what_the_types_say() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let schema = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    for (name, text) in [("events.md", markdown()), ("event.schema.json", schema)] {
        let path = docs.join(name);
        if std::env::var_os("IMGWARDEN_BLESS").is_some() {
            fs::create_dir_all(&docs).unwrap();
            fs::write(&path, &text).unwrap();
        }
        let written = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == text,
            "docs/{name} is not what the types say: IMGWARDEN_BLESS=1 cargo test -p imgwarden reference"
        );
    }
}

#[test]
fn every_type_has_an_example_that_is_valid_and_comes_back_as_it_was() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let mut kinds = Vec::new();
    for event in examples::all() {
        let line = serde_json::to_string(&event).unwrap();
        assert!(
            line.len() <= 2 << 10,
            "{} has {} bytes, typical is at most 2 KiB",
            event.body.kind(),
            line.len()
        );
        let value: Value = serde_json::from_str(&line).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{line}: {errors:?}");
        assert_eq!(Event::deserialize(&value).unwrap(), event);
        assert_eq!(fit::fit(value.clone()), value, "an example is complete: nothing is added, nothing cut");
        chain::hash(&value).unwrap();
        assert!(!line.contains("null"), "{line}");
        kinds.push(event.body.kind());
    }
    let listed: Vec<&str> = schema["oneOf"]
        .as_array()
        .unwrap()
        .iter()
        .map(|variant| variant["properties"]["type"]["const"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, listed);
}

#[test]
fn null_and_unknown_causes_are_not_valid() {
    let validator = jsonschema::validator_for(&schema()).unwrap();
    let event = examples::all().into_iter().find(|event| event.body.kind() == "image.deleted").unwrap();
    let mut value = serde_json::to_value(event).unwrap();
    assert!(validator.is_valid(&value));
    value["cause"]["kind"] = "gremlins".into();
    assert!(!validator.is_valid(&value));
    value["cause"]["kind"] = "cli".into();
    value["burst"] = Value::Null;
    assert!(!validator.is_valid(&value));
}

#[test]
fn messages_are_sentences_that_name_who_and_what() {
    let messages: Vec<String> = examples::all().into_iter().map(|event| event.message).collect();
    let expected = [
        "imgwarden 0.1.0 started with tracepoint; not seen: io_uring",
        "imgwarden stopped: SIGTERM",
        "put in order after an unclean end: a lease of an unfinished restore was removed",
        "removals were lost in the ring (12)",
        "46 records seen, 0 lost, 3 images protected",
        "config applied; changed: protect, mode",
        "config refused, the old one stays: /etc/imgwarden/config.toml:3: unknown key \"backnd\": did you mean \"backend\"?",
        "crictl (root, login alice) deleted docker.io/rancher/mirrored-pause:3.6",
        "docker.io/rancher/mirrored-pause:3.6: lost 4 blobs and 1 snapshot (301.2 KB); restored from its archive in 412 ms",
        "crictl (root, login alice) deleted 40 images (3.2 GB), 1 of them protected, 1 restored",
        "crictl (root, login alice) damaged docker.io/rancher/mirrored-pause:3.6: lost 1 blob (3.2 KB)",
        "crictl (root, login alice) moved docker.io/library/app:latest from 000000000000 to 111111111111",
        "restored docker.io/rancher/mirrored-pause:3.6 from its archive, 301.2 KB read, usable 412 ms after the deletion",
        "could not restore docker.io/rancher/mirrored-pause:3.6: /images/airgap.tar: layer sha256:0000 has another hash; tried again by 2026-01-02T03:05:05Z",
        "restoring docker.io/rancher/mirrored-pause:3.6 waits until 2026-01-02T03:05:05Z: deleted 4 times in a minute",
        "crictl (root, login alice) took the pin off docker.io/rancher/mirrored-pause:3.6",
        "pinned docker.io/rancher/mirrored-pause:3.6 again",
        "the pin on docker.io/rancher/mirrored-pause:3.6 does nothing: containerd 1.6.20 does not report pins",
        "docker.io/rancher/mirrored-pause:3.6 is superseded, kept until 2026-01-02T03:05:05Z: docker.io/rancher/mirrored-pause:3.7",
        "crictl (root, login alice) released docker.io/rancher/mirrored-pause:3.6 until 2026-01-02T03:05:05Z: roll-out of 3.7",
        "docker.io/rancher/mirrored-pause:3.6 is held by a lease (sandbox)",
        "docker.io/rancher/mirrored-pause:3.6 is no longer held by a lease: superseded",
        "crictl (root, login alice) removed the blob sha256:0000000000000000000000000000000000000000000000000000000000000000",
        "containerd's garbage collector removed 118 snapshots",
    ];
    assert_eq!(messages, expected);
}

/// Every text of a record, as long and as nasty as it comes.
fn swollen(value: &mut Value, text: &str) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields.iter_mut() {
                if !["schema", "id", "stream", "type", "prev"].contains(&key.as_str()) {
                    swollen(field, text);
                }
            }
        }
        Value::Array(entries) => {
            if let Some(first) = entries.first().cloned() {
                entries.resize(200, first);
            }
            entries.iter_mut().for_each(|entry| swollen(entry, text));
        }
        Value::String(old) if old.contains(' ') || old.contains('/') => text.clone_into(old),
        _ => {}
    }
}

#[test]
fn no_record_is_longer_than_its_limit_and_all_stay_events() {
    for text in ["x".repeat(5_000), "\u{1}".repeat(3_000), "\"映\\".repeat(2_000)] {
        for event in examples::all() {
            let mut value = serde_json::to_value(&event).unwrap();
            swollen(&mut value, &text);
            let fitted = fit::fit(value.clone());
            let kind = event.body.kind();
            assert_eq!(fit::fit(value), fitted, "the same record is cut the same way");
            let line = serde_json::to_string(&fitted).unwrap();
            assert!(line.len() <= fit::LINE, "{kind}: {}", line.len());
            let event = Event::deserialize(&fitted).unwrap_or_else(|error| panic!("{kind}: {error}"));
            assert!(!event.cut.is_empty(), "{kind}");
        }
    }
}
