//! What `events` prints of a real journal.

use super::*;
use crate::{
    audit::{
        Body, Draft, Image, Journal,
        agent::Stopped,
        image::{Pin, Retagged},
        journal::Options,
    },
    digest::Digest,
};

fn journal() -> (tempfile::TempDir, Journal) {
    let root = tempfile::tempdir().unwrap();
    let options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
    let (journal, _) = Journal::open(&options).unwrap();
    (root, journal)
}

fn pin(name: &str, id: Digest) -> Body {
    let image = Image { id: Some(id), names: vec![name.into()], protected: true, ..Image::default() };
    let label = "io.cri-containerd.pinned=pinned".into();
    let (actor, candidates, candidates_count, request) = (None, None, None, None);
    let (why, images, images_count, would) = (None, None, None, None);
    Body::ImageUnpinned(Box::new(Pin {
        image,
        actor,
        candidates,
        candidates_count,
        request,
        label,
        why,
        images,
        images_count,
        would,
    }))
}

fn printed(journal: &Journal, args: &Args, json: bool) -> String {
    let mut out = Vec::new();
    print(journal.dir(), args, json, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn lines_are_compact_and_a_terminal_shows_them_as_they_are() {
    let (_root, mut journal) = journal();
    let time = "2026-01-02T03:04:05.678901234Z".parse().unwrap();
    let body = Body::AgentStopped(Stopped { why: "\u{1b}[2Jgone".into() });
    journal.append(Draft { time, ..Draft::now(body) }).unwrap();
    assert_eq!(
        printed(&journal, &Args::default(), false),
        "2026-01-02T03:04:05.678Z info  agent.stopped          imgwarden stopped: \\u{1b}[2Jgone\n"
    );
}

#[test]
fn json_is_the_journals_own_lines_and_filters_choose() {
    let (_root, mut journal) = journal();
    journal.append(Draft::now(Body::AgentStopped(Stopped { why: "SIGTERM".into() }))).unwrap();
    let pause = Digest::of(b"pause");
    journal.append(Draft::now(pin("docker.io/rancher/pause:3.5", pause))).unwrap();
    journal.append(Draft::now(pin("docker.io/library/nginx:1.27", Digest::of(b"nginx")))).unwrap();
    let text = std::fs::read_to_string(journal.dir().join("events.jsonl")).unwrap();
    assert_eq!(printed(&journal, &Args::default(), true), text);

    let count = |args: Args| printed(&journal, &args, false).lines().count();
    assert_eq!(count(Args { kinds: vec!["image.unpinned".into()], ..Args::default() }), 2);
    assert_eq!(count(Args { kinds: vec!["agent.*".into(), "hold.taken".into()], ..Args::default() }), 1);
    for spelling in
        ["index.docker.io/rancher/pause:3.5", "rancher/pause:3.5", &pause.to_string(), &pause.to_hex()[..6]]
    {
        assert_eq!(count(Args { image: Some(spelling.into()), ..Args::default() }), 1, "{spelling}");
    }
    assert_eq!(count(Args { image: Some("nginx:1.27".into()), ..Args::default() }), 1);
    assert_eq!(count(Args { image: Some(pause.to_hex()[..5].into()), ..Args::default() }), 0);
    assert_eq!(count(Args { since: Some(since("1h").unwrap()), ..Args::default() }), 3);
    assert_eq!(count(Args { since: Some(since("2100-01-01T00:00:00Z").unwrap()), ..Args::default() }), 0);
    since("yesterday").unwrap_err();
}

#[test]
fn a_retag_is_found_by_both_targets() {
    let (before, after) = (Digest::of(b"1"), Digest::of(b"2"));
    let body = Retagged {
        image: Image::default(),
        name: "app:latest".into(),
        actor: None,
        request: None,
        before: Some(before),
        after: Some(after),
    };
    let (_root, mut journal) = journal();
    journal.append(Draft::now(Body::ImageRetagged(Box::new(body)))).unwrap();
    for digest in [before, after] {
        let args = Args { image: Some(digest.to_string()), ..Args::default() };
        assert_eq!(printed(&journal, &args, false).lines().count(), 1);
    }
}

#[test]
fn no_journal_is_said_in_one_line() {
    let root = tempfile::tempdir().unwrap();
    let missing = root.path().join("none");
    let mut out = Vec::new();
    assert!(matches!(print(&missing, &Args::default(), false, &mut out), Err(Print::Journal(_))));
}
