//! Bad input: one clear line on stderr, the right exit code, and nothing else.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use imgwarden_tests::{
    agent::{Agent, binary, of_type},
    containerd::{Containerd, Version},
    image::{Archive, Spec},
    node::{KEPT, Node},
    process::{Output, poll, run},
    scratch::Scratch,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A config of a node without containerd, readable by everybody.
fn write_config(scratch: &Scratch, more: &str) -> PathBuf {
    let path = scratch.run.join("config.toml");
    let text = format!(
        "state_dir = {state:?}\nnode = \"test-node\"\n\
         [containerd]\naddress = {address:?}\nroot = {root:?}\nstate = {run:?}\n\
         [archives]\ndirs = []\n[control]\nsocket = {control:?}\n[http]\nlisten = \"\"\n\
         [journal]\ndir = {journal:?}\n{more}\n",
        state = scratch.dir.join("state"),
        address = scratch.run.join("containerd.sock"),
        root = scratch.dir.join("root"),
        run = scratch.run.join("containerd"),
        control = scratch.run.join("imgwarden.sock"),
        journal = scratch.dir.join("journal"),
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    path
}

fn imgwarden(arguments: &[&str], config: &Path) -> Output {
    run(Command::new(binary()).args(arguments).arg("--config").arg(config), PATIENCE)
}

/// Everything that a command says, and how it ends.
#[track_caller]
fn expect(output: &Output, code: i32, stdout: &str, stderr: &str) {
    assert_eq!((output.code(), output.stdout.as_str(), output.stderr.as_str()), (code, stdout, stderr));
}

#[test]
fn a_typo_in_the_config_is_named_with_its_line_and_what_was_meant() {
    let scratch = Scratch::new("typo");
    let config = write_config(&scratch, "[probe]\nbakend = \"auto\"");
    let line =
        fs::read_to_string(&config).unwrap().lines().position(|line| line.contains("bakend")).unwrap() + 1;
    let complaint = format!(
        "imgwarden: {}:{line}: unknown key \"bakend\" in [probe]; did you mean \"backend\"?\n",
        config.display()
    );
    for command in [
        &["run"][..],
        &["status"],
        &["images"],
        &["events"],
        &["why", "nginx"],
        &["verify"],
        &["config", "check"],
    ] {
        expect(&imgwarden(command, &config), 2, "", &complaint);
    }
    assert!(!scratch.dir.join("state").exists(), "a refused config changes nothing");
}

#[test]
fn a_value_that_can_not_work_is_named_with_its_line() {
    let scratch = Scratch::new("value");
    let config = write_config(&scratch, "[[protect]]\nnames = [\"nginx\"]\npriority = \"hihg\"");
    let output = imgwarden(&["run"], &config);
    let line =
        fs::read_to_string(&config).unwrap().lines().position(|line| line.contains("hihg")).unwrap() + 1;
    let beginning = format!("imgwarden: {}:{line}: protect[0].priority: ", config.display());
    assert_eq!(output.code(), 2);
    assert!(output.stderr.starts_with(&beginning), "{}", output.stderr);
    assert!(output.stderr.ends_with("did you mean \"high\"?\n"), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1);
}

#[test]
fn a_config_that_is_not_there_is_named() {
    let scratch = Scratch::new("absent");
    let config = scratch.dir.join("none.toml");
    let complaint =
        format!("imgwarden: {}: can't be read: No such file or directory (os error 2)\n", config.display());
    expect(&imgwarden(&["run"], &config), 2, "", &complaint);
    expect(&imgwarden(&["config", "show"], &config), 2, "", &complaint);
}

#[test]
fn a_log_level_that_is_none_is_refused() {
    let scratch = Scratch::new("level");
    let config = write_config(&scratch, "");
    let output = imgwarden(&["run", "--log", "imgwarden=loud"], &config);
    let beginning = "imgwarden: \"imgwarden=loud\" is no log filter: write a level like info, or imgwarden=debug,h2=warn: ";
    assert_eq!((output.code(), output.stdout.as_str()), (2, ""));
    assert!(output.stderr.starts_with(beginning), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    assert_eq!(output.stderr.matches("error parsing").count(), 1, "{}", output.stderr);
}

#[test]
fn a_backend_that_this_build_lacks_is_refused() {
    let scratch = Scratch::new("backend");
    let config = write_config(&scratch, "");
    expect(
        &imgwarden(&["run", "--backend", "trampoline"], &config),
        1,
        "",
        "imgwarden: run: loading the probes: the trampoline backend is not available: its programs are not part of \
         this build\n",
    );
}

#[test]
fn without_a_capability_the_agent_says_which() {
    let scratch = Scratch::new("capability");
    let config = write_config(&scratch, "");
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    for (limits, missing) in [
        (&nobody[..], "CAP_BPF"),
        (&["--bounding-set", "-all"], "CAP_BPF"),
        (&["--bounding-set", "-perfmon,-sys_admin"], "CAP_PERFMON"),
    ] {
        let mut command = Command::new("setpriv");
        command.args(limits).arg(binary()).arg("run").arg("--config").arg(&config);
        expect(
            &run(&mut command, PATIENCE),
            4,
            "",
            &format!("imgwarden: watching the kernel: not permitted: {missing} is missing\n"),
        );
    }
}

#[test]
fn a_journal_that_can_not_be_written_is_named() {
    let scratch = Scratch::new("journal");
    let config = write_config(&scratch, "");
    fs::write(scratch.dir.join("journal"), "a file").unwrap();
    let complaint = format!(
        "imgwarden: run: opening the journal: {}: File exists (os error 17)\n",
        scratch.dir.join("journal").display()
    );
    expect(&imgwarden(&["run"], &config), 1, "", &complaint);
}

#[test]
fn no_agent_and_no_journal_are_said() {
    let scratch = Scratch::new("none");
    let config = write_config(&scratch, "");
    let nobody = |command: &str| {
        format!(
            "imgwarden: {command}: no agent is running (nobody listens on {}); start it with `imgwarden run` or \
             `systemctl start imgwarden`\n",
            scratch.run.join("imgwarden.sock").display()
        )
    };
    for command in ["status", "images", "plan"] {
        expect(&imgwarden(&[command], &config), 1, "", &nobody(command));
        expect(&imgwarden(&[command, "--json"], &config), 1, "", &nobody(command));
    }
    expect(&imgwarden(&["restore", "nginx"], &config), 1, "", &nobody("restore nginx"));
    let journal = scratch.dir.join("journal");
    let journal = journal.display();
    let elsewhere = "there is no journal here; --journal DIR names another place";
    expect(
        &imgwarden(&["why", "nginx"], &config),
        1,
        "",
        &format!("imgwarden: why: {journal}: {elsewhere}\n"),
    );
    expect(&imgwarden(&["events"], &config), 1, "", &format!("imgwarden: events: {journal}: {elsewhere}\n"));
    expect(
        &imgwarden(&["verify"], &config),
        1,
        "",
        &format!("imgwarden: verify: {journal}: there is no journal here\n"),
    );
}

#[test]
fn a_socket_that_is_not_there_is_waited_for_and_said_once() {
    let mut containerd = Containerd::start("waiting", Version::V1_7);
    containerd.stop();
    let _ = fs::remove_file(containerd.address());
    let mut agent = Agent::start("", &containerd);
    let started = agent.wait_for_type("agent.started", 1);
    assert_eq!(started.get("containerd"), None, "its version is not known yet");
    // Several attempts long.
    thread::sleep(Duration::from_secs(6));
    let said = agent.said();
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("containerd does not answer; waiting for it"), "{said}");
    let output = agent.cli("status", &[]);
    assert_eq!(output.code(), 0, "{}", output.stderr);
    let address = containerd.address();
    let line = format!(
        "containerd  of unknown version at {}, namespace k8s.io: does not answer\n",
        address.display()
    );
    assert!(output.stdout.contains(&line), "{}", output.stdout);
    containerd.boot();
    let connected = poll(PATIENCE, || {
        let status = agent.cli("status", &["--json"]).expect_success("status");
        let status: serde_json::Value = serde_json::from_str(&status.stdout).unwrap();
        (status["containerd"]["connected"] == true).then_some(())
    });
    assert!(connected.is_some(), "the agent finds containerd once it is there: {}", agent.said());
    let archive = Archive::write(
        &containerd.scratch.dir.join("kept.tar"),
        &[Spec::new(KEPT).layers(&[4096]).own_base()],
    );
    containerd.import(&archive);
    containerd.cri().remove_image(KEPT);
    let deleted = agent.wait_for_type("image.deleted", 1);
    assert_eq!(deleted["image"]["id"], archive.image().id.as_str());
    assert!(agent.stop().success());
    let events = agent.events();
    assert_eq!(of_type(&events, "agent.started").count(), 1);
}

#[test]
fn a_second_agent_with_the_same_state_is_refused() {
    let containerd = Containerd::start("second", Version::V1_7);
    let mut agent = Agent::start("", &containerd);
    let complaint = format!(
        "imgwarden: run: {}: another agent is running with this state_dir\n",
        agent.state().display()
    );
    expect(&agent.cli("run", &[]), 1, "", &complaint);
    let output = agent.cli("status", &[]);
    assert_eq!(output.code(), 0, "the first one still answers: {}", output.stderr);
    assert!(agent.stop().success());
}

#[test]
fn a_text_file_that_is_called_a_tarball_stops_nothing() {
    let mut node = Node::start("text", Version::V1_7);
    let text = node.tarball.with_file_name("notes.tar");
    fs::write(&text, "these are no images\n".repeat(100)).unwrap();
    let path = text.display().to_string();

    let output = node.agent.cli("archive", &["verify", &path]);
    assert_eq!(output.code(), 3, "{} {}", output.stdout, output.stderr);
    assert!(
        output.stdout.contains(&path) || output.stderr.contains(&path),
        "{} {}",
        output.stdout,
        output.stderr
    );

    let output = node.agent.cli("restore", &["registry.test/other:1", "--from", &path]);
    assert_eq!((output.code(), output.stdout.as_str()), (1, ""));
    let beginning = format!(
        "imgwarden: restore registry.test/other:1: nothing on this node has registry.test/other:1; unusable: {path}: "
    );
    assert!(output.stderr.starts_with(&beginning), "{}", output.stderr);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);

    // The agent starts with it, says what, and guards on.
    assert!(node.agent.stop().success());
    node.agent.boot();
    node.containerd.cri().remove_image(KEPT);
    node.expect_whole(&node.kept.clone());
    let said = node.agent.said();
    let warned: Vec<&str> = said.lines().filter(|line| line.contains("an archive can't be used")).collect();
    assert_eq!(warned.len(), 1, "{said}");
    assert!(warned.iter().all(|line| line.contains(&path) && line.contains("WARN")), "{said}");
}
