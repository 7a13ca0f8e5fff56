//! Whole images cross the socket: what is asked between their bytes is seen all the same.

use std::time::{Duration, Instant};

use imgwarden_tests::{
    agent::{Agent, of_type},
    client::{Client, Kind},
    containerd::{Containerd, Version},
    image::{Archive, Spec},
};

#[test]
fn a_hundred_deletions_on_the_connection_of_a_gigabyte_are_attributed() {
    const IMAGES: usize = 100;
    let containerd = Containerd::start("load", Version::V1_7);
    let specs: Vec<Spec> =
        (0..IMAGES).map(|index| Spec::new(&format!("registry.test/load-{index}:1"))).collect();
    let archive = Archive::write(&containerd.scratch.dir.join("load.tar"), &specs);
    let _ = containerd.import_packed(&archive);
    let mut agent = Agent::start("", &containerd);
    let mut client = Client::start(Kind::Tonic, &containerd, false);
    let pid = client.pid();
    let names: Vec<&str> = archive.images.iter().map(|image| image.name.as_str()).collect();
    let started = Instant::now();
    client.ask(&format!("delete-between 1024 {}", names.join(" "))).unwrap();
    println!("1 GiB and {IMAGES} deletions took {:?}", started.elapsed());

    let events = agent.wait_for("every deletion", Duration::from_secs(60), |events| {
        (of_type(events, "image.deleted").count() >= IMAGES).then(|| events.to_vec())
    });
    let attributed = of_type(&events, "image.deleted")
        .filter(|event| event["actor"]["pid"] == pid && event["cause"]["confidence"] == "seen")
        .count();
    let gaps: Vec<_> = of_type(&events, "agent.gap").collect();
    println!("{attributed} of {IMAGES} attributed, {} gaps", gaps.len());
    assert_eq!(gaps, Vec::<&serde_json::Value>::new());
    assert_eq!(attributed, IMAGES);
    client.close();
    assert!(agent.stop().success());
}
