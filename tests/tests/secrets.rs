//! Passwords and environments that pass over containerd's socket, and passwords in argv, are kept nowhere: not in what
//! is said, not in a file, not in memory that a core could hold.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use imgwarden_tests::{
    agent::of_type,
    client::{Client, Kind},
    containerd::Version,
    node::{KEPT, Node, PATIENCE, PLAIN},
    process::run,
};

/// Bytes that are read of a mapping at once.
const CHUNK: usize = 4 << 20;

/// A marker, put together when it is used: it is nowhere in the programs under test.
fn marker(what: &str) -> String {
    format!("{}-{what}-{}", "mArKeR", std::process::id())
}

fn holds(bytes: &[u8], marker: &str) -> bool {
    bytes.windows(marker.len()).any(|window| window == marker.as_bytes())
}

/// Every file below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let paths = entries.flatten().map(|entry| entry.path());
    paths.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// The mappings of a process that a core would hold and that hold the marker.
///
/// The kernel's ring buffers keep the last megabytes of what passed until they are written over. They are mappings of a
/// BPF map, which a core leaves out by their flags: `io` (VM_IO) or `dd` (VM_DONTDUMP). Only those are left out here.
fn in_memory(pid: u32, marker: &str) -> Vec<String> {
    let smaps = fs::read_to_string(format!("/proc/{pid}/smaps")).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = Vec::new();
    let mut head = "";
    let mut looked = 0_u64;
    for line in smaps.lines() {
        let Some(flags) = line.strip_prefix("VmFlags:") else {
            if line.split_once(' ').is_some_and(|(range, _)| range.contains('-') && !range.ends_with(':')) {
                head = line;
            }
            continue;
        };
        let flags: Vec<&str> = flags.split_whitespace().collect();
        if !flags.contains(&"rd") || flags.contains(&"dd") || flags.contains(&"io") {
            continue;
        }
        let range = head.split(' ').next().unwrap();
        let (start, end) = range.split_once('-').unwrap();
        let (start, end) = (u64::from_str_radix(start, 16).unwrap(), u64::from_str_radix(end, 16).unwrap());
        let overlap = marker.len() as u64;
        let mut at = start;
        while at < end {
            let mut chunk = vec![0; usize::try_from((end - at).min(CHUNK as u64)).unwrap()];
            // A page that is not there (a hole in a file's mapping) ends the reading of it.
            let Ok(read) = memory.read_at(&mut chunk, at) else { break };
            looked += read as u64;
            if holds(&chunk[..read], marker) {
                found.push(head.to_owned());
                break;
            }
            if read as u64 <= overlap {
                break;
            }
            at += read as u64 - if at + (read as u64) < end { overlap } else { 0 };
        }
    }
    assert!(looked > 1 << 20, "the memory of {pid} can be read");
    found
}

/// The marker is in nothing that the agent leaves.
fn expect_nowhere(node: &mut Node, markers: &[String]) {
    let pid = node.agent.pid();
    for round in ["at once", "after two seconds"] {
        for marker in markers {
            let found = in_memory(pid, marker);
            assert!(found.is_empty(), "{marker} is in memory {round}:\n{}", found.join("\n"));
        }
        thread::sleep(Duration::from_secs(2));
    }
    for marker in markers {
        assert!(!node.agent.said().contains(marker), "{marker} is in what the agent says");
        let mut read = 0;
        for path in [node.agent.state(), node.agent.journal()].iter().flat_map(|dir| files(dir)) {
            read += 1;
            assert!(!holds(&fs::read(&path).unwrap(), marker), "{marker} is in {}", path.display());
        }
        assert!(read >= 2, "the journal and the state are files");
    }
}

/// A node whose agent tells everything that it could tell.
fn start(test: &str) -> Node {
    let mut node = Node::start(test, Version::V1_7);
    assert!(node.agent.stop().success());
    node.agent.boot_with(&["--log", "trace"]);
    // Its connections are older than what follows.
    let _ = node.agent.cli("status", &[]).expect_success("status");
    node
}

/// A deletion after the secret, told with its actor: so the agent has read everything before it.
fn delete_and_await(node: &mut Node) {
    node.containerd.cri().remove_image(PLAIN);
    let id = node.plain.id.clone();
    let deleted = node.agent.wait_for("the deletion to be told", PATIENCE, |events| {
        of_type(events, "image.deleted").find(|event| event["image"]["id"] == id.as_str()).cloned()
    });
    assert_eq!(deleted["cause"]["confidence"], "seen", "{deleted:#}");
}

#[test]
fn a_memory_that_holds_a_marker_is_found_out() {
    // This test's own memory: else the others could not fail.
    let marker = marker("own");
    assert!(!in_memory(std::process::id(), &marker).is_empty());
}

#[test]
fn a_registry_password_is_kept_nowhere() {
    let mut node = start("password");
    let markers = [marker("go"), marker("tonic"), marker("old")];
    let mut go = Client::start(Kind::Go, &node.containerd, true);
    let mut tonic = Client::start(Kind::Tonic, &node.containerd, false);
    for (client, marker) in [(&mut go, &markers[0]), (&mut tonic, &markers[1])] {
        // There is no registry: it fails after the password went over the socket.
        let _ = client.ask(&format!("pull registry.test/secret:1 user {marker}")).unwrap_err();
    }
    let _ = node.containerd.cri().pull_image("registry.test/secret:1", "user", &markers[2]).unwrap_err();
    delete_and_await(&mut node);
    expect_nowhere(&mut node, &markers);
}

#[test]
fn a_containers_environment_is_kept_nowhere() {
    let mut node = start("environment");
    let marker = marker("environment");
    let secret = format!("SECRET={marker}");
    let _ = node.containerd.ctr(&["containers", "create", "--env", &secret, KEPT, "secretive", "true"]);
    delete_and_await(&mut node);
    expect_nowhere(&mut node, &[marker]);
}

#[test]
fn a_password_in_argv_is_masked() {
    let mut node = start("argv");
    let marker = marker("argv");
    let user = format!("robot:{marker}");
    let _ = node.containerd.try_ctr(&["images", "pull", "--user", &user, "registry.test/secret:2"]);
    // The parent of the deletion was told a password, and is named with its argv.
    let ctr = node.containerd.ctr_command();
    let mut shell = Command::new("sh");
    shell.args(["-c", "shift 2; \"$@\"; :", "sh", "--user", &user]);
    shell.arg(ctr.get_program()).args(ctr.get_args()).args(["images", "rm"]).args(node.plain.names());
    let _ = run(&mut shell, PATIENCE).expect_success("ctr images rm");
    let deleted = node.agent.wait_for_type("image.deleted", 1);
    let parent = &deleted["actor"]["parents"][0]["argv"];
    assert_eq!(parent[4], "--user", "{deleted:#}");
    assert_eq!(parent[5], "robot:*****", "{deleted:#}");
    expect_nowhere(&mut node, &[marker]);
}
