//! While nothing is deleted, the agent says nothing, sends nothing to containerd, and uses no processor time.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{fs, thread, time::Duration};

use imgwarden_tests::{containerd::Version, node::Node, process::poll};

/// Processor time per second of idleness that is noise: a scheduler's tick is 10 ms.
const NOISE: Duration = Duration::from_millis(3);

/// What the agent has done so far that could be seen from outside.
#[derive(Debug, PartialEq, Eq)]
struct Done {
    /// Events and diagnostics.
    events: usize,
    said: String,
    /// Bytes that it handed to the kernel in writes and sends: nothing is asked of anybody without them.
    sent: u64,
}

fn done(node: &mut Node) -> Done {
    let io = fs::read_to_string(format!("/proc/{}/io", node.agent.pid())).unwrap();
    let sent = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    Done { events: node.agent.events().len(), said: node.agent.said(), sent: sent.parse().unwrap() }
}

/// The lines of containerd's debug log that somebody's request caused.
fn containerd_said(node: &Node) -> String {
    fs::read_to_string(node.containerd.scratch.log("containerd")).unwrap()
}

/// Starts a node, lets it come to rest, and watches it do nothing. `woken` is how many bytes the agent's threads may
/// write to wake each other: eight at a time.
fn expect_quiet(test: &str, config: &str, idle: Duration, woken: u64) {
    let mut node = Node::start_unheld(test, Version::V1_7, config);
    // What an image's directories are is asked again after five seconds, where it was not known at once: at rest is who
    // sent nothing for longer.
    let rest = poll(Duration::from_secs(60), || {
        let before = (done(&mut node), containerd_said(&node));
        thread::sleep(Duration::from_secs(6));
        ((done(&mut node), containerd_said(&node)) == before).then_some(())
    });
    assert!(rest.is_some(), "the agent does not come to rest: {}", node.agent.said());

    let (before, heard, used) = (done(&mut node), containerd_said(&node), node.agent.cpu());
    thread::sleep(idle);
    let (mut after, heard_after, used) = (done(&mut node), containerd_said(&node), node.agent.cpu() - used);
    let asked = heard_after.strip_prefix(&heard).unwrap();
    assert_eq!(asked, "", "containerd was asked something in {idle:?} of nothing");
    if after.sent.saturating_sub(before.sent) <= woken {
        after.sent = before.sent;
    }
    assert_eq!(after, before, "in {idle:?} of nothing");
    println!("{test}: {used:?} of processor time in {idle:?}");
    let noise = NOISE * u32::try_from(idle.as_secs()).unwrap();
    assert!(used <= noise, "{used:?} of processor time in {idle:?}");
}

#[test]
fn nothing_is_done_while_nothing_happens() {
    expect_quiet("quiet", "", Duration::from_secs(15), 0);
}

#[test]
fn an_observer_does_nothing_either() {
    expect_quiet("quiet-observe", "mode = \"observe\"", Duration::from_secs(15), 0);
}

#[test]
fn the_stdout_sink_costs_next_to_nothing() {
    expect_quiet("quiet-sink", "[[sink]]\ntype = \"stdout\"\n", Duration::from_secs(15), 0);
}

#[test]
#[ignore = "takes over a minute"]
fn nothing_is_done_for_longer_than_any_timer() {
    // A minute after the last import the archives are looked at, by another thread: a request to containerd that leaves
    // no line in its log would take more than these bytes twice over.
    expect_quiet("quiet-long", "", Duration::from_secs(75), 48);
}
