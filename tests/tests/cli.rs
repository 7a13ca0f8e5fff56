//! What a person types, with a running agent and without one, as text and as JSON.

#![expect(clippy::panic, reason = "a test reports by panicking")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use imgwarden_tests::{
    agent::of_type,
    containerd::Version,
    image::{Archive, Spec},
    node::{KEPT, Node, PATIENCE, PLAIN},
    process::{Process, poll},
    runc::run_container,
};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A command that succeeds: what it prints as text and as JSON.
fn both(node: &Node, subcommand: &str, arguments: &[&str]) -> (String, String) {
    let said = |more: &[&str]| {
        let all = [arguments, more].concat();
        let output = node.agent.cli(subcommand, &all).expect_success(subcommand);
        assert_eq!(output.stderr, "", "{subcommand} {all:?}");
        output.stdout
    };
    (said(&[]), said(&["--json"]))
}

#[test]
fn a_running_agent_answers() {
    let node = Node::start("cli", Version::V1_7);
    let address = node.containerd.address();

    let (text, status) = both(&node, "status", &[]);
    let lines: Vec<&str> = text.lines().collect();
    let beginning = format!("imgwarden {} on test-node: protect, for ", env!("CARGO_PKG_VERSION"));
    assert!(lines[0].starts_with(&beginning), "{text}");
    let release = format!("at {}, namespace k8s.io: connected", address.display());
    assert!(lines[1].starts_with("containerd  1.7.24"), "{text}");
    assert!(lines[1].ends_with(&release), "{text}");
    assert_eq!(lines[2], "probe       tracepoint: 3 of 3 hooks attached");
    assert!(lines.contains(&"images      2: 1 protected, 1 held"), "{text}");
    assert!(lines.contains(&"since start 0 incidents, 0 restored, 0 gaps"), "{text}");
    let status = json(&status);
    assert_eq!(status["counts"]["protected"], 1);
    assert_eq!(status["node"], "test-node");
    assert_eq!(status["containerd"]["connected"], true);
    assert!(status["rss"].as_u64().is_some_and(|rss| rss > 1 << 20), "{status}");

    let (text, images) = both(&node, "images", &[]);
    let row = |name: &str| -> Vec<String> {
        let line =
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(2).map(str::to_owned).collect()
    };
    assert!(text.starts_with("IMAGE"), "{text}");
    assert_eq!(row(KEPT)[..5], ["protect[0]", "high", "yes", "yes", "yes"], "{text}");
    assert_eq!(row(PLAIN)[..2], ["-", "-"], "{text}");
    let images = json(&images);
    let kept = images.as_array().unwrap().iter().find(|image| image["rule"] == "protect[0]").unwrap();
    assert_eq!(kept["id"], node.kept.id.as_str());
    assert_eq!(kept["present"], true);
    let protected = node.agent.cli("images", &["--protected", "--json"]).expect_success("images");
    assert_eq!(json(&protected.stdout).as_array().unwrap().len(), 1);

    let (text, plan) = both(&node, "plan", &["--all"]);
    assert!(text.lines().any(|line| line.starts_with("keep") && line.contains(KEPT)), "{text}");
    assert!(text.lines().any(|line| line.starts_with("leave") && line.contains(PLAIN)), "{text}");
    assert_eq!(json(&plan)["images"].as_array().unwrap().len(), 2);
    assert_eq!(both(&node, "plan", &[]).0, "nothing would change (--all lists what stays)\n");

    let (text, shown) = both(&node, "config", &["show"]);
    let drop_in = node.agent.config().with_file_name("config.toml.d").join("50-test.toml");
    let line = text.lines().find(|line| line.starts_with("protect[0].priority")).unwrap();
    assert!(line.contains(&format!("{}:", drop_in.display())), "{line}");
    let shown = json(&shown);
    assert!(shown["values"].as_array().unwrap().iter().any(|value| value["key"] == "probe.ring"), "{shown}");
    assert_eq!(both(&node, "config", &["check"]).0, "the config is fine\n");

    let tarball = node.tarball.to_string_lossy().into_owned();
    let (text, listed) = both(&node, "archive", &["ls", &tarball]);
    assert!(text.starts_with(&tarball) && text.contains(KEPT), "{text}");
    assert!(listed.contains(&node.kept.id), "{listed}");
    let verified = node.agent.cli("archive", &["verify", &tarball]);
    assert_eq!(verified.code(), 0, "{} {}", verified.stdout, verified.stderr);
}

#[test]
fn a_plan_with_another_config_says_what_would_change_and_changes_nothing() {
    let node = Node::start("plan", Version::V1_7);
    let before = node.containerd.snapshot_of_state();
    let other = node.containerd.scratch.dir.join("other.toml");
    let text = fs::read_to_string(node.agent.config()).unwrap();
    fs::write(&other, format!("{text}\n[defaults]\narchives = false\n[[protect]]\nnames = [{PLAIN:?}]\npriority = \"critical\"\n")).unwrap();
    let mut command = std::process::Command::new(imgwarden_tests::agent::binary());
    command.arg("plan").arg("--config").arg(&other);
    let output = imgwarden_tests::process::run(&mut command, PATIENCE).expect_success("plan");
    let row = |action: &str, name: &str| {
        output.stdout.lines().any(|line| line.starts_with(action) && line.contains(name))
    };
    assert!(row("hold", PLAIN) && row("let go", KEPT), "{}", output.stdout);
    assert_eq!(node.containerd.snapshot_of_state(), before);
}

#[test]
fn an_image_is_asked_for_in_any_spelling_with_and_without_an_agent() {
    let mut node = Node::start("why", Version::V1_7);
    node.containerd.cri().remove_image(PLAIN);
    let _ = node.incident("image.deleted");
    let id = node.plain.id.clone();
    let hex = id.trim_start_matches("sha256:").to_owned();
    let spellings = [PLAIN, &id, &hex, &hex[..12], &hex[..6], &id[..7 + 8]];
    let told = |node: &Node, spelling: &str| {
        let (text, records) = both(node, "why", &[spelling]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with(&format!("{spelling}: ")), "{text}");
        assert!(text.contains(&format!(" deleted {PLAIN}")), "{text}");
        assert_eq!(*lines.last().unwrap(), "it is not protected; to see what would be: imgwarden plan");
        let records: Vec<Value> = records.lines().map(json).collect();
        assert!(of_type(&records, "image.deleted").count() == 1, "{records:#?}");
        records
    };
    let first = told(&node, PLAIN);
    for spelling in spellings {
        assert_eq!(told(&node, spelling), first, "{spelling}");
    }
    let unknown = node.agent.cli("why", &["registry.test/never:1"]);
    assert_eq!((unknown.code(), unknown.stdout.as_str()), (1, ""));
    let complaint = format!(
        "imgwarden: why: nothing is known about registry.test/never:1 in {}\n",
        node.agent.journal().display()
    );
    assert_eq!(unknown.stderr, complaint);

    assert!(node.agent.stop().success());
    for spelling in spellings {
        assert_eq!(told(&node, spelling), first, "{spelling}, with no agent");
    }
    let (text, records) = both(&node, "events", &[]);
    assert!(text.lines().last().unwrap().contains("agent.stopped"), "{text}");
    let records: Vec<Value> = records.lines().map(json).collect();
    assert_eq!(records, node.agent.events());
    let (_, of_image) = both(&node, "events", &["--image", PLAIN, "--type", "image.*"]);
    assert!(of_image.lines().map(json).all(|event| event["image"]["id"] == id.as_str()), "{of_image}");
    let status = node.agent.cli("status", &[]);
    assert_eq!((status.code(), status.stdout.as_str()), (1, ""));
    assert!(
        status.stderr.starts_with("imgwarden: status: no agent is running (nobody listens on "),
        "{}",
        status.stderr
    );
}

#[test]
fn events_are_followed_as_they_happen() {
    let node = Node::start("follow", Version::V1_7);
    let mut command = node.agent.command("events");
    command.args(["--follow", "--json", "--type", "image.deleted"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
    let mut follower = Process::start("events --follow", &mut command);
    let out = follower.child().stdout.take().unwrap();
    let (sender, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in BufReader::new(out).lines() {
            // The test may be over.
            let _ = sender.send(line.unwrap());
        }
    });
    node.containerd.cri().remove_image(PLAIN);
    let line = lines.recv_timeout(PATIENCE).expect("the deletion is followed");
    let event = json(&line);
    assert_eq!(event["image"]["id"], node.plain.id.as_str());
    node.containerd.cri().remove_image(KEPT);
    let event = json(&lines.recv_timeout(PATIENCE).expect("the next one too"));
    assert_eq!(event["image"]["id"], node.kept.id.as_str());
    drop(follower);
    reader.join().unwrap();
}

#[test]
fn an_image_that_was_never_here_is_restored_from_its_tarball_and_runs() {
    const LATER: &str = "registry.test/later:2";
    let mut node = Node::start("restore", Version::V1_7);
    let path = node.containerd.scratch.dir.join("later.tar");
    let later = Archive::write(&path, &[Spec::new(LATER).layers(&[9000]).own_base()]).image().clone();
    let from = path.to_string_lossy().into_owned();

    let refused = node.agent.cli("restore", &[LATER]);
    assert_eq!((refused.code(), refused.stdout.as_str()), (1, ""));
    assert_eq!(refused.stderr, format!("imgwarden: restore {LATER}: nothing on this node has {LATER}\n"));
    let refused = node.agent.cli("restore", &["UPPER CASE"]);
    assert_eq!(refused.code(), 1);
    assert_eq!(
        refused.stderr,
        "imgwarden: restore UPPER CASE: \"UPPER CASE\" is neither a name nor an image ID\n"
    );

    let output = node.agent.cli("restore", &[LATER, "--from", &from]).expect_success("restore");
    assert!(
        output.stdout.starts_with(&format!("{LATER}: restored from archive {from}, ")),
        "{}",
        output.stdout
    );
    assert!(output.stdout.ends_with(" ms, verified\n"), "{}", output.stdout);
    assert_eq!(node.containerd.cri().image_status(LATER).expect("it is back").id, later.id);
    assert_eq!(run_container(&node.containerd, LATER, &["echo", "alive"]).stdout.trim(), "alive");
    let event = node.agent.wait_for_type("image.restored", 1);
    assert_eq!(event["reason"], "asked by hand");
    assert_eq!(event["image"]["id"], later.id.as_str());

    let output = node.agent.cli("restore", &[KEPT, "--json"]).expect_success("restore of what is whole");
    let restored = json(&output.stdout);
    assert_eq!((restored.get("method"), &restored["verified"]), (None, &Value::from(true)));
    // What a person brought by hand changes nothing about what is guarded by itself.
    node.containerd.cri().remove_image(KEPT);
    node.expect_whole(&node.kept.clone());
    let blobs: Vec<_> = node.kept.blobs().iter().map(|digest| node.containerd.blob(digest)).collect();
    for blob in &blobs {
        fs::remove_file(blob).unwrap();
    }
    let back = poll(PATIENCE, || blobs.iter().all(|blob| blob.exists()).then_some(()));
    assert!(
        back.is_some(),
        "its own tarball is still used after a restore from another: {:#?}",
        node.agent.events()
    );
}

#[test]
fn an_observer_restores_nothing() {
    let node = Node::start_unheld("restore-observe", Version::V1_7, "mode = \"observe\"");
    let mut cri = node.containerd.cri();
    cri.remove_image(KEPT);
    let restored = node.agent.cli("restore", &[KEPT]);
    assert_eq!((restored.code(), restored.stdout.as_str()), (1, ""));
    assert_eq!(
        restored.stderr,
        format!("imgwarden: restore {KEPT}: mode is \"observe\": nothing is changed on this node\n")
    );
    assert!(cri.image_status(KEPT).is_none());
}

#[test]
fn a_journal_that_was_tampered_with_is_found_out() {
    let mut node = Node::start("verify", Version::V1_7);
    let (text, report) = both(&node, "verify", &[]);
    assert!(text.contains("the chain holds; the last record's hash: sha256:"), "{text}");
    assert_eq!(json(&report)["problems_count"], 0);
    assert!(node.agent.stop().success());
    let dir = node.agent.journal();
    let directory = dir.to_string_lossy().into_owned();
    assert!(both(&node, "verify", &[&directory]).0.contains("the chain holds"));

    let path = dir.join("events.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let seq = |line: &str| json(line)["seq"].as_u64().unwrap();
    // Changed.
    fs::write(&path, text.replacen("test-node", "toast-node", 1)).unwrap();
    let output = node.agent.cli("verify", &[]);
    let changed = format!(
        "events.jsonl:2: record {} was not written after the record before it: one was changed, removed or put in\n\
         the chain is broken: 1 problem\n",
        seq(lines[1])
    );
    assert_eq!((output.code(), output.stderr.as_str()), (3, ""));
    assert!(output.stdout.ends_with(&changed), "{}", output.stdout);
    // Removed.
    let without: Vec<&str> = [&lines[..2], &lines[3..]].concat();
    fs::write(&path, without.join("\n") + "\n").unwrap();
    let output = node.agent.cli("verify", &["--json"]);
    assert_eq!(output.code(), 3);
    let report = json(&output.stdout);
    assert_eq!(report["problems_count"], 2, "a link and a number: {report:#}");
    assert_eq!(report["problems"][1]["what"]["undeclared"]["first_seq"], seq(lines[2]));
    // Whole again.
    fs::write(&path, &text).unwrap();
    assert_eq!(node.agent.cli("verify", &[]).code(), 0);
}
