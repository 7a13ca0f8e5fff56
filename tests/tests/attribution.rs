//! Who deleted what, when many do at once: nobody is blamed for what another did.

#![expect(clippy::expect_used, clippy::panic, reason = "a test reports by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use imgwarden_tests::{
    agent::{Agent, of_type},
    client::{Client, Kind},
    containerd::{Containerd, Version},
    image::{Archive, Image, Spec},
    process::poll,
};
use serde_json::Value;

/// How long all of it may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Many tiny images, imported.
fn images(containerd: &Containerd, count: usize) -> Vec<Image> {
    let specs: Vec<Spec> =
        (0..count).map(|index| Spec::new(&format!("registry.test/many-{index}:1"))).collect();
    let archive = Archive::write(&containerd.scratch.dir.join("many.tar"), &specs);
    let _ = containerd.ctr(&["images", "import", &archive.path.to_string_lossy()]);
    let mut cri = containerd.cri();
    for image in &archive.images {
        cri.wait_for(&image.id);
    }
    archive.images
}

/// The event that tells an image's deletion, by the name that went.
fn deletions(events: &[Value]) -> BTreeMap<String, Vec<&Value>> {
    let mut by_name: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for event in of_type(events, "image.deleted") {
        let names = event["orphaned"]["names"].as_array().expect("a deletion has names");
        let name = names.iter().filter_map(Value::as_str).find(|name| name.starts_with("registry.test/"));
        by_name.entry(name.expect("an image has a tag").to_owned()).or_default().push(event);
    }
    by_name
}

fn pid(event: &Value) -> Option<u32> {
    event["actor"]["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())
}

/// One client's work: its share of the images, each deleted in another way.
fn work(mut client: Client, share: Vec<Image>) -> (u32, Vec<String>, Client) {
    let mut deleted = Vec::new();
    for (index, image) in share.iter().enumerate() {
        let command = match index % 3 {
            0 => format!("remove-cri {}", image.id),
            1 => format!("remove-cri {}", image.name),
            _ => format!("delete {}", image.name),
        };
        client.ask(&command).unwrap_or_else(|error| panic!("{command}: {error}"));
        deleted.push(image.name.clone());
    }
    (client.pid(), deleted, client)
}

#[test]
fn eight_clients_at_once_are_told_apart_and_decoys_are_not_blamed() {
    let containerd = Containerd::start("attribution", Version::V1_7);
    let images = images(&containerd, 200);
    let kind = |index: usize| if index.is_multiple_of(2) { Kind::Go } else { Kind::Tonic };
    // Older than the agent, with every method that matters used before: named by index alone from then on.
    let old: Vec<Client> = (0..4).map(|index| Client::start(kind(index), &containerd, true)).collect();
    let mut agent = Agent::start("", &containerd);
    let new: Vec<Client> = (0..4).map(|index| Client::start(kind(index), &containerd, false)).collect();
    let mut decoy = Client::start(Kind::Go, &containerd, false);
    let decoy_pid = decoy.pid();

    // Files elsewhere, some with the names of real blobs.
    let elsewhere = containerd.scratch.dir.join("elsewhere");
    fs::create_dir_all(&elsewhere).unwrap();
    let mut files: Vec<String> = (0..100).map(|index| format!("{index:064x}")).collect();
    files.extend(images.iter().map(|image| image.manifest.trim_start_matches("sha256:").to_owned()));
    for file in &files {
        fs::write(elsewhere.join(file), b"decoy").unwrap();
    }
    let script = format!(
        "for f in {0}/*; do rm -f \"$f\"; done; mkdir -p {0}/snapshots/7 && rmdir {0}/snapshots/7",
        elsewhere.display()
    );

    let done = AtomicBool::new(false);
    let old_pids: BTreeSet<u32> = old.iter().map(Client::pid).collect();
    let mut shell = Command::new("sh").arg("-c").arg(script).stdout(Stdio::null()).spawn().unwrap();
    let told: Vec<(u32, Vec<String>)> = thread::scope(|scope| {
        let decoys = scope.spawn(|| {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                decoy.ask(&format!("remove-cri registry.test/absent-{asked}:1")).unwrap();
                asked += 1;
            }
            asked
        });
        let workers: Vec<_> = old
            .into_iter()
            .chain(new)
            .enumerate()
            .map(|(index, client)| {
                let share: Vec<Image> = images.iter().skip(index).step_by(8).cloned().collect();
                scope.spawn(move || work(client, share))
            })
            .collect();
        let worked: Vec<_> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        assert!(decoys.join().unwrap() > 0);
        // They end only now: the end of a client must not be what gives it away.
        worked
            .into_iter()
            .map(|(pid, deleted, client)| {
                client.close();
                (pid, deleted)
            })
            .collect()
    });
    assert!(shell.wait().unwrap().success());

    let events = agent.wait_for("200 deletions", PATIENCE, |events| {
        (deletions(events).len() == images.len()).then(|| events.to_vec())
    });
    let by_name = deletions(&events);
    let mut shares = BTreeMap::from([("old", (0_u32, 0_u32, 0_u32)), ("new", (0, 0, 0))]);
    for (owner, names) in &told {
        for name in names {
            let told = &by_name[name];
            assert_eq!(told.len(), 1, "{name} is told {} times", told.len());
            let event = told[0];
            let (seen, inferred, nobody) =
                shares.get_mut(if old_pids.contains(owner) { "old" } else { "new" }).unwrap();
            match pid(event) {
                Some(actor) => assert_eq!(actor, *owner, "{name} was deleted by {owner}: {event:#}"),
                None => {
                    let candidates = event["candidates"].as_array().cloned().unwrap_or_default();
                    let right =
                        candidates.iter().any(|actor| actor["pid"].as_u64() == Some(u64::from(*owner)));
                    assert!(right, "{name} was deleted by {owner}: {event:#}");
                }
            }
            match event["cause"]["confidence"].as_str() {
                Some("seen") => *seen += 1,
                Some("inferred") => *inferred += 1,
                _ => *nobody += 1,
            }
        }
    }
    for (kind, (seen, inferred, nobody)) in &shares {
        println!("{kind} connections: {seen} seen, {inferred} inferred, {nobody} unknown");
    }
    let (seen, inferred, nobody) = shares["new"];
    assert!(seen * 100 >= 99 * (seen + inferred + nobody), "{shares:?}");

    for event in &events {
        assert_ne!(pid(event), Some(decoy_pid), "the decoy is blamed: {event:#}");
        assert_ne!(event["actor"]["comm"], "rm", "the shell is blamed: {event:#}");
        assert_ne!(event["type"], "image.damaged", "{event:#}");
        assert_ne!(event["type"], "agent.gap", "{event:#}");
    }
    assert!(agent.stop().success());
}

#[test]
fn a_deletion_at_the_first_connect_after_each_restart_is_attributed() {
    const RESTARTS: usize = 50;
    let mut containerd = Containerd::start("restarts", Version::Debian);
    let images = images(&containerd, RESTARTS);
    let mut agent = Agent::start("", &containerd);
    let mut owners = BTreeMap::new();
    for image in &images {
        containerd.kill9();
        // Tries until it is let in: its call is the first thing that the new containerd hears from anybody.
        let deleting = format!(
            "until ctr --address {} --namespace k8s.io images rm {} >/dev/null 2>&1; do :; done",
            containerd.address().display(),
            image.name
        );
        let mut shell = Command::new("sh").arg("-c").arg(deleting).spawn().unwrap();
        containerd.boot();
        let ended = poll(PATIENCE, || shell.try_wait().unwrap());
        assert!(ended.is_some_and(|status| status.success()), "{} was not deleted", image.name);
        owners.insert(image.name.clone(), shell.id());
    }
    let events = agent.wait_for("all deletions", PATIENCE, |events| {
        (deletions(events).len() == RESTARTS).then(|| events.to_vec())
    });
    let by_name = deletions(&events);
    let mut attributed = 0;
    for (name, shell) in &owners {
        let event = by_name[name][0];
        let parent = event["actor"]["parents"][0]["pid"].as_u64();
        assert_eq!(event["actor"]["comm"], "ctr", "{event:#}");
        assert_eq!(parent, Some(u64::from(*shell)), "{event:#}");
        attributed += 1;
    }
    println!("{attributed} of {RESTARTS} attributed");
    assert_eq!(attributed, RESTARTS);
    assert!(agent.stop().success());
}
