//! What others do to mislead the agent, or past it: events of theirs that never happened, a directory that is moved away
//! with everything in it.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{fs, process::Command, thread, time::Duration};

use imgwarden_tests::{
    agent::{of_type, summary},
    client::Kind,
    containerd::Version,
    node::{KEPT, Node, PATIENCE},
    process::run,
};

/// A protobuf message with these fields, each a string, numbered from 1.
fn message(fields: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        bytes.push(u8::try_from(index + 1).unwrap() << 3 | 2);
        bytes.push(u8::try_from(field.len()).unwrap());
        bytes.extend_from_slice(field);
    }
    bytes
}

/// Publishes an event that says that something was deleted, as anyone with the socket can.
fn forge(node: &Node, topic: &str, kind: &str, what: &str) {
    let event = message(&[kind.as_bytes(), &message(&[what.as_bytes()])]);
    let file = node.containerd.scratch.dir.join("event");
    fs::write(&file, event).unwrap();
    let script = format!(
        "{} --address {} publish --topic {topic} --namespace k8s.io < {}",
        node.containerd.version().program("containerd").display(),
        node.containerd.address().display(),
        file.display()
    );
    let _ = run(Command::new("sh").args(["-c", &script]), PATIENCE).expect_success("containerd publish");
}

#[test]
fn events_that_never_happened_are_not_believed_and_blind_nobody() {
    let mut node = Node::start("forged", Version::V1_7);
    let before = node.containerd.snapshot_of_state();
    forge(&node, "/images/delete", "containerd.events.ImageDelete", KEPT);
    forge(&node, "/content/delete", "containerd.events.ContentDelete", &node.kept.layers[1].digest.clone());
    thread::sleep(Duration::from_secs(1));
    let events = node.agent.events();
    let lies = events.iter().filter(|event| {
        let kind = event["type"].as_str().unwrap();
        kind.starts_with("image.") || kind.starts_with("incident.")
    });
    assert_eq!(lies.count(), 0, "{}", summary(&events));
    node.containerd.snapshot_of_state().expect_equal(&before, "after forged events");

    // And a deletion that does happen is seen as ever.
    node.remove_through_cri(Kind::Go, KEPT);
    let story = node.incident("image.deleted");
    assert_eq!(story[0]["cause"]["confidence"], "seen", "{:#}", story[0]);
    assert_eq!(story.last().unwrap()["repair"]["outcome"], "restored");
    node.expect_whole(&node.kept.clone());
}

#[test]
fn a_content_directory_that_is_moved_away_is_noticed_and_filled_again() {
    let mut node = Node::start("mv-dir", Version::V1_7);
    let dir = node.containerd.blob("").to_string_lossy().trim_end_matches('/').to_owned();
    let script = format!("mv {dir} {dir}.away; mkdir {dir}");
    let _ = run(Command::new("sh").args(["-c", &script]), PATIENCE).expect_success("mv");
    let gap = node.agent.wait_for_type("agent.gap", 1);
    assert!(gap["why"].as_str().unwrap().starts_with("mv (pid "), "{gap:#}");
    let story = node.incident("image.damaged");
    assert_eq!(story.last().unwrap()["repair"]["outcome"], "restored", "{:#}", story.last().unwrap());
    node.expect_whole(&node.kept.clone());
    assert_eq!(of_type(&node.agent.events(), "image.restored").count(), 1);
    fs::remove_dir_all(format!("{dir}.away")).unwrap();
}
