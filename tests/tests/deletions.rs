//! Deleted in every common way: each deletion named with its actor, the protected image back and runnable.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{fs, io::Write as _, path::Path, process::Command, time::Duration};

use imgwarden_tests::{
    agent::of_type,
    client::Kind,
    containerd::Version,
    golden::expect_golden,
    image::{Archive, Compression, Spec},
    node::{KEPT, Node, PATIENCE, PLAIN},
    process::{poll, run},
    runc::run_container,
};
use serde_json::Value;

/// How long a repair may take on a busy machine, in milliseconds.
const USABLE: f64 = 20_000.0;

/// The protected image is whole, held and runs; the incident's events are as in the golden file.
fn expect_restored(node: &mut Node, kind: &str, golden: &str) {
    let events = node.incident(kind);
    node.expect_whole(&node.kept.clone());
    node.expect_held(&node.kept.clone());
    node.expect_tidy();
    let output = run_container(&node.containerd, KEPT, &["echo", "alive"]);
    assert_eq!(output.stdout.trim(), "alive");
    let restored = of_type(&events, "image.restored").next().unwrap();
    let usable = restored["delete_to_usable_ms"].as_f64().unwrap();
    println!("{golden}: by {} in {usable:.1} ms", restored["method"]);
    assert!(usable > 0.0 && usable < USABLE, "{usable} ms");
    let mut normaliser = node.normaliser();
    expect_golden(golden, &mut normaliser, &events);
}

#[test]
fn a_removal_by_image_id_through_cri_is_undone() {
    let mut node = Node::start("cri-id", Version::V1_7);
    node.remove_through_cri(Kind::Go, &node.kept.id);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-id");
}

#[test]
fn a_removal_by_image_id_through_an_old_cri_is_undone() {
    let mut node = Node::start("cri-old", Version::Debian);
    node.remove_through_cri(Kind::Go, &node.kept.id);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-id-1.6");
}

#[test]
fn a_removal_by_name_through_cri_is_undone() {
    let mut node = Node::start("cri-name", Version::V1_7);
    node.remove_through_cri(Kind::Tonic, KEPT);
    expect_restored(&mut node, "image.deleted", "cri-remove-by-name");
}

#[test]
fn one_name_that_ctr_removes_comes_back() {
    let mut node = Node::start("ctr-rm", Version::V1_7);
    node.containerd.ctr(&["images", "rm", KEPT]);
    expect_restored(&mut node, "image.deleted", "ctr-images-rm");
}

#[test]
fn one_name_that_an_old_ctr_removes_comes_back() {
    let mut node = Node::start("ctr-rm-old", Version::Debian);
    node.containerd.ctr(&["images", "rm", KEPT]);
    expect_restored(&mut node, "image.deleted", "ctr-images-rm-1.6");
}

#[test]
fn all_names_that_ctr_removes_come_back() {
    let mut node = Node::start("ctr-rm-all", Version::V1_7);
    let [name, by_digest, id] = node.kept.names();
    node.containerd.ctr(&["images", "rm", "--sync", &name, &by_digest, &id]);
    expect_restored(&mut node, "image.deleted", "ctr-images-rm-sync-all");
}

#[test]
fn a_layer_that_ctr_removes_comes_back_from_the_shadow() {
    let mut node = Node::start("content-rm", Version::V1_7);
    let layer = node.kept.layers[1].digest.clone();
    node.containerd.ctr(&["content", "rm", &layer]);
    expect_restored(&mut node, "image.damaged", "ctr-content-rm");
}

#[test]
fn blob_files_that_a_shell_removes_come_back_from_the_tarball() {
    let mut node = Node::start("rm-blobs", Version::V1_7);
    remove_layers(&node);
    expect_restored(&mut node, "image.damaged", "shell-rm-blobs");
}

#[test]
fn a_content_directory_that_a_shell_removes_comes_back_from_the_tarball() {
    let mut node = Node::start("rm-dir", Version::V1_7);
    let dir = node.containerd.blob("").to_string_lossy().trim_end_matches('/').to_owned();
    let script = format!("rm -rf {dir}; mkdir {dir}");
    let _ = run(Command::new("sh").args(["-c", &script]), PATIENCE).expect_success("rm -rf");
    expect_protected(&mut node);
    // The new directory is watched as the old one was.
    node.remove_blobs(&[&node.kept.layers[1].digest]);
    let stories = node.incidents_of(&node.kept.id.clone(), "image.damaged", 2);
    node.expect_whole(&node.kept.clone());
    assert_eq!(stories[1][0]["actor"]["comm"], "rm", "{:?}", stories[1][0]);
    let parent = &stories[0][0]["actor"]["parents"][0];
    assert_eq!(parent["comm"], "sh", "{parent:#}");
    let mut normaliser = node.normaliser();
    expect_golden("shell-rm-directory", &mut normaliser, &stories[0]);
}

#[test]
fn a_docker_archive_compressed_by_gzip_gives_its_layers_back() {
    from_docker_archive("docker-gzip", Compression::Gzip);
}

#[test]
fn a_docker_archive_compressed_by_zstd_gives_its_layers_back() {
    from_docker_archive("docker-zstd", Compression::Zstd);
}

/// A tarball that skopeo wrote and a person compressed.
fn from_docker_archive(test: &str, compression: Compression) {
    let mut node = Node::start_from(test, Version::V1_7, "", |path| docker_archive(path, compression));
    node.await_held();
    remove_layers(&node);
    let events = node.incident("image.damaged");
    node.expect_whole(&node.kept.clone());
    node.expect_held(&node.kept.clone());
    let restored = of_type(&events, "image.restored").next().unwrap();
    assert_eq!(restored["method"], "archive");
    assert_eq!(restored["source"], node.tarball.to_string_lossy().as_ref());
    println!("{test}: in {} ms", restored["delete_to_usable_ms"]);
    let output = run_container(&node.containerd, KEPT, &["echo", "alive"]);
    assert_eq!(output.stdout.trim(), "alive");
}

/// Writes the compressed tarball to `path`; gives the plain one, since old versions of ctr import no other.
fn docker_archive(path: &Path, compression: Compression) -> Archive {
    let (oci, docker) = (path.with_extension("oci"), path.with_extension("docker"));
    let beside = |path: &Path| path.parent().unwrap().with_file_name(path.file_name().unwrap());
    let spec = Spec::new(KEPT).layers(&[4096, 70_000]).own_base();
    let plain = Archive::write(&beside(&oci), &[spec]).to_docker_by_skopeo(&beside(&docker));
    let bytes = fs::read(&plain.path).unwrap();
    let compressed = match compression {
        Compression::Plain => bytes,
        Compression::Gzip => {
            let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gzip.write_all(&bytes).unwrap();
            gzip.finish().unwrap()
        }
        Compression::Zstd => zstd::encode_all(&*bytes, 1).unwrap(),
    };
    fs::write(path, compressed).unwrap();
    plain
}

#[test]
fn a_pin_that_ctr_takes_away_is_set_again() {
    let mut node = Node::start("unpin", Version::V1_7);
    assert!(node.containerd.cri().image_status(KEPT).unwrap().pinned, "pinned before");
    node.containerd.ctr(&["images", "label", KEPT, "io.cri-containerd.pinned="]);
    let repinned = node.agent.wait_for_type("image.repinned", 1);
    let unpinned = node.agent.wait_for_type("image.unpinned", 1);
    let took = time(&repinned) - time(&unpinned);
    println!("unpin: pinned again after {took:?}");
    assert!(took <= Duration::from_secs(1), "{took:?}");
    let pinned = poll(PATIENCE, || node.containerd.cri().image_status(KEPT)?.pinned.then_some(()));
    assert!(pinned.is_some(), "CRI says that it is not pinned");
    let mut normaliser = node.normaliser();
    expect_golden("ctr-unpin", &mut normaliser, &[unpinned, repinned]);
}

#[test]
fn a_pin_that_an_old_containerd_ignores_is_said_to_be_ineffective() {
    let mut node = Node::start_unheld("pin-old", Version::Debian, "");
    let told = node.agent.wait_for_type("image.pin_ineffective", 1);
    node.expect_held(&node.kept.clone());
    let mut normaliser = node.normaliser();
    expect_golden("pin-ineffective", &mut normaliser, &[told]);
    node.remove_through_cri(Kind::Go, &node.kept.id);
    let events = node.incident("image.deleted");
    let restored = of_type(&events, "image.restored").next().unwrap();
    assert_eq!(restored["verified"]["pinned"], false);
    let claims = node.agent.events().iter().filter(|event| claims_pin(event)).count();
    assert_eq!(claims, 0, "somebody claims a pin");
    assert_eq!(of_type(&node.agent.events(), "image.pin_ineffective").count(), 1, "said once");
    let images = node.agent.cli("images", &["--json"]).expect_success("images");
    let listed: Value = serde_json::from_str(&images.stdout).unwrap();
    assert!(!listed.to_string().contains("\"pin\":\"yes\""), "{listed:#}");
}

fn claims_pin(event: &Value) -> bool {
    event["type"] == "image.repinned" || event["verified"]["pinned"] == true
}

#[test]
fn an_unprotected_image_is_explained_and_stays_gone() {
    let mut node = Node::start("plain", Version::V1_7);
    node.remove_through_cri(Kind::Go, &node.plain.id);
    let events = node.incident("image.deleted");
    assert!(node.containerd.cri().image_status(PLAIN).is_none());
    for digest in node.plain.blobs() {
        assert!(!node.containerd.blob(digest).exists(), "{digest} is still there");
    }
    let mut normaliser = node.normaliser();
    expect_golden("unprotected", &mut normaliser, &events);
}

/// Waits for the protected image's first damage to be over, and looks at the image.
fn expect_protected(node: &mut Node) {
    let _ = node.incidents_of(&node.kept.id.clone(), "image.damaged", 1);
    node.expect_whole(&node.kept.clone());
    node.expect_held(&node.kept.clone());
    node.expect_tidy();
    let output = run_container(&node.containerd, KEPT, &["echo", "alive"]);
    assert_eq!(output.stdout.trim(), "alive");
}

fn remove_layers(node: &Node) {
    let files: Vec<String> = node
        .kept
        .layers
        .iter()
        .map(|layer| node.containerd.blob(&layer.digest).to_string_lossy().into_owned())
        .collect();
    let script = format!("rm -f {}; :", files.join(" "));
    let _ = run(Command::new("sh").args(["-c", &script]), PATIENCE).expect_success("rm");
}

fn time(event: &Value) -> Duration {
    let time: jiff::Timestamp = event["time"].as_str().unwrap().parse().unwrap();
    Duration::from_nanos(u64::try_from(time.as_nanosecond()).unwrap())
}
