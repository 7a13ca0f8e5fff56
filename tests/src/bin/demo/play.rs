//! What happens to the node, one chapter after the other.

use std::{ffi::OsStr, path::PathBuf, process::Command};

use imgwarden::audit::message::{bytes, duration};
use imgwarden_tests::{
    agent::of_type,
    client::{Client, Kind, program},
    containerd::Version,
    image::Image,
    node::{KEPT, Node, PATIENCE},
    process::{poll, run},
    runc::run_container,
};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    page::Page,
    stage::{Stage, version},
    tell::{self, text},
};

/// All chapters; gives the directories of what it started beside the stage.
pub(crate) fn all(page: &mut Page, stage: Stage) -> Vec<PathBuf> {
    let Stage { mut node, db, mail } = stage;
    let (web, job) = (node.kept.clone(), node.plain.clone());

    page.chapter("CRI RemoveImage by image ID, as the kubelet sends it");
    remove_through_cri(page, &node, &web.id);
    expect_back(page, &mut node, &web, "image.deleted", 1);

    page.chapter("CRI RemoveImage by name");
    remove_through_cri(page, &node, &db.name);
    expect_back(page, &mut node, &db, "image.deleted", 1);

    page.chapter("ctr images rm of one name");
    ctr(page, &node, &["images", "rm", &web.name]);
    expect_back(page, &mut node, &web, "image.deleted", 2);

    page.chapter("ctr images rm --sync of every name");
    let [name, by_digest, id] = web.names();
    ctr(page, &node, &["images", "rm", "--sync", &name, &by_digest, &id]);
    expect_back(page, &mut node, &web, "image.deleted", 3);

    page.chapter("rm of the blobs' files by a shell");
    remove_layers(page, &node, &db);
    expect_back(page, &mut node, &db, "image.damaged", 1);

    page.chapter("An image that nobody protects");
    ctr(page, &node, &["images", "rm", "--sync", &job.names()[0], &job.names()[1], &job.names()[2]]);
    expect_gone(page, &mut node, &job);

    page.chapter("A protected image whose tarball is damaged");
    remove_layers(page, &node, &mail);
    expect_refused(page, &mut node, &mail);

    let directories = unpin(page);

    page.chapter("A container from the image that was deleted most");
    let script = "echo \"pid $$ has\" /sys/class/net/* \"and\" /*";
    page.command(&format!("ctr run --rm {} demo sh -c '{script}'", web.name));
    let said = run_container(&node.containerd, &web.name, &["sh", "-c", script]);
    assert!(said.stdout.contains("/sys/class/net/lo"), "the container said {:?}", said.stdout);
    page.blank();
    page.output(&said.stdout);

    page.chapter("What a person asks afterwards");
    for (command, arguments) in [("why", &[web.name.as_str()][..]), ("status", &[]), ("images", &[])] {
        page.command(format!("imgwarden {command} {}", arguments.join(" ")).trim_end());
        let said = node.agent.cli(command, arguments);
        assert!(said.success(), "imgwarden {command}: {} {}", said.status, said.stderr);
        page.output(&said.stdout);
        page.blank();
    }
    epilogue(page, &mut node);
    directories
}

/// The journal's chain, memory, and the end.
fn epilogue(page: &Page, node: &mut Node) {
    node.expect_journal();
    let (rss, peak, cpu) = (node.agent.rss(), node.agent.peak_rss(), node.agent.cpu());
    page.field("memory", &format!("{} resident now, {} at most", bytes(rss), bytes(peak)));
    page.field("processor", &format!("{} since its start", duration(cpu.as_secs_f64() * 1000.0)));
    let gaps = node.agent.events().iter().filter(|event| event["type"] == "agent.gap").count();
    page.field("journal", &format!("{} events, each link of the chain checked", node.agent.events().len()));
    page.field("gaps", &gaps.to_string());
    let ended = node.agent.stop();
    assert!(ended.success(), "the agent ended with {ended}");
}

/// A process with a connection of its own calls RemoveImage and ends.
fn remove_through_cri(page: &Page, node: &Node, image: &str) {
    let client = program(Kind::Go);
    page.text("A Go program with its own connection, as the kubelet has one. It is told:");
    page.command(&format!("echo 'remove-cri {image}' | {} $RUN/containerd.sock", client.display()));
    let mut client = Client::start(Kind::Go, &node.containerd, false);
    client.ask(&format!("remove-cri {image}")).unwrap_or_else(|error| panic!("RemoveImage {image}: {error}"));
    client.close();
}

fn ctr(page: &Page, node: &Node, arguments: &[&str]) {
    page.command(&format!("ctr {}", arguments.join(" ")));
    let _ = node.containerd.ctr(arguments);
}

/// A shell removes the files of an image's layers.
fn remove_layers(page: &Page, node: &Node, image: &Image) {
    let files: Vec<String> = image
        .layers
        .iter()
        .map(|layer| node.containerd.blob(&layer.digest).to_string_lossy().into_owned())
        .collect();
    // With a command after it, the shell stays and is the parent that an event names.
    let script = format!("rm -f {}; sync", files.join(" "));
    page.command(&format!("sh -c '{script}'"));
    let _ = run(Command::new("sh").args([OsStr::new("-c"), script.as_ref()]), PATIENCE).expect_success("rm");
}

/// Tells the image's `count`-th incident of a kind, and looks whether the image is whole again.
fn expect_back(page: &Page, node: &mut Node, image: &Image, kind: &str, count: usize) {
    let events = nth(node, image, kind, count);
    tell::incident(page, &events);
    let restored = of_type(&events, "image.restored").next();
    let restored = restored.unwrap_or_else(|| panic!("{} was not restored", image.name));
    node.expect_whole(image);
    let usable = restored["delete_to_usable_ms"].as_f64();
    let usable = usable.unwrap_or_else(|| panic!("it is not said when {} was usable", image.name));
    let took =
        restored["took_ms"].as_f64().unwrap_or_else(|| panic!("a repair without its time: {restored}"));
    page.verdict(
        true,
        &format!("{} is whole again after {} (the repair: {})", image.name, duration(usable), duration(took)),
    );
}

fn expect_gone(page: &Page, node: &mut Node, image: &Image) {
    let events = nth(node, image, "image.deleted", 1);
    tell::incident(page, &events);
    let closed = of_type(&events, "incident.closed").next().expect("the incident is closed");
    assert_eq!(closed["repair"]["outcome"], "not_protected", "{}: {}", image.name, closed["repair"]);
    let mut cri = node.containerd.cri();
    assert!(cri.image_status(&image.name).is_none(), "{} is still there", image.name);
    let left: Vec<&str> =
        image.blobs().into_iter().filter(|digest| node.containerd.blob(digest).exists()).collect();
    assert!(left.is_empty(), "{}: still there: {left:?}", image.name);
    page.verdict(true, &format!("{} stays gone, and it is known who deleted it", image.name));
}

fn expect_refused(page: &Page, node: &mut Node, image: &Image) {
    let events = nth(node, image, "image.damaged", 1);
    tell::incident(page, &events);
    let refused = of_type(&events, "image.restore_failed").next();
    let refused = refused.unwrap_or_else(|| panic!("the damaged tarball of {} was not refused", image.name));
    let layer = image.layers.last().expect("an image has layers");
    assert!(!node.containerd.blob(&layer.digest).exists(), "{} was made of a wrong tarball", layer.digest);
    let until = refused["until"].as_str().map(|_| "; it is tried again later").unwrap_or_default();
    page.verdict(true, &format!("nothing was made of the wrong bytes{until}"));
}

fn nth(node: &mut Node, image: &Image, kind: &str, count: usize) -> Vec<Value> {
    node.incidents_of(&image.id, kind, count).pop().expect("as many incidents as were asked for")
}

/// On a containerd whose CRI knows pins: somebody takes one away. Gives the directories of that containerd.
fn unpin(page: &mut Page) -> Vec<PathBuf> {
    page.chapter("An unpin by ctr images label, on a containerd that knows pins");
    let mut node = Node::start("demo-pin", Version::V1_7);
    let scratch = &node.containerd.scratch;
    let directories = vec![scratch.dir.clone(), scratch.run.clone()];
    page.call(&scratch.dir.to_string_lossy(), "$NODE2");
    page.call(&scratch.run.to_string_lossy(), "$RUN2");
    page.field(
        "containerd",
        &format!("{}, with an agent and an image of its own", version(&node.containerd)),
    );
    page.field("CRI says", &format!("pinned: {}", pinned(&node)));
    page.blank();
    ctr(page, &node, &["images", "label", KEPT, "io.cri-containerd.pinned="]);
    let unpinned = node.agent.wait_for_type("image.unpinned", 1);
    let repinned = node.agent.wait_for_type("image.repinned", 1);
    page.blank();
    page.field("event", &format!("image.unpinned: {}", text(&unpinned["message"])));
    tell::who(page, &unpinned);
    page.field("why", text(&unpinned["why"]));
    page.field("done", &format!("image.repinned: {}", text(&repinned["message"])));
    let again = poll(PATIENCE, || pinned(&node).then_some(()));
    assert!(again.is_some(), "CRI does not say that {KEPT} is pinned again");
    page.field("CRI says", &format!("pinned: {}", pinned(&node)));
    let took = time(&repinned).duration_since(time(&unpinned));
    page.verdict(true, &format!("{KEPT} is pinned again after {}", duration(took.as_millis_f64())));
    let ended = node.agent.stop();
    assert!(ended.success(), "the agent ended with {ended}");
    directories
}

fn pinned(node: &Node) -> bool {
    node.containerd.cri().image_status(KEPT).is_some_and(|image| image.pinned)
}

fn time(event: &Value) -> Timestamp {
    text(&event["time"]).parse().unwrap_or_else(|error| panic!("the time of {event}: {error}"))
}
