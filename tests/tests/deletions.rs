//! Deleted in every common way: each deletion named with its actor, the protected image back and runnable.

use std::process::Command;

use imgwarden_tests::{
    containerd::Version,
    golden::expect_golden,
    node::{KEPT, Node, PLAIN},
    runc::run_container,
};

/// The protected image is whole and runs; the incident's events are as in the golden file.
fn expect_restored(node: &mut Node, kind: &str, golden: &str) {
    let events = node.incident(kind);
    node.expect_whole(&node.kept.clone());
    let output = run_container(&node.containerd, KEPT, &["echo", "alive"]);
    assert_eq!(output.stdout.trim(), "alive");
    let mut normaliser = node.normaliser();
    expect_golden(golden, &mut normaliser, &events);
}

#[test]
fn a_removal_by_image_id_through_cri_is_undone() {
    let mut node = Node::start("cri-id", Version::V1_7);
    let id = node.kept.id.clone();
    node.containerd.cri().remove_image(&id);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-id");
}

#[test]
fn a_removal_by_image_id_through_an_old_cri_is_undone() {
    let mut node = Node::start("cri-old", Version::Debian);
    let id = node.kept.id.clone();
    node.containerd.cri().remove_image(&id);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-id-1.6");
}

#[test]
fn a_removal_by_name_through_cri_is_undone() {
    let mut node = Node::start("cri-name", Version::V1_7);
    node.containerd.cri().remove_image(KEPT);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-name");
}

#[test]
fn one_name_that_ctr_removes_comes_back() {
    let mut node = Node::start("ctr-rm", Version::V1_7);
    node.containerd.ctr(&["images", "rm", KEPT]);
    expect_restored(&mut node, "image.deleted", "ctr-images-rm");
}

#[test]
fn all_names_that_ctr_removes_come_back() {
    let mut node = Node::start("ctr-rm-all", Version::V1_7);
    let [name, by_digest, id] = node.kept.names();
    node.containerd.ctr(&["images", "rm", "--sync", &name, &by_digest, &id]);
    expect_restored(&mut node, "image.deleted", "ctr-images-rm-sync-all");
}

#[test]
fn blob_files_that_a_shell_removes_come_back_from_the_tarball() {
    let mut node = Node::start("rm-blobs", Version::V1_7);
    let files: Vec<String> = node
        .kept
        .layers
        .iter()
        .map(|layer| node.containerd.blob(&layer.digest).to_string_lossy().into_owned())
        .collect();
    let status = Command::new("sh").arg("-c").arg(format!("rm -f {}; :", files.join(" "))).status().unwrap();
    assert!(status.success());
    expect_restored(&mut node, "image.damaged", "shell-rm-blobs");
}

#[test]
fn an_unprotected_image_is_explained_and_stays_gone() {
    let mut node = Node::start("plain", Version::V1_7);
    let id = node.plain.id.clone();
    node.containerd.cri().remove_image(&id);
    let events = node.incident("image.deleted");
    assert!(node.containerd.cri().image_status(PLAIN).is_none());
    for digest in node.plain.blobs() {
        assert!(!node.containerd.blob(digest).exists(), "{digest} is still there");
    }
    let mut normaliser = node.normaliser();
    expect_golden("unprotected", &mut normaliser, &events);
}
