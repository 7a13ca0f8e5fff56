//! The clients that load tests drive: each kind does what it says, on one connection.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test reports by panicking")]

use imgwarden_tests::{
    client::{Client, Kind},
    containerd::{Containerd, Version},
    image::{Archive, Spec},
};

/// Given a client with a long-lived connection, when it is told to remove, delete and retag, then containerd agrees.
fn does_what_it_is_told(kind: Kind, warm_up: bool) {
    let containerd = Containerd::start("clients", Version::Debian);
    let names = ["registry.test/one:1", "registry.test/two:1"];
    let archive = Archive::write(
        &containerd.scratch.dir.join("images.tar"),
        &names.map(|name| Spec::new(name).own_base()),
    );
    containerd.import(&archive);
    let [one, two] = archive.images.as_slice() else { panic!("two images were made") };
    let before = containerd.snapshot_of_state().without_times();

    let mut client = Client::start(kind, &containerd, warm_up);
    client.ask(&format!("status {}", one.id)).unwrap();
    for _ in 0..5 {
        client.ask(&format!("delete-create {}", one.name)).unwrap();
    }
    before.expect_equal(&containerd.snapshot_of_state().without_times(), "after retags");
    client.ask(&format!("delete {}", one.name)).unwrap();
    client.ask(&format!("remove-cri {}", two.id)).unwrap();
    let images = &containerd.snapshot_of_state().namespaces["k8s.io"].images;
    assert!(!images.contains_key(&one.name));
    assert!(images.contains_key(&one.id));
    assert!(two.names().iter().all(|name| !images.contains_key(name)));

    assert!(client.ask(&format!("delete {}", one.name)).unwrap_err().to_lowercase().contains("not"));
    client.ask("pull registry.invalid/absent:1 user password").unwrap_err();
    client.ask("dance").unwrap_err();
    client.close();
}

#[test]
fn go_client_does_what_it_is_told() {
    does_what_it_is_told(Kind::Go, false);
}

#[test]
fn warmed_up_go_client_does_what_it_is_told() {
    does_what_it_is_told(Kind::Go, true);
}

#[test]
fn tonic_client_does_what_it_is_told() {
    does_what_it_is_told(Kind::Tonic, true);
}
