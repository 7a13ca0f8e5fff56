//! Holds against real containerds: what they keep, what puts an image back, and that dropping them leaves no trace.

#![expect(clippy::unwrap_used, reason = "a test reports by panicking")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    future::Future,
    io::Write as _,
    time::{Duration, Instant},
};

use imgwarden::{
    containerd::{Client, Cri, Store, content, images::PINNED, leases, namespaces::SHADOW},
    hold::{self, Kind, State, Taken, Tools, blobs, blobs::Fault, records, shadow},
    inventory::{image::Image, read},
};
use imgwarden_tests::{
    containerd::{Containerd, NAMESPACE, Version},
    image::{self as made, Archive, Spec},
    process::poll,
    state::State as Everything,
};
use tokio::runtime::Runtime;

const KINDS: [Kind; 3] = [Kind::Pin, Kind::Lease, Kind::Shadow];
const NAME: &str = "registry.test/app:1";

/// A containerd with images, and what a hold on them works with.
struct Node {
    runtime: Runtime,
    tools: Tools,
    containerd: Containerd,
    archive: Archive,
}

impl Node {
    fn start(test: &str, version: Version, specs: &[Spec]) -> Self {
        let containerd = Containerd::start(test, version);
        let archive = Archive::write(&containerd.scratch.dir.join("images.tar"), specs);
        containerd.import(&archive);
        // An import leaves its own index behind for the GC, which must not be seen to go later.
        let _ = containerd.ctr(&["leases", "create", "--id", "for-a-gc"]);
        let _ = containerd.ctr(&["leases", "rm", "--sync", "for-a-gc"]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let tools = runtime.block_on(tools(&containerd));
        Self { runtime, tools, containerd, archive }
    }

    fn app(test: &str, version: Version) -> Self {
        Self::start(test, version, &[Spec::new(NAME).layers(&[100, 5000]).own_base()])
    }

    fn run<T>(&self, what: impl Future<Output = T>) -> T {
        self.runtime.block_on(what)
    }

    /// The image as the inventory sees it now.
    fn image(&self, made: &made::Image) -> Image {
        let listing = self.run(read::listing(&self.tools.client)).unwrap();
        let target = made.manifest.parse().unwrap();
        let records = listing.records.into_iter().filter(|r| r.target.digest == target).collect();
        Image { records, content: listing.contents[&target].clone() }
    }

    fn take(&self, kind: Kind, image: &Image) -> Taken {
        self.run(hold::take(kind, &self.tools, image)).unwrap()
    }

    fn check(&self, kind: Kind, image: &Image) -> State {
        self.run(hold::check(kind, &self.tools, image)).unwrap()
    }

    fn drop_all(&self, image: &Image) {
        for kind in KINDS {
            let _ = self.run(hold::drop(kind, &self.tools, image)).unwrap();
        }
    }

    fn faults(&self, image: &Image) -> Vec<(String, Fault)> {
        let faults = self.run(blobs::faults(&self.tools, &image.content)).unwrap();
        faults.into_iter().map(|(blob, fault)| (blob.digest.to_string(), fault)).collect()
    }

    fn verify(&self, image: &Image) -> hold::Verified {
        self.run(hold::verify(&self.tools, image)).unwrap()
    }

    fn state(&self) -> Everything {
        self.containerd.snapshot_of_state().without_times()
    }

    fn remembered(&self) -> Vec<Image> {
        let remembered = self.run(shadow::remembered(&self.tools.client)).unwrap();
        assert!(remembered.iter().all(|memory| memory.snapshotter == "overlayfs"));
        remembered.into_iter().map(|memory| memory.image).collect()
    }

    /// What a pin can be on this containerd.
    fn pinned(&self) -> State {
        match self.containerd.version() {
            Version::V1_7 => State::Yes,
            Version::Debian => {
                State::Ineffective { why: "containerd 1.6.20 is too old to report pins".to_owned() }
            }
        }
    }

    /// Writes a blob's bytes through containerd.
    fn write(&self, image: &Image, digest: &str, bytes: &[u8]) -> content::Written {
        let blob = image.content.blobs.iter().find(|blob| blob.digest.to_string() == digest).unwrap();
        let mut source = bytes;
        let written = content::write(&self.tools.client, blob.digest, blob.size, &blob.labels, &mut source);
        self.run(written).unwrap()
    }
}

async fn tools(containerd: &Containerd) -> Tools {
    let client = Client::new(&containerd.address(), NAMESPACE).unwrap();
    let cri = Cri::new(&client);
    let store = Store::find(&client, &cri).await.unwrap().unwrap();
    Tools { snapshotter: store.snapshotter.clone(), client, cri, store }
}

/// Waits until containerd's GC has done what it was asked for.
fn expect_soon(node: &Node, before: &Everything, what: &str) {
    let _ = poll(Duration::from_secs(20), || (node.state() == *before).then_some(()));
    before.expect_equal(&node.state(), what);
}

/// Given an image with every hold, when CRI removes it, a blob is unlinked and another is deleted through containerd,
/// then nothing that is held goes, each is put back, and after dropping the holds nothing tells that there were any.
fn whole_story(version: Version) {
    let node = Node::app("holds", version);
    let made = node.archive.image().clone();
    let image = node.image(&made);
    let before = node.state();
    assert_eq!(image.records.len(), 3);
    assert_eq!(image.content.blobs.len(), 5);
    let bytes: u64 = image.content.blobs.iter().map(|blob| blob.size).sum();
    for kind in KINDS {
        assert!(matches!(node.check(kind, &image), State::No { .. }), "{kind}");
    }

    for kind in KINDS {
        let first = node.take(kind, &image);
        let state = if kind == Kind::Pin { node.pinned() } else { State::Yes };
        let kept = if kind == Kind::Pin { 0 } else { bytes };
        assert_eq!(first, Taken { changed: true, bytes: kept, state: state.clone() }, "{kind}");
        let held = node.containerd.snapshot_of_state();
        let again = node.take(kind, &node.image(&made));
        assert_eq!(again, Taken { changed: false, bytes: kept, state: state.clone() }, "{kind} again");
        held.expect_equal(&node.containerd.snapshot_of_state(), "taking a hold again");
        assert_eq!(node.check(kind, &image), state, "{kind}");
    }
    assert_eq!(node.remembered(), std::slice::from_ref(&image));
    let verified = node.verify(&image);
    assert!(verified.whole() && verified.image_status && verified.readable, "{verified:?}");
    assert_eq!((verified.blobs, verified.blobs_expected), (5, 5));
    assert_eq!((verified.snapshots, verified.snapshots_expected), (Some(3), Some(3)));
    assert_eq!(verified.pinned, Some(version == Version::V1_7));

    node.containerd.cri().remove_image(&made.id);
    for blob in made.blobs() {
        assert!(node.containerd.blob(blob).exists(), "{blob}");
    }
    assert_eq!(node.faults(&image), []);
    assert_eq!(node.remembered(), std::slice::from_ref(&image));
    assert_eq!(node.run(records::missing(&node.tools, &image.records)).unwrap(), image.records);
    let gone = node.verify(&image);
    assert!(!gone.whole() && !gone.image_status, "{gone:?}");
    assert_eq!(gone.snapshots, Some(3));

    let created = node.run(records::recreate(&node.tools, &node.remembered()[0].records, true)).unwrap();
    assert_eq!(BTreeSet::from_iter(created), BTreeSet::from(made.names()));
    assert_eq!(node.run(records::recreate(&node.tools, &image.records, true)).unwrap(), [""; 0]);
    assert_eq!(node.run(records::missing(&node.tools, &image.records)).unwrap(), []);
    let back = node.verify(&image);
    assert!(back.whole(), "{back:?}");
    assert_eq!(back.pinned, Some(version == Version::V1_7));
    assert_eq!(node.check(Kind::Pin, &image), node.pinned());

    unlinked_and_deleted(&node, &made, &image);

    let held = node.image(&made);
    assert!(node.verify(&held).whole());
    node.drop_all(&held);
    expect_soon(&node, &before, "after dropping every hold");
    for kind in KINDS {
        assert!(!node.run(hold::drop(kind, &node.tools, &held)).unwrap(), "{kind}");
    }
}

fn unlinked_and_deleted(node: &Node, made: &made::Image, image: &Image) {
    let layer = &made.layers[1].digest;
    let path = node.containerd.blob(layer);
    let bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    assert_eq!(node.faults(image), [(layer.clone(), Fault::Missing)]);
    assert!(!node.verify(image).whole());
    assert_eq!(node.write(image, layer, &bytes), content::Written::Known);
    assert_eq!(node.faults(image), []);

    fs::remove_file(&path).unwrap();
    fs::File::create(&path).unwrap().write_all(b"short").unwrap();
    assert_eq!(node.faults(image), [(layer.clone(), Fault::WrongSize { found: 5 })]);
    fs::remove_file(&path).unwrap();
    let _ = node.write(image, layer, &bytes);

    let state = node.state();
    for blob in made.blobs() {
        let _ = node.containerd.ctr(&["content", "rm", blob]);
        assert_eq!(node.faults(image), [(blob.to_owned(), Fault::NoMetadata)]);
        assert!(matches!(node.check(Kind::Lease, image), State::No { .. }));
        let documents = node.run(blobs::documents(&node.tools, &image.content)).unwrap();
        let top = (node.tools.snapshotter.as_str(), *image.content.chain.last().unwrap());
        let labels = blobs::gc_labels(&image.content, &documents, Some(top));
        let leased = hold::lease::tools_under(&node.tools, image).unwrap();
        let lost = image.content.blobs.iter().find(|known| known.digest.to_string() == blob).unwrap();
        let adopted = node.run(blobs::adopt(&leased, lost, &labels[&lost.digest])).unwrap();
        assert_eq!(adopted, content::Written::Created);
        state.expect_equal(&node.state(), "after adopting a deleted blob");
    }
    for kind in [Kind::Lease, Kind::Shadow] {
        assert_eq!(node.take(kind, &node.image(made)).state, State::Yes);
    }
}

#[test]
fn a_held_image_survives_everything_on_debians_containerd() {
    whole_story(Version::Debian);
}

#[test]
fn a_held_image_survives_everything_on_containerd_1_7() {
    whole_story(Version::V1_7);
}

/// Given a held image, when somebody deletes our lease or our shadow, then the hold says so and is taken again.
#[test]
fn what_others_take_away_is_taken_again() {
    let node = Node::app("holds-others", Version::V1_7);
    let made = node.archive.image().clone();
    let image = node.image(&made);
    for kind in KINDS {
        assert_eq!(node.take(kind, &image).state, State::Yes, "{kind}");
    }
    let held = node.state();

    let lease = hold::lease::id(image.content.target.digest);
    let _ = node.containerd.ctr(&["leases", "rm", &lease]);
    assert!(matches!(node.check(Kind::Lease, &image), State::No { .. }));
    assert!(node.take(Kind::Lease, &image).changed);

    let _ = node.containerd.ctr(&["--namespace", SHADOW, "images", "rm", "--sync", NAME]);
    assert!(matches!(node.check(Kind::Shadow, &image), State::No { .. }));
    assert_eq!(node.remembered(), []);
    assert!(node.take(Kind::Shadow, &image).changed);

    let pin = format!("{}=", PINNED.0);
    let _ = node.containerd.ctr(&["images", "label", NAME, &pin]);
    assert!(matches!(node.check(Kind::Pin, &image), State::No { .. }));
    assert_eq!(node.take(Kind::Pin, &image), Taken { changed: true, bytes: 0, state: State::Yes });
    held.expect_equal(&node.state(), "after taking every hold again");
}

/// Given a pin of somebody else's, when the image is held, removed, put back and let go, then that pin stays.
#[test]
fn a_pin_of_somebody_elses_stays() {
    let node = Node::app("holds-pin", Version::V1_7);
    let made = node.archive.image().clone();
    let _ = node.containerd.ctr(&["images", "label", NAME, &format!("{}={}", PINNED.0, PINNED.1)]);
    let image = node.image(&made);
    let before = node.state();
    for kind in KINDS {
        let _ = node.take(kind, &image);
    }
    let held = node.image(&made);
    assert_eq!(held.records.iter().filter(|r| r.labels.contains_key(PINNED.0)).count(), 3);
    assert_eq!(node.remembered(), std::slice::from_ref(&image));

    node.containerd.cri().remove_image(&made.id);
    // As an inventory remembers the records: with imgwarden's pins on them.
    assert_eq!(node.run(records::recreate(&node.tools, &held.records, true)).unwrap().len(), 3);
    let _ = node.containerd.cri().wait_for(&made.id);
    node.drop_all(&image);
    expect_soon(&node, &before, "after dropping every hold");
}

/// Given a tag that moved while both images are held, then each has its shadow, neither is forgotten, and putting the
/// old one's names back leaves the tag where it is.
#[test]
fn a_moved_tag_stays_where_it_is() {
    let specs = ["registry.test/app:1", "registry.test/app:2"].map(|name| Spec::new(name).own_base());
    let node = Node::start("holds-moved", Version::V1_7, &specs);
    let [one, two] = node.archive.images.as_slice() else { panic!("two images were made") };
    let old = node.image(one);
    assert_eq!(node.take(Kind::Lease, &old).state, State::Yes);
    assert_eq!(node.take(Kind::Shadow, &old).state, State::Yes);
    let _ = node.containerd.ctr(&["images", "tag", "--force", &two.name, &one.name]);
    let _ = node.containerd.ctr(&["images", "rm", &two.name]);
    let new = node.image(two);
    assert_eq!(node.take(Kind::Shadow, &new).state, State::Yes);

    let remembered: BTreeSet<_> = node.remembered().iter().map(|image| image.content.target.digest).collect();
    assert_eq!(remembered, BTreeSet::from([old.content.target.digest, new.content.target.digest]));
    assert_eq!(node.run(records::missing(&node.tools, &old.records)).unwrap(), []);
    assert_eq!(node.run(records::recreate(&node.tools, &old.records, true)).unwrap(), [""; 0]);
    let moved = &node.state().namespaces[NAMESPACE].images[&one.name];
    assert_eq!(moved.target, two.manifest);
    assert!(!moved.labels.contains_key(PINNED.0));

    assert!(node.run(hold::drop(Kind::Shadow, &node.tools, &old)).unwrap());
    assert_eq!(node.check(Kind::Shadow, &new), State::Yes);
    assert!(node.run(hold::drop(Kind::Shadow, &node.tools, &new)).unwrap());
    assert!(!node.state().namespaces.contains_key(SHADOW));
}

/// Given a shadow that is interrupted anywhere, as by a kill, when it is taken again, then it is as if it had never been
/// interrupted, and dropping it leaves nothing.
#[test]
fn an_interrupted_hold_ends_the_same() {
    let node = Node::app("holds-killed", Version::Debian);
    let image = node.image(node.archive.image());
    let before = node.state();
    let take_all = async |tools: &Tools| {
        for kind in [Kind::Lease, Kind::Shadow] {
            let _ = hold::take(kind, tools, &image).await.unwrap();
        }
    };
    let began = Instant::now();
    node.run(take_all(&node.tools));
    let whole = began.elapsed();
    let reference = node.state();
    node.drop_all(&image);
    expect_soon(&node, &before, "after the first drop");

    let mut interrupted = 0;
    for step in 0..12 {
        let taken = async { tokio::time::timeout(whole * step / 12, take_all(&node.tools)).await };
        interrupted += u32::from(node.run(taken).is_err());
        if step % 2 == 0 {
            node.run(take_all(&node.tools));
            expect_soon(&node, &reference, "taken again");
        }
        node.drop_all(&image);
        expect_soon(&node, &before, "dropped");
    }
    assert!(interrupted > 5, "only {interrupted} were interrupted");
}

/// Given containerd's isolated sharing policy, then the shadow says that it can't be, and leaves nothing.
#[test]
fn an_isolated_containerd_has_no_shadows() {
    let mut node = Node::app("holds-isolated", Version::V1_7);
    let image = node.image(node.archive.image());
    node.containerd.stop();
    let config = node.containerd.scratch.dir.join("containerd.toml");
    let isolated = "[plugins.\"io.containerd.metadata.v1.bolt\"]\n  content_sharing_policy = \"isolated\"\n";
    fs::OpenOptions::new().append(true).open(config).unwrap().write_all(isolated.as_bytes()).unwrap();
    node.containerd.boot();
    node.tools = node.run(tools(&node.containerd));
    let before = node.state();
    let taken = node.take(Kind::Shadow, &image);
    assert!(matches!(&taken.state, State::No { why } if why.contains("content_sharing_policy")), "{taken:?}");
    assert_eq!(taken.bytes, 0);
    expect_soon(&node, &before, "after a shadow that can't be");
}

/// Given an image whose manifest was gone when containerd started, so that CRI dropped it, when the blob is back and its
/// records are touched, then CRI knows it again and nothing was changed.
#[test]
fn cri_loads_a_touched_image() {
    for version in [Version::Debian, Version::V1_7] {
        let mut node = Node::app("holds-touch", version);
        let made = node.archive.image().clone();
        let image = node.image(&made);
        let before = node.state();
        let path = node.containerd.blob(&made.manifest);
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        node.containerd.restart();
        node.tools = node.run(tools(&node.containerd));
        let verified = node.verify(&image);
        assert!(!verified.image_status && !verified.readable, "{verified:?}");

        assert_eq!(node.write(&image, &made.manifest, &bytes), content::Written::Known);
        assert!(!node.verify(&image).image_status);
        assert_eq!(node.run(records::touch(&node.tools, &image.records)).unwrap(), 3);
        let verified = node.verify(&image);
        assert!(verified.whole(), "{verified:?}");
        before.expect_equal(&node.state(), "after a touch");
    }
}

/// Given an image that was imported without unpacking, then it is held and verified without snapshots.
#[test]
fn an_image_that_was_never_unpacked_is_held() {
    let node = Node::app("holds-packed", Version::V1_7);
    let archive = Archive::write(
        &node.containerd.scratch.dir.join("packed.tar"),
        &[Spec::new("registry.test/packed:1").own_base()],
    );
    let _ = node.containerd.import_packed(&archive);
    let image = node.image(archive.image());
    for kind in [Kind::Lease, Kind::Shadow] {
        assert_eq!(node.take(kind, &image).state, State::Yes, "{kind}");
    }
    let verified = node.verify(&image);
    assert_eq!((verified.snapshots, verified.snapshots_expected), (None, None));
    assert!(verified.readable);
    let lease = hold::lease::id(image.content.target.digest);
    let resources = node.run(leases::resources(&node.tools.client, &lease)).unwrap().unwrap();
    assert_eq!(resources.len(), image.content.blobs.len());
}

/// Given two held images, one of them put back after its deletion and one in a hold that a killed agent left half done,
/// when everything is dropped, then nothing of imgwarden's is left, and a pin of somebody else's is.
#[test]
fn everything_can_be_dropped_at_once() {
    let specs = ["registry.test/app:1", "registry.test/app:2"].map(|name| Spec::new(name).own_base());
    let node = Node::start("holds-release", Version::V1_7, &specs);
    let [one, two] = node.archive.images.as_slice() else { panic!("two images were made") };
    let _ = node.containerd.ctr(&["images", "label", &two.name, &format!("{}={}", PINNED.0, PINNED.1)]);
    let before = node.state();
    for made in [one, two] {
        let image = node.image(made);
        for kind in KINDS {
            assert_eq!(node.take(kind, &image).state, State::Yes, "{kind}");
        }
    }
    let image = node.image(one);
    node.containerd.cri().remove_image(&one.id);
    assert_eq!(node.run(records::recreate(&node.tools, &image.records, true)).unwrap().len(), 3);
    let _ = node.containerd.cri().wait_for(&one.id);
    let shadow = node.tools.client.in_namespace(SHADOW).unwrap();
    let owner = [(hold::OWNER.0.to_owned(), hold::OWNER.1.to_owned())].into();
    assert!(node.run(leases::create(&shadow, "imgwarden-take-0", &owner)).unwrap());

    let dropped = node.run(hold::drop_everything(&node.tools.client)).unwrap();
    assert_eq!(dropped, hold::Dropped { records: 5, leases: 3, shadows: 2 });
    before.expect_equal(&node.state(), "after dropping everything");
    let again = node.run(hold::drop_everything(&node.tools.client)).unwrap();
    assert_eq!(again, hold::Dropped::default());
}

/// Given an image with nothing but a shadow, when CRI removes it, then no file goes, the watched namespace knows none of
/// its blobs, and adopting them brings the image back but for its unpacked layers.
#[test]
fn a_shadow_alone_keeps_every_file() {
    for version in [Version::Debian, Version::V1_7] {
        let node = Node::app("holds-shadow", version);
        let made = node.archive.image().clone();
        assert_eq!(node.take(Kind::Shadow, &node.image(&made)).state, State::Yes);
        node.containerd.cri().remove_image(&made.id);
        let [memory] = node.remembered().try_into().unwrap();
        let missing: Vec<_> =
            made.blobs().iter().map(|blob| ((*blob).to_owned(), Fault::NoMetadata)).collect();
        assert_eq!(BTreeMap::from_iter(node.faults(&memory)), BTreeMap::from_iter(missing));

        // The lease first, then what it is to hold.
        assert!(matches!(node.take(Kind::Lease, &memory).state, State::No { .. }));
        let leased = hold::lease::tools_under(&node.tools, &memory).unwrap();
        let documents = node.run(blobs::documents(&node.tools, &memory.content)).unwrap();
        assert_eq!(documents.len(), 1);
        let labels = blobs::gc_labels(&memory.content, &documents, None);
        for blob in &memory.content.blobs {
            let _ = node.run(blobs::adopt(&leased, blob, &labels[&blob.digest])).unwrap();
        }
        let created = node.run(records::recreate(&node.tools, &memory.records, false)).unwrap();
        assert_eq!(created.len(), 3);
        let verified = node.verify(&memory);
        assert!(verified.image_status && verified.readable, "{verified:?}");
        assert_eq!((verified.blobs, verified.snapshots), (5, Some(0)));
        assert_eq!(verified.problems.len(), 3, "{verified:?}");
        assert_eq!(node.take(Kind::Lease, &memory).state, State::Yes);
    }
}

/// Given two held images with a layer in common, when one is let go, then the other keeps that layer whoever removes
/// both, and is let go without a trace too.
#[test]
fn a_shared_layer_stays_for_the_other_image() {
    let specs = ["registry.test/app:1", "registry.test/other:1"].map(Spec::new);
    let node = Node::start("holds-shared", Version::V1_7, &specs);
    let [one, two] = node.archive.images.as_slice() else { panic!("two images were made") };
    assert_eq!(one.layers[0], two.layers[0]);
    let before = node.state();
    let [first, second] = [one, two].map(|made| node.image(made));
    for image in [&first, &second] {
        for kind in [Kind::Lease, Kind::Shadow] {
            assert_eq!(node.take(kind, image).state, State::Yes, "{kind}");
        }
    }
    node.drop_all(&first);
    for made in [one, two] {
        node.containerd.cri().remove_image(&made.id);
    }
    assert!(!node.containerd.blob(&one.layers[1].digest).exists());
    assert_eq!(node.faults(&second), []);
    for kind in [Kind::Lease, Kind::Shadow] {
        assert_eq!(node.check(kind, &second), State::Yes, "{kind}");
    }
    assert_eq!(node.run(records::recreate(&node.tools, &second.records, false)).unwrap().len(), 3);
    assert!(node.verify(&second).whole());
    node.drop_all(&second);
    let after = node.state();
    let record = |state: &Everything, name: &str| state.namespaces[NAMESPACE].images.get(name).cloned();
    for name in two.names() {
        assert_eq!(record(&after, &name), record(&before, &name), "{name}");
    }
    assert_eq!(after.namespaces.len(), before.namespaces.len());
}
