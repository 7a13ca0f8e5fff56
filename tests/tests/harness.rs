//! The harness itself: both containerds start, hold real images, run one, and leave nothing behind.

use std::{fs, path::Path};

use imgwarden_tests::{
    containerd::{Containerd, Version},
    image::{Archive, Compression, Layout, Spec, damage},
    process::processes_naming,
    runc::{run_container, try_run_container},
    scratch::mounts_below,
};

/// Given a containerd, when an image is imported, run and removed, then containerd agrees with the harness on every
/// digest, and nothing remains.
fn whole_life(version: Version) {
    let mut containerd = Containerd::start("harness", version);
    let archive = Archive::write(
        &containerd.scratch.dir.join("app.tar"),
        &[Spec::new("registry.test/app:1").layers(&[100, 5000]).own_base()],
    );
    let image = archive.image().clone();
    let empty = containerd.snapshot_of_state();
    containerd.import(&archive);

    let state = containerd.snapshot_of_state();
    for name in image.names() {
        let record = &state.namespaces["k8s.io"].images[&name];
        assert_eq!(record.target, image.manifest, "{name}");
    }
    for blob in image.blobs() {
        assert!(state.blob_files.contains_key(blob), "{blob}");
    }
    for chain_id in image.chain_ids() {
        assert!(state.namespaces["k8s.io"].snapshots.contains_key(&chain_id), "{chain_id}");
    }
    let mut cri = containerd.cri();
    assert_eq!(cri.image_status(&image.name).map(|status| status.id), Some(image.id.clone()));

    let said = run_container(&containerd, &image.name, &["/bin/echo", "alive"]);
    assert_eq!(said.stdout, "alive\n");

    containerd.restart();
    let mut cri = containerd.cri();
    assert_eq!(cri.list_images().len(), 1);
    cri.remove_image(&image.id);
    assert_eq!(cri.image_status(&image.name), None);
    let removed = containerd.snapshot_of_state();
    assert_eq!(removed.blob_files, empty.blob_files);
    assert!(!try_run_container(&containerd, &image.name, &["/bin/true"]).success());

    containerd.kill9();
    containerd.boot();
    let (dir, run) = (containerd.scratch.dir.clone(), containerd.scratch.run.clone());
    let pid = containerd.pid();
    drop(containerd);
    assert!(!Path::new("/proc").join(pid.to_string()).exists());
    for path in [&dir, &run] {
        assert!(!path.exists(), "{}", path.display());
        assert_eq!(mounts_below(path), Vec::<std::path::PathBuf>::new());
    }
    assert_eq!(processes_naming(&run.to_string_lossy()), Vec::<String>::new());
}

#[test]
fn debian_containerd_lives_and_leaves_nothing() {
    whole_life(Version::Debian);
}

#[test]
fn containerd_1_7_lives_and_leaves_nothing() {
    whole_life(Version::V1_7);
}

/// Given a container that runs for ever, when its containerd is dropped, then shim and container are gone too.
#[test]
fn a_running_container_ends_with_its_containerd() {
    let containerd = Containerd::start("harness-running", Version::Debian);
    let archive =
        Archive::write(&containerd.scratch.dir.join("app.tar"), &[Spec::new("registry.test/app:1")]);
    containerd.import(&archive);
    containerd.ctr(&["run", "--detach", "registry.test/app:1", "for-ever", "/bin/sleep", "123454321"]);
    let run = containerd.scratch.run.clone();
    assert_ne!(processes_naming(&run.to_string_lossy()).len(), 0);
    drop(containerd);
    assert_eq!(processes_naming(&run.to_string_lossy()), Vec::<String>::new());
    assert_eq!(processes_naming("123454321"), Vec::<String>::new());
    assert!(!run.exists());
    assert!(!Path::new("/run/containerd/runc/k8s.io/for-ever").exists());
}

/// Given a docker-archive, written here or by skopeo, when it is imported, then containerd makes up the manifest
/// whose digest the harness expects.
#[test]
fn docker_archives_have_the_digests_that_containerd_makes_up() {
    let containerd = Containerd::start("harness-docker", Version::Debian);
    let dir = &containerd.scratch.dir;
    let oci = Archive::write(&dir.join("oci.tar"), &[Spec::new("registry.test/by-skopeo:1")]);
    let by_skopeo = oci.to_docker_by_skopeo(&dir.join("skopeo.tar"));
    let by_hand = Archive::write_as(
        &dir.join("docker.tar"),
        &[Spec::new("registry.test/one:1"), Spec::new("registry.test/two:1").compressed(Compression::Gzip)],
        Layout::Docker,
        Compression::Plain,
    );
    for archive in [&by_skopeo, &by_hand] {
        containerd.import(archive);
    }
    let state = containerd.snapshot_of_state();
    for image in by_skopeo.images.iter().chain(&by_hand.images) {
        assert_eq!(state.namespaces["k8s.io"].images[&image.name].target, image.manifest, "{}", image.name);
        run_container(&containerd, &image.name, &["/bin/true"]);
    }
}

/// Given compressed layers, when imported, then a container runs from them; a damaged tarball is refused by containerd
/// or stored under other digests.
#[test]
fn compressed_layers_run_and_damage_is_real() {
    let containerd = Containerd::start("harness-layers", Version::V1_7);
    let dir = &containerd.scratch.dir;
    for compression in [Compression::Gzip, Compression::Zstd] {
        let name = format!("registry.test/{compression:?}:1").to_lowercase();
        let archive = Archive::write(&dir.join("layers.tar"), &[Spec::new(&name).compressed(compression)]);
        containerd.import(&archive);
        run_container(&containerd, &name, &["/bin/true"]);
        assert_ne!(archive.image().layers[0].digest, archive.image().layers[0].diff_id);
    }

    let cut = Archive::write(&dir.join("cut.tar"), &[Spec::new("registry.test/cut:1").layers(&[100_000])]);
    damage::truncate(&cut, 50_000);
    assert!(!containerd.try_ctr(&["images", "import", &cut.path.to_string_lossy()]).success());

    let wrong = Archive::write(&dir.join("wrong.tar"), &[Spec::new("registry.test/wrong:1")]);
    let before = fs::read(&wrong.path).unwrap();
    damage::corrupt_last_layer(&wrong);
    let after = fs::read(&wrong.path).unwrap();
    assert_eq!(before.iter().zip(&after).filter(|(one, other)| one != other).count(), 1);
    assert!(!containerd.try_ctr(&["images", "import", &wrong.path.to_string_lossy()]).success());

    damage::replace_by_text(&wrong.path);
    assert!(!containerd.try_ctr(&["images", "import", &wrong.path.to_string_lossy()]).success());
}
