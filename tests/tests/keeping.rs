//! What the agent does not do: disturb others, believe a damaged tarball, hold what nobody wants, change anything when it
//! only observes.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test reports by panicking")]

use std::{fs, thread, time::Duration};

use imgwarden_tests::{
    agent::{of_type, summary},
    client::{Client, Kind},
    containerd::{Containerd, Version},
    image::{Archive, Image, Spec, damage},
    node::{KEPT, Node, PATIENCE, PLAIN},
    process::poll,
    state::State,
};
use serde_json::Value;

/// A tarball that is tried again soon.
const IMPATIENT: &str = "[repair]\nbackoff_max = \"2s\"\n";

/// Given a damaged tarball, when the image's files go, then it is refused with the reason and nothing is made of it; when
/// the tarball is whole again, the image comes back by itself.
fn refuses_then_restores(test: &str, hurt: impl FnOnce(&Archive), reason: &[&str]) {
    let mut node = Node::start_with(test, Version::V1_7, IMPATIENT);
    let good = fs::read(&node.tarball).unwrap();
    hurt(&Archive { path: node.tarball.clone(), images: vec![node.kept.clone()] });
    let kept = node.kept.clone();
    let layers: Vec<&str> = kept.layers.iter().map(|layer| layer.digest.as_str()).collect();
    node.remove_blobs(&layers);
    let failed = node.agent.wait_for_type("image.restore_failed", 1);
    let why = failed["reason"].as_str().unwrap();
    for part in reason {
        assert!(why.contains(part), "{part:?} is not in {why:?}");
    }
    assert!(why.contains(node.tarball.to_str().unwrap()), "the file is not in {why:?}");
    assert_eq!(failed["image"]["protected"], true);
    let closed = node.incident("image.damaged").pop().unwrap();
    assert_eq!(closed["repair"]["outcome"], "failed", "{closed:#}");
    let last = node.containerd.blob(layers.last().unwrap());
    assert!(!last.exists(), "a blob that was not verified is there");
    node.expect_tidy();

    fs::write(&node.tarball, good).unwrap();
    let restored = node.agent.wait_for_type("image.restored", 1);
    assert_eq!(restored["method"], "archive");
    node.expect_whole(&kept);
    node.expect_held(&kept);
    node.expect_tidy();
    node.expect_journal();
    let failures = of_type(&node.agent.events(), "image.restore_failed").count();
    assert_eq!(failures, 1, "the same failure is told once");
}

#[test]
fn a_corrupt_layer_is_refused_by_its_entry() {
    refuses_then_restores("corrupt", damage::corrupt_last_layer, &["blobs/sha256/"]);
}

#[test]
fn a_cut_tarball_is_refused() {
    refuses_then_restores("cut", |archive| damage::truncate(archive, 1_000_000), &[]);
}

#[test]
fn a_text_file_is_refused() {
    refuses_then_restores("text", |archive| damage::replace_by_text(&archive.path), &[]);
}

#[test]
fn no_record_is_made_of_content_that_was_not_verified() {
    let mut node = Node::start_with("no-record", Version::V1_7, IMPATIENT);
    damage::corrupt_last_layer(&Archive { path: node.tarball.clone(), images: vec![node.kept.clone()] });
    let kept = node.kept.clone();
    node.remove_blobs(&kept.blobs());
    let names = kept.names();
    node.containerd.ctr(&["images", "rm", "--sync", &names[0], &names[1], &names[2]]);
    node.agent.wait_for_type("image.restore_failed", 1);
    let deadline = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < deadline {
        let state = node.containerd.snapshot_of_state();
        let records = &state.namespaces["k8s.io"].images;
        assert!(names.iter().all(|name| !records.contains_key(name)), "{:?}", records.keys());
        thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn ctr_retags_a_protected_name_undisturbed() {
    let mut node = Node::start("retag-ctr", Version::Debian);
    let source = node.kept.names()[1].clone();
    for round in 0..500 {
        let output = node.containerd.try_ctr(&["images", "tag", "--force", &source, KEPT]);
        assert!(output.success(), "round {round}: {}", output.stderr);
    }
    expect_undisturbed(&mut node);
}

#[test]
fn a_client_deletes_and_creates_a_protected_name_undisturbed() {
    for (test, kind, version) in
        [("retag-go", Kind::Go, Version::Debian), ("retag-tonic", Kind::Tonic, Version::V1_7)]
    {
        let mut node = Node::start(test, version);
        let mut client = Client::start(kind, &node.containerd, true);
        for round in 0..500 {
            client
                .ask(&format!("delete-create {KEPT}"))
                .unwrap_or_else(|error| panic!("{kind:?}, round {round}: {error}"));
        }
        client.close();
        expect_undisturbed(&mut node);
    }
}

/// The image is whole and held again, and no deletion was told.
fn expect_undisturbed(node: &mut Node) {
    let kept = node.kept.clone();
    let pinned = poll(PATIENCE, || {
        let state = node.containerd.snapshot_of_state();
        let records = &state.namespaces["k8s.io"].images;
        let pinned = |name: &String| {
            records.get(name).is_some_and(|record| record.labels.contains_key("io.cri-containerd.pinned"))
        };
        kept.names().iter().all(pinned).then_some(())
    });
    assert!(pinned.is_some(), "not pinned again");
    node.expect_whole(&kept);
    node.expect_held(&kept);
    node.expect_tidy();
    let events = node.agent.events();
    let told = events.iter().position(|event| event["type"] == "image.deleted");
    if let Some(at) = told {
        panic!("a deletion was told: {:#}\n{}", events[at], summary(&events[at.saturating_sub(5)..]));
    }
    for kind in ["image.restored", "image.restore_failed", "image.damaged"] {
        assert_eq!(of_type(&events, kind).count(), 0, "{kind}");
    }
}

/// What the deletions do by themselves.
fn delete_some(containerd: &Containerd, kept: &Image, plain: &Image) {
    let mut client = Client::start(Kind::Go, containerd, false);
    client.ask(&format!("remove-cri {}", plain.id)).unwrap();
    client.ask(&format!("delete {KEPT}")).unwrap();
    client.close();
    let _ = containerd.try_ctr(&["content", "rm", &kept.layers[1].digest]);
}

/// Waits until these blobs are on disk and no others.
fn expect_files(containerd: &Containerd, blobs: &[&str]) {
    let mut expected: Vec<&str> = blobs.to_vec();
    expected.sort_unstable();
    let found = poll(PATIENCE, || {
        let state = containerd.snapshot_of_state();
        state.blob_files.keys().map(String::as_str).eq(expected.iter().copied()).then_some(())
    });
    assert!(found.is_some(), "{:?} are there", containerd.snapshot_of_state().blob_files.keys());
}

#[test]
fn an_observing_agent_changes_nothing() {
    let state = |observed: bool| -> (State, State) {
        let test = if observed { "observed" } else { "alone" };
        let config = "mode = \"observe\"\n";
        let mut node = Node::start_unheld(test, Version::V1_7, config);
        if !observed {
            assert!(node.agent.stop().success());
        }
        // The imports' own garbage goes first.
        let mut expected: Vec<&str> = node.kept.blobs();
        expected.extend(node.plain.blobs());
        expect_files(&node.containerd, &expected);
        let before = node.containerd.snapshot_of_state();
        delete_some(&node.containerd, &node.kept, &node.plain);
        if observed {
            let story = node.incidents_of(&node.kept.id.clone(), "image.deleted", 1).remove(0);
            assert!(story[0]["would"].is_object(), "{:#}", story[0]);
            assert_eq!(story.last().unwrap()["repair"]["outcome"], "observed");
        } else {
            assert!(node.agent.events().iter().all(|event| event["type"] != "image.deleted"));
        }
        let removed = &node.kept.layers[1].digest;
        let left: Vec<&str> = node.kept.blobs().into_iter().filter(|digest| digest != removed).collect();
        expect_files(&node.containerd, &left);
        assert_eq!(of_type(&node.agent.events(), "hold.taken").count(), 0);
        (before.without_times(), node.containerd.snapshot_of_state().without_times())
    };
    let (alone_before, alone_after) = state(false);
    let (observed_before, observed_after) = state(true);
    alone_before.expect_equal(&observed_before, "before the deletions");
    alone_after.expect_equal(&observed_after, "after the deletions");
}

#[test]
fn the_old_image_is_let_go_when_its_name_moves() {
    let mut node = Node::start_with("moved", Version::V1_7, "[defaults]\narchives = false\n");
    let old = node.kept.clone();
    let archive = Archive::write(
        &node.containerd.scratch.dir.join("new.tar"),
        &[Spec::new(KEPT).layers(&[5000]).own_base()],
    );
    node.containerd.import(&archive);
    let new = archive.image().clone();
    node.expect_held(&new);
    let dropped = node.agent.wait_for("all holds of the old image to be dropped", PATIENCE, |events| {
        let dropped: Vec<Value> = of_type(events, "hold.dropped").cloned().collect();
        (dropped.len() == 3).then_some(dropped)
    });
    for event in &dropped {
        assert_eq!(event["image"]["id"], old.id, "{event:#}");
        assert!(event["why"].as_str().unwrap().contains("superseded"), "{event:#}");
    }
    let lease = format!("imgwarden-{}", &old.manifest.trim_start_matches("sha256:")[..16]);
    let state = node.containerd.snapshot_of_state();
    let k8s = &state.namespaces["k8s.io"];
    assert!(!k8s.leases.contains_key(&lease), "{:?}", k8s.leases.keys());
    let shadows = &state.namespaces["imgwarden"].images;
    assert!(shadows.values().all(|record| record.target != old.manifest), "{shadows:?}");
    let names = old.names();
    assert!(k8s.images[&names[1]].labels.keys().all(|key| !key.contains("pinned")), "still pinned");
    // And what is old may go.
    node.containerd.ctr(&["images", "rm", "--sync", &names[1], &names[2]]);
    let story = node.incidents_of(&old.id, "image.deleted", 1).remove(0);
    assert_eq!(story.last().unwrap()["repair"]["outcome"], "not_protected");
    assert!(!node.containerd.blob(&old.layers[1].digest).exists(), "its bytes are not freed");
    node.expect_held(&new);
}

#[test]
fn a_name_that_no_rule_selects_stays_gone() {
    let mut node = Node::start("other-name", Version::V1_7);
    let other = "registry.test/other:1";
    node.containerd.ctr(&["images", "tag", KEPT, other]);
    node.agent.wait_for("the other name to be pinned too", PATIENCE, |_| {
        let state = node.containerd.snapshot_of_state();
        let labels = &state.namespaces["k8s.io"].images.get(other)?.labels;
        labels.contains_key("io.cri-containerd.pinned").then_some(())
    });
    node.containerd.ctr(&["images", "rm", other]);
    let story = node.incident("image.deleted");
    assert_eq!(story[0]["orphaned"]["last_name"], false);
    assert_eq!(story.last().unwrap()["repair"]["outcome"], "not_needed");
    assert!(of_type(&story, "image.restored").next().is_none());
    // Nor does a later repair bring it back.
    node.remove_through_cri(Kind::Go, &node.kept.id);
    let _ = node.incidents("image.deleted", 2);
    node.expect_whole(&node.kept.clone());
    let state = node.containerd.snapshot_of_state();
    let records = &state.namespaces["k8s.io"].images;
    assert!(!records.contains_key(other), "{:?}", records.keys());
    assert!(records.contains_key(PLAIN));
}
