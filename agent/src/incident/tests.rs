//! The join's rules, each as a small story: requests, events and removals in, outcomes out. Time is passed in.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use super::{Incident, Kind, Outcome, asked::Meant, cause::EXPIRES, join::Join};
use crate::{
    audit::cause::{self, Confidence},
    digest::Digest,
    inventory::{
        Change, Inventory, Limits,
        image::{Blob, Content, Descriptor, ImageRecord, Labels},
    },
    probe::record::{Boottime, Connection, Entry, How, Process, ProcessKey, Program, Removal},
    wire::{
        method::{Known, MethodSet},
        request::{Call, Header, Method, Request, Shape, Symbol},
    },
};

const OWN: u32 = 1;
const SERVER: u32 = 2;
const ID: &str = "sha256:config";

fn ms(at: u64) -> Boottime {
    Boottime(at * 1_000_000)
}

fn process(pid: u32, exe: &str) -> Arc<Process> {
    Arc::new(Process {
        key: ProcessKey { pid, start: u64::from(pid) },
        uid: 0,
        login_uid: None,
        session_id: None,
        comm: exe.to_owned(),
        program: Program { exe: Some(format!("/usr/bin/{exe}")), ..Program::default() },
        cgroup: Vec::new(),
        host: None,
        parents: Vec::new(),
    })
}

/// A node in a test: what the inventory knows, and the join.
struct Node {
    join: Join,
    inventory: Inventory,
    out: Vec<Outcome>,
    contents: BTreeMap<String, Arc<Content>>,
}

impl Node {
    fn new() -> Self {
        let mut join = Join::new("k8s.io", OWN);
        join.server(SERVER);
        Self {
            join,
            inventory: Inventory::new(Limits::default()),
            out: Vec::new(),
            contents: BTreeMap::new(),
        }
    }

    /// An image with a manifest, a config and a layer of its own, under these names.
    fn image(&mut self, image: &str, names: &[&str]) -> Arc<Content> {
        let blob = |text: String| Blob {
            digest: Digest::of(text.as_bytes()),
            size: 10,
            media_type: String::new(),
            labels: Labels::new(),
        };
        let manifest = blob(format!("manifest {image}"));
        let config = blob(format!("{ID} {image}"));
        let layer = blob(format!("layer {image}"));
        let target = Descriptor { media_type: String::new(), digest: manifest.digest, size: 10 };
        let content = Arc::new(Content {
            target: target.clone(),
            id: Some(config.digest),
            manifest: Some(target),
            blobs: vec![manifest, config, layer],
            chain: vec![Digest::of(format!("chain {image}").as_bytes())],
        });
        for name in names {
            self.contents.insert((*name).to_owned(), Arc::clone(&content));
            self.create(name, 0);
        }
        content
    }

    fn create(&mut self, name: &str, at: u64) {
        self.create_with(name, at, Labels::new());
    }

    fn create_with(&mut self, name: &str, at: u64, labels: Labels) {
        let content = Arc::clone(&self.contents[name]);
        let record = ImageRecord { name: name.to_owned(), target: content.target.clone(), labels };
        let change = self.inventory.put(record.clone(), Arc::clone(&content), ms(at));
        if let Change::Updated { before, after } = change {
            self.join.changed(before, after, content.id, ms(at));
            return;
        }
        let meant = Meant {
            ids: content.id.into_iter().collect(),
            names: self.inventory.names_of(content.id.unwrap()),
        };
        self.join.created(&record, &meant, ms(at));
    }

    fn delete(&mut self, name: &str, at: u64) {
        let Change::Deleted(gone) = self.inventory.remove(name, ms(at)) else {
            panic!("{name} is not there")
        };
        self.join.gone(gone.record, Some(gone.content), ms(at));
    }

    fn ask(&mut self, process: &Arc<Process>, at: u64, method: Method, call: Call) {
        let namespace = Header::Known("k8s.io".to_owned());
        self.ask_in(namespace, process, at, method, call);
    }

    fn ask_in(&mut self, namespace: Header, process: &Arc<Process>, at: u64, method: Method, call: Call) {
        let request = Request {
            connection: Connection(u64::from(process.key.pid)),
            stream: 1,
            at: ms(at),
            process: Arc::clone(process),
            whole: matches!(method, Method::Path(_)),
            method,
            namespace,
            call,
            ruled_out: MethodSet::default(),
        };
        self.join.request(request, &self.inventory);
    }

    fn remove_image(&mut self, process: &Arc<Process>, at: u64, image: &str) {
        let method = Method::Path(Known::RemoveImage.path().to_owned());
        self.ask(process, at, method, Call::RemoveImage { image: image.to_owned() });
    }

    fn ctr_rm(&mut self, process: &Arc<Process>, at: u64, name: &str) {
        let method = Method::Path(Known::ImagesDelete.path().to_owned());
        self.ask(process, at, method, Call::ImagesDelete { name: name.to_owned(), sync: false });
    }

    /// A request on a connection that is older than the agent, whose body names an image.
    fn symbolic(&mut self, process: &Arc<Process>, at: u64, slot: i64, image: &str) {
        let symbol = Symbol { connection: Connection(u64::from(process.key.pid)), slot };
        let shape = Shape::ImageSpec { image: image.to_owned() };
        self.ask(process, at, Method::Symbol(symbol), Call::Opaque(shape));
    }

    fn removed(&mut self, process: &Arc<Process>, at: u64, digest: Digest) {
        let removal = Removal {
            at: ms(at),
            process: Arc::clone(process),
            entry: Entry::Blob(digest),
            how: How::Unlinked,
        };
        self.join.removed(removal, &self.inventory, &mut self.out);
    }

    /// Lets the time pass in steps of a millisecond, as the stage's timer would.
    fn until(&mut self, from: u64, to: u64) {
        for at in from..=to {
            self.join.tick(ms(at), &self.inventory, &mut self.out);
        }
    }

    fn opened(&self) -> Vec<&Incident> {
        self.out
            .iter()
            .filter_map(|outcome| match outcome {
                Outcome::Opened(incident) => Some(&**incident),
                _ => None,
            })
            .collect()
    }

    fn only(&self) -> &Incident {
        let opened = self.opened();
        assert_eq!(opened.len(), 1, "{opened:#?}");
        opened[0]
    }
}

fn pid(incident: &Incident) -> Option<u32> {
    incident.actor.as_ref().map(|actor| actor.key.pid)
}

fn candidates(incident: &Incident) -> Vec<u32> {
    incident.candidates.iter().map(|candidate| candidate.key.pid).collect()
}

#[test]
fn one_removal_of_three_names_is_one_incident() {
    let mut node = Node::new();
    let content = node.image("a", &["a:1", "a@x", "sha256:a"]);
    node.remove_image(&process(10, "kubelet"), 100, &content.id.unwrap().to_string());
    for (name, at) in [("a:1", 101), ("a@x", 102), ("sha256:a", 160)] {
        node.until(at - 1, at - 1);
        node.delete(name, at);
    }
    node.until(161, 200);
    let incident = node.only();
    assert_eq!((incident.kind, pid(incident)), (Kind::Deleted, Some(10)));
    assert_eq!((incident.cause.kind, incident.cause.confidence), (cause::Kind::Kubelet, Confidence::Seen));
    assert_eq!(incident.records.len(), 3);
    assert!(incident.orphaned.last_name);
    assert_eq!(incident.orphaned.blobs.len(), 3);
    assert_eq!((incident.began, incident.at), (ms(100), ms(160)));
}

#[test]
fn who_removed_an_absent_name_is_not_blamed_for_its_expiry() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.inventory.remove("a:1", ms(1));
    node.ctr_rm(&process(10, "ctr"), 1000, "a:1");
    node.create_with("a:1", 2000, Labels::from([(EXPIRES.to_owned(), "2026-01-01T00:00:00Z".to_owned())]));
    node.until(2001, 2002);
    node.delete("a:1", 3000);
    node.until(3001, 3200);
    let incident = node.only();
    assert_eq!((pid(incident), candidates(incident)), (None, Vec::new()));
    assert_eq!(incident.cause.kind, cause::Kind::ContainerdExpired);
}

#[test]
fn who_only_looked_is_never_named_beside_a_removal_that_was_read() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.symbolic(&process(10, "kubelet"), 100, -3, "a:1");
    node.remove_image(&process(11, "crictl"), 105, "a:1");
    node.delete("a:1", 110);
    node.until(111, 250);
    let incident = node.only();
    assert_eq!((pid(incident), candidates(incident)), (Some(11), Vec::new()));
    assert_eq!(incident.cause.confidence, Confidence::Seen);
}

#[test]
fn of_two_whose_methods_are_unknown_neither_is_named() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.symbolic(&process(10, "kubelet"), 100, -3, "a:1");
    node.symbolic(&process(11, "other"), 105, -3, "a:1");
    node.delete("a:1", 110);
    node.until(111, 250);
    let incident = node.only();
    assert_eq!((pid(incident), candidates(incident)), (None, vec![10, 11]));
    assert_eq!(incident.cause.confidence, Confidence::Inferred);
}

#[test]
fn a_symbol_that_was_followed_by_nothing_is_innocent_from_then_on() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    let (looks, removes) = (process(10, "kubelet"), process(11, "other"));
    node.symbolic(&looks, 100, -3, "a:1");
    node.join.tick(ms(5_200), &node.inventory, &mut node.out);
    node.symbolic(&looks, 6_000, -3, "a:1");
    node.symbolic(&removes, 6_001, -7, "a:1");
    node.delete("a:1", 6_005);
    node.until(6_006, 6_200);
    let incident = node.only();
    assert_eq!((pid(incident), incident.cause.confidence), (Some(11), Confidence::Inferred));
}

#[test]
fn a_symbol_is_not_innocent_because_another_deleted_the_image_first() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.image("b", &["b:1"]);
    let (late, first) = (process(10, "late"), process(11, "crictl"));
    node.symbolic(&late, 100, -3, "a:1");
    node.remove_image(&first, 101, "a:1");
    node.delete("a:1", 102);
    node.join.tick(ms(5_200), &node.inventory, &mut node.out);
    node.symbolic(&late, 6_000, -3, "b:1");
    node.delete("b:1", 6_005);
    node.join.tick(ms(6_200), &node.inventory, &mut node.out);
    let opened = node.opened();
    assert_eq!(opened.iter().map(|incident| pid(incident)).collect::<Vec<_>>(), [Some(11), Some(10)]);
}

#[test]
fn a_request_explains_one_deletion_only() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.ctr_rm(&process(10, "ctr"), 100, "a:1");
    node.delete("a:1", 101);
    node.until(102, 250);
    node.create("a:1", 300);
    node.until(301, 400);
    node.delete("a:1", 500);
    node.until(501, 700);
    let opened = node.opened();
    assert_eq!(opened.iter().map(|incident| pid(incident)).collect::<Vec<_>>(), [Some(10), None]);
    assert_eq!(opened[1].cause.kind, cause::Kind::Unknown);
}

#[test]
fn a_request_in_another_namespace_explains_nothing() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    let method = Method::Path(Known::ImagesDelete.path().to_owned());
    let call = Call::ImagesDelete { name: "a:1".to_owned(), sync: false };
    node.ask_in(Header::Known("moby".to_owned()), &process(10, "ctr"), 100, method, call);
    node.delete("a:1", 101);
    node.until(102, 250);
    assert_eq!((pid(node.only()), candidates(node.only())), (None, Vec::new()));
}

#[test]
fn a_request_that_is_read_after_the_event_still_explains_it() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.delete("a:1", 105);
    node.until(106, 120);
    node.ctr_rm(&process(10, "ctr"), 100, "a:1");
    node.until(121, 250);
    assert_eq!(pid(node.only()), Some(10));
}

#[test]
fn a_deletion_that_is_followed_by_a_creation_is_a_retag() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    let client = process(10, "k3s");
    node.ctr_rm(&client, 100, "a:1");
    node.delete("a:1", 101);
    node.until(102, 140);
    node.create("a:1", 141);
    node.until(142, 400);
    assert_eq!(node.opened().len(), 0);
    let [Outcome::Retagged { name, actor, .. }] = &node.out[..] else { panic!("{:#?}", node.out) };
    assert_eq!((name.as_str(), actor.as_ref().map(|actor| actor.key.pid)), ("a:1", Some(10)));
}

#[test]
fn a_native_deletion_is_repaired_when_its_client_has_gone() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    let client = process(10, "ctr");
    node.ctr_rm(&client, 100, "a:1");
    node.delete("a:1", 101);
    node.until(102, 300);
    let repairs = |node: &Node| node.out.iter().filter(|o| matches!(o, Outcome::Repair { .. })).count();
    assert_eq!((node.opened().len(), repairs(&node)), (1, 0), "the client may create it again");
    node.join.exited(client.key, ms(301));
    node.until(302, 303);
    assert_eq!(repairs(&node), 1);
}

#[test]
fn a_removal_is_matched_by_digest_to_the_incident_that_orphaned_it() {
    let mut node = Node::new();
    let (a, b) = (node.image("a", &["a:1"]), node.image("b", &["b:1"]));
    node.ctr_rm(&process(10, "ctr"), 100, "a:1");
    node.ctr_rm(&process(11, "ctr"), 100, "b:1");
    node.delete("a:1", 101);
    node.delete("b:1", 101);
    node.until(102, 220);
    let server = process(SERVER, "containerd");
    for blob in b.blobs.iter().chain(&a.blobs) {
        node.removed(&server, 230, blob.digest);
    }
    node.until(231, 4000);
    let by_image: BTreeMap<Option<Digest>, u32> =
        node.opened().iter().map(|incident| (incident.image, pid(incident).unwrap())).collect();
    assert_eq!(by_image, BTreeMap::from([(a.id, 10), (b.id, 11)]));
    let ids: BTreeMap<_, _> = node.opened().iter().map(|incident| (incident.id, incident.image)).collect();
    let mut closed = 0;
    for outcome in &node.out {
        let Outcome::Closed { incident, lost } = outcome else { continue };
        let image = if ids[incident] == a.id { &a } else { &b };
        let blobs: BTreeMap<_, _> = image.blobs.iter().map(|blob| (blob.digest, blob.size)).collect();
        assert_eq!(lost.blobs, blobs);
        closed += 1;
    }
    assert_eq!(closed, 2);
}

#[test]
fn files_that_a_shell_removes_are_damage_by_it() {
    let mut node = Node::new();
    let a = node.image("a", &["a:1"]);
    let rm = process(10, "rm");
    for (index, blob) in a.blobs.iter().enumerate() {
        node.removed(&rm, 100 + index as u64, blob.digest);
    }
    node.until(103, 300);
    let incident = node.only();
    assert_eq!((incident.kind, pid(incident)), (Kind::Damaged, Some(10)));
    assert_eq!(incident.lost.blobs.len(), 3);
    assert_eq!((incident.cause.kind, incident.cause.confidence), (cause::Kind::Filesystem, Confidence::Seen));
}

#[test]
fn what_nobody_lists_is_no_incident_and_the_agents_own_is_nothing() {
    let mut node = Node::new();
    let a = node.image("a", &["a:1"]);
    let unknown = Digest::of(b"unknown");
    node.removed(&process(SERVER, "containerd"), 100, unknown);
    node.removed(&process(OWN, "imgwarden"), 100, a.blobs[0].digest);
    node.until(101, 700);
    let [Outcome::BlobRemoved { digest, actor, incident: None, .. }] = &node.out[..] else {
        panic!("{:#?}", node.out)
    };
    assert_eq!((*digest, actor.key.pid), (unknown, SERVER));
}

#[test]
fn forty_deletions_in_ten_seconds_share_a_burst() {
    let mut node = Node::new();
    let kubelet = process(10, "kubelet");
    for index in 0..40u64 {
        let (name, at) = (format!("i{index}:1"), 1000 + index * 250);
        node.image(&format!("i{index}"), &[&name]);
        node.remove_image(&kubelet, at, &name);
        node.delete(&name, at + 1);
        node.until(at + 2, at + 8);
    }
    node.join.tick(ms(30_000), &node.inventory, &mut node.out);
    let opened = node.opened();
    assert_eq!(opened.len(), 40);
    assert!(opened.iter().all(|incident| incident.burst == opened[0].burst));
    let bursts: Vec<_> = node
        .out
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::BurstClosed { burst, images, .. } => Some((*burst, images.len())),
            _ => None,
        })
        .collect();
    assert_eq!(bursts, [(opened[0].burst, 40)]);
}

#[test]
fn a_pin_that_went_is_told_with_who_took_it() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    let pin = Labels::from([("io.cri-containerd.pinned".to_owned(), "pinned".to_owned())]);
    node.create_with("a:1", 10, pin);
    node.until(11, 50);
    let method = Method::Path(Known::ImagesUpdate.path().to_owned());
    let call = Call::ImagesUpdate { name: "a:1".to_owned(), fields: vec!["labels".to_owned()] };
    node.ask(&process(10, "ctr"), 100, method, call);
    node.create("a:1", 101);
    node.until(102, 200);
    let [Outcome::Unpinned { names, labels, actor, .. }] = &node.out[..] else { panic!("{:#?}", node.out) };
    assert_eq!(
        (&names[..], &labels[..]),
        (&["a:1".to_owned()][..], &["io.cri-containerd.pinned".to_owned()][..])
    );
    assert_eq!(actor.as_ref().map(|actor| actor.key.pid), Some(10));
}

#[test]
fn a_deadline_that_is_met_moves_on() {
    let mut node = Node::new();
    node.image("a", &["a:1"]);
    node.symbolic(&process(10, "kubelet"), 100, -3, "absent:1");
    node.symbolic(&process(10, "kubelet"), 100, -4, "a:1");
    let pull = Method::Path(Known::PullImage.path().to_owned());
    node.ask(&process(11, "kubelet"), 100, pull, Call::PullImage { image: "a:1".to_owned() });
    node.ctr_rm(&process(12, "ctr"), 100, "a:1");
    node.delete("a:1", 101);
    let mut now = ms(102);
    let mut ticks = 0;
    while let Some(due) = node.join.deadline(now) {
        // The stage never ticks more than once a millisecond.
        now = due.max(Boottime(now.0 + Duration::from_millis(1).as_nanos() as u64));
        node.join.tick(now, &node.inventory, &mut node.out);
        ticks += 1;
        assert!(ticks < 40, "it does not come to rest: {now:?}");
    }
}
