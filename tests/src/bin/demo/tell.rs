//! Tells an incident from imgwarden's own events: who, why, what was lost, what was done.
//!
//! Every word after a field's name is an event's; a field that an event lacks is said to be unknown.

use imgwarden::audit::message::bytes;
use imgwarden_tests::agent::of_type;
use serde_json::Value;

use crate::page::Page;

/// The events of one incident, in order.
pub(crate) fn incident(page: &Page, events: &[Value]) {
    let first = events.first().unwrap_or(&Value::Null);
    page.blank();
    page.field("event", &format!("{}: {}", text(&first["type"]), text(&first["message"])));
    who(page, first);
    cause(page, &first["cause"]);
    let Some(closed) = of_type(events, "incident.closed").next() else { return };
    lost(page, &first["orphaned"], &closed["lost"]);
    match (of_type(events, "image.restored").next(), of_type(events, "image.restore_failed").next()) {
        (Some(restored), _) => done(page, restored),
        (None, Some(failed)) => page.field("refused", text(&failed["reason"])),
        (None, None) => page.field("done", &format!("nothing: {}", outcome(closed))),
    }
}

/// How the incident ended, in the event's word.
fn outcome(closed: &Value) -> String {
    text(&closed["repair"]["outcome"]).replace('_', " ")
}

/// The process that acted, or those who may have.
pub(crate) fn who(page: &Page, event: &Value) {
    let candidates = event["candidates"].as_array().into_iter().flatten();
    let actors: Vec<&Value> = event.get("actor").into_iter().chain(candidates).collect();
    if actors.is_empty() {
        page.field("who", "unknown");
    }
    for actor in actors {
        let login = match (actor["login_user"].as_str(), actor["login_uid"].as_u64()) {
            (Some(user), _) => user.to_owned(),
            (None, Some(uid)) => format!("uid {uid}"),
            (None, None) => actor["login"].as_str().unwrap_or("unknown").to_owned(),
        };
        let user = actor["user"].as_str().unwrap_or("?");
        page.field(
            "who",
            &format!(
                "{}, pid {}, uid {} ({user}), login {login}",
                actor["exe"].as_str().unwrap_or("an unknown executable"),
                actor["pid"],
                actor["uid"]
            ),
        );
        page.field("  argv", &argv(actor));
        let parents: Vec<String> = actor["parents"].as_array().into_iter().flatten().map(parent).collect();
        page.field("  parents", &parents.join(" ← "));
    }
}

fn parent(parent: &Value) -> String {
    let program =
        parent["exe"].as_str().and_then(|exe| exe.rsplit('/').next()).filter(|name| !name.is_empty());
    format!("{} ({})", program.unwrap_or_else(|| parent["comm"].as_str().unwrap_or("?")), parent["pid"])
}

fn argv(actor: &Value) -> String {
    let arguments: Vec<&str> =
        actor["argv"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let cut = if actor["argv_cut"] == true { " …" } else { "" };
    if arguments.is_empty() { "unknown".to_owned() } else { arguments.join(" ") + cut }
}

fn cause(page: &Page, cause: &Value) {
    let tool = cause["tool"].as_str().map(|tool| format!(" ({tool})")).unwrap_or_default();
    page.field("why", &format!("{}{tool}, {}", text(&cause["kind"]), text(&cause["confidence"])));
    for evidence in cause["evidence"].as_array().into_iter().flatten() {
        page.field("", &format!("- {}", text(evidence)));
    }
}

/// What went, and what the names that went alone kept.
fn lost(page: &Page, orphaned: &Value, lost: &Value) {
    let names: Vec<&str> = lost["names"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    if !names.is_empty() {
        page.field("lost", &format!("{}: {}", count(names.len() as u64, "name"), names.join(", ")));
    }
    let label = if names.is_empty() { "lost" } else { "" };
    page.field(label, &content(lost).unwrap_or_else(|| "no blob, no snapshot".to_owned()));
    if let Some(orphaned) = content(orphaned).filter(|_| lost["blobs_count"] != orphaned["blobs_count"]) {
        page.field("at stake", &format!("{orphaned}, which nothing but these names referenced"));
    }
}

/// Blobs, snapshots and bytes, if there are any.
fn content(what: &Value) -> Option<String> {
    let counted = [("blobs_count", "blob"), ("snapshots_count", "snapshot")]
        .into_iter()
        .filter_map(|(key, word)| Some((what[key].as_u64().filter(|count| *count > 0)?, word)))
        .map(|(number, word)| count(number, word))
        .collect::<Vec<_>>();
    let size = what["bytes"].as_u64().or_else(|| what["blobs_bytes"].as_u64());
    let size = size.map(|size| format!(" ({})", bytes(size))).unwrap_or_default();
    (!counted.is_empty()).then(|| counted.join(", ") + &size)
}

fn done(page: &Page, restored: &Value) {
    page.field("done", text(&restored["message"]));
    if let Some(source) = restored["source"].as_str() {
        page.field("", &format!("read from {source}"));
    }
    let verified = &restored["verified"];
    let pinned = match verified["pinned"].as_bool() {
        Some(true) => "pinned",
        Some(false) => "not pinned",
        None => "its pin not told",
    };
    let of = |have: &str, want: &str, what: &str| match (verified[have].as_u64(), verified[want].as_u64()) {
        (Some(have), Some(want)) => format!("{have} of {want} {what}"),
        _ => format!("{what} not known"),
    };
    let blobs = of("blobs", "blobs_expected", "blobs");
    let snapshots = of("snapshots", "snapshots_expected", "snapshots");
    let id = if verified["image_status"] == true { "the right ID" } else { "not the right ID" };
    page.field("verified", &format!("{blobs}, {snapshots}; CRI gives {id}, {pinned}"));
}

/// `1 blob`, `3 blobs`.
fn count(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// An event's text.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}
