//! Whatever dies, and whenever: containerd, the agent, both while an image is put back. Each ends in the right state.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{thread, time::Duration};

use imgwarden_tests::{
    agent::{of_type, summary},
    client::Kind,
    containerd::Version,
    image::{Archive, Spec},
    node::{KEPT, Node, PATIENCE, PLAIN},
    process::poll,
    runc::run_container,
};
use serde_json::Value;

/// A layer that takes a while to be read, in bytes.
const BIG: usize = 150_000_000;

/// Whole, held, tidy, runnable, and the journal unbroken.
fn expect_right(node: &mut Node) {
    let kept = node.kept.clone();
    let whole = poll(PATIENCE * 2, || {
        let files = kept.layers.iter().all(|layer| {
            node.containerd.blob(&layer.digest).metadata().is_ok_and(|found| found.len() == layer.bytes)
        });
        let known = node.containerd.cri().image_status(KEPT).is_some_and(|status| status.pinned);
        (files && known).then_some(())
    });
    assert!(whole.is_some(), "{KEPT} is not back; the agent said:\n{}", node.agent.said());
    node.expect_whole(&kept);
    node.expect_held(&kept);
    node.expect_tidy();
    node.expect_journal();
    let output = run_container(&node.containerd, KEPT, &["echo", "alive"]);
    assert_eq!(output.stdout.trim(), "alive");
}

/// Waits for an image to be back after something that nobody saw.
fn wait_for_restored(node: &mut Node) -> Value {
    node.agent.wait_for("the image to be restored", PATIENCE * 2, |events| {
        of_type(events, "image.restored").last().cloned()
    })
}

#[test]
fn containerd_is_killed_and_started_again() {
    let mut node = Node::start("crash-containerd", Version::V1_7);
    for round in 1..=2 {
        node.containerd.kill9();
        node.containerd.boot();
        node.remove_through_cri(Kind::Go, &node.kept.id);
        let stories = node.incidents("image.deleted", round);
        assert_eq!(stories[round - 1].last().unwrap()["repair"]["outcome"], "restored");
        expect_right(&mut node);
    }
}

#[test]
fn names_and_blobs_that_go_while_the_agent_waits_for_containerd_come_back() {
    let mut node = Node::start("crash-rm", Version::V1_7);
    node.containerd.kill9();
    let layers: Vec<String> = node.kept.layers.iter().map(|layer| layer.digest.clone()).collect();
    node.remove_blobs(&layers.iter().map(String::as_str).collect::<Vec<_>>());
    node.containerd.boot();
    let restored = wait_for_restored(&mut node);
    assert_eq!(restored["method"], "archive");
    let story = node.incident("image.damaged");
    assert_eq!(story.last().unwrap()["repair"]["outcome"], "restored");
    expect_right(&mut node);
}

#[test]
fn containerd_is_killed_during_a_restore() {
    let mut node = big("crash-both");
    let layer = node.kept.layers[1].digest.clone();
    for wait in [20, 300] {
        let before = of_type(&node.agent.events(), "image.restored").count();
        node.remove_blobs(&[&layer]);
        wait_for_ingest(&node);
        thread::sleep(Duration::from_millis(wait));
        node.containerd.kill9();
        node.containerd.boot();
        node.agent.wait_for("the image to be restored", PATIENCE * 2, |events| {
            (of_type(events, "image.restored").count() > before).then_some(())
        });
        expect_right(&mut node);
    }
}

#[test]
fn the_agent_is_killed_during_a_restore() {
    let mut node = big("crash-agent");
    let layer = node.kept.layers[1].digest.clone();
    for wait in [0, 60, 200, 500] {
        node.remove_blobs(&[&layer]);
        wait_for_ingest(&node);
        thread::sleep(Duration::from_millis(wait));
        node.agent.kill9();
        node.agent.boot();
        expect_right(&mut node);
    }
    assert!(of_type(&node.agent.events(), "image.restored").count() > 0);
}

#[test]
fn the_agent_is_killed_while_names_come_back() {
    let mut node = Node::start("crash-names", Version::V1_7);
    for wait in [0, 5, 20, 40, 60, 80] {
        node.remove_through_cri(Kind::Tonic, &node.kept.id);
        thread::sleep(Duration::from_millis(wait));
        node.agent.kill9();
        node.agent.boot();
        expect_right(&mut node);
    }
}

#[test]
fn what_went_just_before_the_agent_is_stopped_is_told_with_its_actor() {
    let mut node = Node::start("stop", Version::V1_7);
    node.containerd.ctr(&["images", "rm", PLAIN]);
    node.containerd.ctr(&["images", "rm", KEPT]);
    assert!(node.agent.stop().success());
    let events = node.agent.events();
    for (name, outcome) in [(PLAIN, "not_protected"), (KEPT, "deferred")] {
        let deleted = of_type(&events, "image.deleted").find(|event| event["image"]["names"][0] == name);
        let deleted = deleted.unwrap_or_else(|| panic!("{name} is not told: {}", summary(&events)));
        assert_eq!(deleted["actor"]["comm"], "ctr", "{deleted:#}");
        assert_eq!(deleted["cause"]["confidence"], "seen", "{deleted:#}");
        let closed =
            of_type(&events, "incident.closed").find(|event| event["incident"] == deleted["incident"]);
        assert_eq!(closed.unwrap()["repair"]["outcome"], outcome);
    }
    assert_eq!(events.last().unwrap()["type"], "agent.stopped");
    node.agent.boot();
    expect_right(&mut node);
}

/// What goes while the agent is down is found at its start and comes back.
fn found_at_the_start(test: &str, kind: &str, delete: impl Fn(&Node)) -> Vec<Value> {
    let mut node = Node::start(test, Version::V1_7);
    assert!(node.agent.stop().success());
    delete(&node);
    node.agent.boot();
    let story = node.incident(kind);
    assert!(story[0]["actor"].is_null(), "somebody is blamed: {:#}", story[0]);
    assert_eq!(story[0]["cause"]["kind"], "unknown");
    let closed = story.last().unwrap();
    assert_eq!(closed["repair"]["outcome"], "restored", "{closed:#}");
    println!("{test}: by {}", closed["repair"]["method"]);
    expect_right(&mut node);
    story
}

#[test]
fn a_removal_through_cri_is_found_at_the_start() {
    let story = found_at_the_start("down-cri", "image.deleted", |node| {
        node.remove_through_cri(Kind::Go, &node.kept.id);
    });
    assert_eq!(story[0]["orphaned"]["last_name"], true);
}

#[test]
fn a_removal_by_ctr_is_found_at_the_start() {
    found_at_the_start("down-ctr", "image.deleted", |node| {
        node.containerd.ctr(&["images", "rm", KEPT]);
    });
}

#[test]
fn removed_blobs_are_found_at_the_start() {
    let story = found_at_the_start("down-blobs", "image.damaged", |node| {
        let layers: Vec<&str> = node.kept.layers.iter().map(|layer| layer.digest.as_str()).collect();
        node.remove_blobs(&layers[1..]);
    });
    assert_eq!(story[0]["lost"]["blobs_count"], 2);
    assert!(story[0]["cause"]["evidence"][0].as_str().unwrap().starts_with("found at the start"));
}

#[test]
fn removed_metadata_is_found_at_the_start() {
    let story = found_at_the_start("down-content", "image.damaged", |node| {
        node.containerd.ctr(&["content", "rm", &node.kept.layers[2].digest]);
    });
    assert_eq!(story.last().unwrap()["repair"]["method"], "shadow");
}

#[test]
fn everything_that_went_is_found_at_the_start() {
    let story = found_at_the_start("down-all", "image.deleted", |node| {
        node.remove_through_cri(Kind::Go, &node.kept.id);
        node.remove_blobs(&node.kept.blobs());
    });
    assert_eq!(story.last().unwrap()["repair"]["method"], "archive");
}

#[test]
fn a_second_agent_with_the_same_state_is_refused() {
    let mut node = Node::start("second", Version::V1_7);
    let output = node.agent.cli("run", &[]);
    assert_eq!(output.code(), 1, "{output:?}");
    assert_eq!(output.stderr.lines().count(), 1, "{output:?}");
    assert!(output.stderr.contains(node.agent.state().to_str().unwrap()), "{output:?}");
    node.remove_through_cri(Kind::Go, &node.kept.id);
    let _ = node.incident("image.deleted");
    expect_right(&mut node);
}

/// A node whose protected image takes a while to be read.
fn big(test: &str) -> Node {
    let mut node = Node::start_from(test, Version::V1_7, "", |path| {
        Archive::write(path, &[Spec::new(KEPT).layers(&[BIG, 1000]).own_base()])
    });
    node.await_held();
    node
}

/// Until containerd has begun to take something in.
fn wait_for_ingest(node: &Node) {
    let ingests = node.containerd.root().join("io.containerd.content.v1.content/ingest");
    let begun = poll(PATIENCE, || ingests.read_dir().ok()?.next().map(drop));
    assert!(begun.is_some(), "nothing is restored; the agent said:\n{}", node.agent.said());
}
