//! What the agent says to containerd, and what its inventory makes of the answers, on both containerds: every claim is
//! compared with the harness, which asks containerd in its own way.

#![expect(clippy::unwrap_used, reason = "a scenario reports by panicking")]

use std::{collections::BTreeSet, fs, os::unix::fs::MetadataExt, path::Path, time::Duration};

use imgwarden::{
    containerd::{
        Client, ContainerdError, Cri, Store,
        content::{self, Written},
        events::{self, Kind},
        images, introspect,
        leases::{self, Resource},
        namespaces, snapshots,
    },
    digest::Digest,
    inventory::{
        self, Change, Inventory, InventoryError, Limits,
        image::{Descriptor, ImageRecord, Labels},
    },
    probe::record::Boottime,
};
use imgwarden_tests::{
    containerd::{Containerd, Version},
    image::{Archive, Image, Spec},
};

const NAMESPACE: &str = "k8s.io";

/// A containerd with one image of three layers, and a runtime to ask it from.
struct Node {
    containerd: Containerd,
    image: Image,
    runtime: tokio::runtime::Runtime,
}

impl Node {
    fn start(test: &str, version: Version) -> Self {
        let containerd = Containerd::start(test, version);
        let archive = Archive::write(
            &containerd.scratch.dir.join("app.tar"),
            &[Spec::new("registry.test/app:1").layers(&[100, 3_000_000]).own_base()],
        );
        containerd.import(&archive);
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let node = Self { image: archive.image().clone(), containerd, runtime };
        // The import's own leftovers (the archive's index) go with the next GC: before anything is compared.
        let client = node.client();
        node.runtime.block_on(async {
            leases::create(&client, "settle", &Labels::new()).await.unwrap();
            assert!(leases::delete(&client, "settle", true).await.unwrap());
        });
        node
    }

    fn client(&self) -> Client {
        let _inside = self.runtime.enter();
        Client::new(&self.containerd.address(), NAMESPACE).unwrap()
    }

    fn file(&self, digest: Digest) -> std::path::PathBuf {
        self.containerd.blob(&digest.to_string())
    }
}

fn digest(text: &str) -> Digest {
    text.parse().unwrap()
}

fn both(scenario: impl Fn(Version)) {
    scenario(Version::Debian);
    scenario(Version::V1_7);
}

/// Given an imported image, then the inventory knows its names, blobs and chain as the tarball has them, and each event
/// changes it as it changed containerd.
#[test]
fn the_inventory_follows_containerd() {
    both(|version| {
        let node = Node::start("api-inventory", version);
        let (client, image) = (node.client(), &node.image);
        let id = digest(&image.id);
        node.runtime.block_on(async {
            let mut events = events::subscribe(&client).await.unwrap();
            let mut inventory = Inventory::load(&client, Limits::default()).await.unwrap();

            let [known] = &inventory.images(id)[..] else { panic!("{inventory:?}") };
            let names: BTreeSet<String> = known.records.iter().map(|record| record.name.clone()).collect();
            assert_eq!(names, image.names().into());
            let blobs: Vec<String> = known.content.blobs.iter().map(|blob| blob.digest.to_string()).collect();
            assert_eq!(blobs, image.blobs());
            for blob in &known.content.blobs {
                assert_eq!(blob.size, fs::metadata(node.file(blob.digest)).unwrap().len(), "{}", blob.digest);
            }
            let chain: Vec<String> = known.content.chain.iter().map(Digest::to_string).collect();
            assert_eq!(chain, image.chain_ids());
            let whole = known.clone();

            // A new name, a label and the removal of everything by CRI, as the kubelet asks for it.
            let _ = node.containerd.ctr(&["images", "tag", &image.name, "registry.test/other:1"]);
            let _ = node.containerd.ctr(&["images", "label", "registry.test/other:1", "k=v"]);
            let images_before = inventory.resolve(&image.id);
            tokio::task::block_in_place(|| node.containerd.cri().remove_image(&image.id));
            let mut changes = Vec::new();
            let mut deleted = BTreeSet::new();
            while deleted.len() < 4 {
                let event = tokio::time::timeout(Duration::from_secs(10), events.next())
                    .await
                    .unwrap()
                    .unwrap()
                    .unwrap();
                assert_eq!(event.namespace, NAMESPACE);
                if let Kind::ImageDeleted { name } = &event.kind {
                    deleted.insert(name.clone());
                }
                changes.push((event.clone(), inventory.apply(&client, &event, Boottime(1)).await.unwrap()));
            }
            assert_eq!(events.take_unreadable(), 0, "{changes:?}");
            assert_eq!(inventory.records().count(), 0, "{changes:?}");
            let late = inventory.resolve(&image.id);
            assert!(late.names.is_superset(&images_before.names) && late.ids == [id].into(), "{late:?}");
            let names: Vec<String> = late.names.into_iter().collect();
            let orphaned = inventory.orphaned_by(&names);
            assert!(orphaned.last_name);
            assert_eq!(orphaned.blobs, whole.content.blobs);
            assert_eq!(orphaned.chain, whole.content.chain);
            for blob in &orphaned.blobs {
                assert!(!node.file(blob.digest).exists(), "containerd agrees on {}", blob.digest);
            }
        });
    });
}

/// Given containerd killed, then no list is taken and a call says that it is not reachable; started again, the same client
/// works; given another containerd's socket, then its empty list is doubted, and given deletions in between, believed.
#[test]
fn an_empty_list_is_believed_of_the_same_store_only() {
    both(|version| {
        let mut node = Node::start("api-relist", version);
        let stranger = Containerd::start("api-stranger", version);
        let client = node.client();
        let at = Boottime(1);
        let (mut inventory, store) = node.runtime.block_on(async {
            let cri = Cri::new(&client);
            let store = Store::find(&client, &cri).await.unwrap().unwrap();
            (Inventory::load(&client, Limits::default()).await.unwrap(), store)
        });
        assert_eq!(store.content, node.containerd.root().join("io.containerd.content.v1.content"));
        assert_eq!(store.snapshotter, "overlayfs");
        let before: Vec<ImageRecord> = inventory.records().cloned().collect();
        assert_eq!(before.len(), 3);

        node.containerd.kill9();
        node.runtime.block_on(async {
            let error = inventory.relist(&client, Some(&store), at).await.unwrap_err();
            assert!(matches!(&error, InventoryError::Containerd(error) if error.is_unreachable()), "{error}");
        });
        node.containerd.boot();
        node.runtime.block_on(async {
            let relisted = inventory.relist(&client, Some(&store), at).await.unwrap();
            assert_eq!((relisted.appeared.len(), relisted.vanished.len()), (0, 0), "{relisted:?}");

            let wrong = Client::new(&stranger.address(), NAMESPACE).unwrap();
            let error = inventory.relist(&wrong, Some(&store), at).await.unwrap_err();
            assert!(matches!(error, InventoryError::Suspicious { files: 5, known: 5, .. }), "{error}");
            assert!(inventory.records().eq(&before));
        });
        node.containerd.cri().remove_image(&node.image.id);
        node.runtime.block_on(async {
            let relisted = inventory.relist(&client, Some(&store), at).await.unwrap();
            assert_eq!(relisted.vanished.len(), 3);
            assert_eq!(inventory.records().count(), 0);
        });
    });
}

/// Given a layer's file that was removed, when its bytes are written, then the file is back and its metadata is as it was;
/// wrong bytes, too many and too few are refused and leave nothing.
#[test]
fn bytes_come_back_under_metadata_that_stands() {
    both(|version| {
        let node = Node::start("api-write", version);
        let client = node.client();
        let layer = node.image.layers.last().unwrap();
        let (layer_digest, size) = (digest(&layer.digest), layer.bytes);
        let file = node.file(layer_digest);
        let bytes = fs::read(&file).unwrap();
        assert!(bytes.len() > 2 << 20, "more than one message");
        let before = node.containerd.snapshot_of_state();
        fs::remove_file(&file).unwrap();
        node.runtime.block_on(async {
            assert_eq!(
                content::info(&client, layer_digest).await.unwrap().unwrap().size,
                size,
                "still believed in"
            );
            assert_eq!(content::read(&client, layer_digest, u64::MAX).await.unwrap(), None);

            let mut wrong = bytes.clone();
            wrong[2_500_000] ^= 1;
            for (bad, why) in [
                (&wrong[..], "other bytes"),
                (&bytes[1..], "too few"),
                (&[&bytes[..], b"x"].concat()[..], "too many"),
            ] {
                let error = content::write(&client, layer_digest, size, &Labels::new(), &mut &bad[..])
                    .await
                    .unwrap_err();
                assert!(
                    matches!(error, ContainerdError::Mismatch { .. } | ContainerdError::TooLarge { .. }),
                    "{why}: {error}"
                );
                assert!(!file.exists(), "{why}");
            }
            let written =
                content::write(&client, layer_digest, size, &Labels::new(), &mut &bytes[..]).await.unwrap();
            assert_eq!(written, Written::Known);
            assert_eq!(content::read(&client, layer_digest, u64::MAX).await.unwrap().as_ref(), Some(&bytes));
            assert!(matches!(
                content::read(&client, layer_digest, 1000).await,
                Err(ContainerdError::TooLarge { limit: 1000, .. })
            ));
        });
        node.containerd.snapshot_of_state().expect_equal(&before, "a repaired blob");
        no_ingests(&node.containerd);
    });
}

/// Given a blob that another namespace has, then it is adopted without bytes; given one that no namespace has, then not.
#[test]
fn metadata_comes_back_without_bytes() {
    both(|version| {
        let node = Node::start("api-adopt", version);
        let client = node.client();
        let layer = &node.image.layers[0];
        let blob = digest(&layer.digest);
        node.runtime.block_on(async {
            let shadow = client.in_namespace(namespaces::SHADOW).unwrap();
            let lease = "keep";
            assert!(leases::create(&shadow, lease, &Labels::new()).await.unwrap());
            assert!(!leases::create(&shadow, lease, &Labels::new()).await.unwrap());
            let leased = shadow.under_lease(lease).unwrap();
            let inode = fs::metadata(node.file(blob)).unwrap().ino();
            let labels = Labels::from([("containerd.io/uncompressed".to_owned(), layer.diff_id.clone())]);
            assert_eq!(content::adopt(&leased, blob, layer.bytes, &labels).await.unwrap(), Written::Created);
            assert_eq!(
                content::adopt(&leased, blob, layer.bytes, &Labels::new()).await.unwrap(),
                Written::Known
            );
            assert_eq!(content::info(&shadow, blob).await.unwrap().unwrap().labels, labels);
            assert_eq!(leases::resources(&shadow, lease).await.unwrap(), Some(vec![Resource::Content(blob)]));

            let _ = node.containerd.ctr(&["content", "rm", &layer.digest]);
            assert_eq!(content::info(&client, blob).await.unwrap(), None);
            assert_eq!(content::adopt(&client, blob, layer.bytes, &labels).await.unwrap(), Written::Created);
            assert_eq!(fs::metadata(node.file(blob)).unwrap().ino(), inode, "no bytes moved");

            let nowhere = Digest::of(b"nowhere");
            let error = content::adopt(&leased, nowhere, 7, &Labels::new()).await.unwrap_err();
            assert!(matches!(error, ContainerdError::NotShared { size: 7, .. }), "{error}");
            let error = content::adopt(&leased, digest(&node.image.id), 1, &Labels::new()).await.unwrap_err();
            assert!(matches!(error, ContainerdError::NotShared { size: 1, .. }), "{error}");

            assert!(
                !leases::add(&shadow, lease, &Resource::Content(nowhere)).await.unwrap(),
                "containerd took it"
            );
            assert!(leases::delete(&shadow, lease, true).await.unwrap());
            assert!(!leases::delete(&shadow, lease, true).await.unwrap());
            assert!(namespaces::delete_own_if_empty(&shadow).await.unwrap());
            assert!(!namespaces::delete_own_if_empty(&shadow).await.unwrap());
        });
        no_ingests(&node.containerd);
    });
}

/// Given the guard on an image's layers, then it names their directories and containerd refuses to remove them; taken away
/// it leaves nothing.
#[test]
fn the_guard_names_the_layers_directories() {
    both(|version| {
        let node = Node::start("api-guard", version);
        let client = node.client();
        let before = node.containerd.snapshot_of_state();
        let chain: Vec<Digest> = node.image.chain_ids().iter().map(|id| digest(id)).collect();
        node.runtime.block_on(async {
            leases::create(&client, "guard", &Labels::new()).await.unwrap();
            let leased = client.under_lease("guard").unwrap();
            assert_eq!(snapshots::learn(&client, "overlayfs", &chain).await.unwrap(), []);
            let found = snapshots::guard(&leased, "overlayfs", &chain).await.unwrap();
            assert_eq!(found.iter().map(|d| d.chain_id).collect::<Vec<_>>(), chain);
            for (n, directory) in found.iter().enumerate() {
                let path = node.containerd.snapshots().join(directory.number.to_string()).join("fs");
                assert!(path.exists(), "{}", path.display());
                assert_eq!(
                    path.join("bin/busybox").exists(),
                    n == 0,
                    "{}: only the base has it",
                    path.display()
                );
            }
            assert_eq!(snapshots::guard(&leased, "overlayfs", &chain).await.unwrap(), found, "again");
            assert_eq!(snapshots::learn(&client, "overlayfs", &chain).await.unwrap(), found);
            let top = chain.last().unwrap();
            let refused = node.containerd.try_ctr(&["snapshots", "rm", &top.to_string()]);
            assert!(!refused.success(), "{refused:?}");
            let bottom = snapshots::guard(&leased, "overlayfs", &chain[..1]).await.unwrap();
            assert_eq!(bottom, found[..1], "a single layer is a bind");

            for top in [chain[0], *top] {
                assert!(snapshots::unguard(&client, "overlayfs", top).await.unwrap());
                assert!(!snapshots::unguard(&client, "overlayfs", top).await.unwrap());
            }
            leases::delete(&client, "guard", true).await.unwrap();
            assert_eq!(snapshots::guard(&client, "overlayfs", &[Digest::of(b"nowhere")]).await.unwrap(), []);
        });
        node.containerd.snapshot_of_state().expect_equal(&before, "a guard that was taken away");
    });
}

/// Given records of others, then labels are changed one by one and nothing else is; nothing of theirs can be deleted.
#[test]
fn records_of_others_keep_what_others_set() {
    both(|version| {
        let node = Node::start("api-records", version);
        let (client, image) = (node.client(), &node.image);
        let before = node.containerd.snapshot_of_state().without_times();
        node.runtime.block_on(async {
            let record = images::get(&client, &image.name).await.unwrap().unwrap();
            let set = Labels::from([("io.imgwarden.protected".to_owned(), "pin".to_owned())]);
            let after = images::set_labels(&client, &record, &set).await.unwrap();
            let mut expected = record.clone();
            expected.labels.extend(set);
            assert_eq!(after, expected);
            let unset = Labels::from([("io.imgwarden.protected".to_owned(), String::new())]);
            images::set_labels(&client, &after, &unset).await.unwrap();
            images::set_labels(&client, &record, &Labels::new()).await.unwrap();

            assert!(images::create(&client, &record).await.unwrap_err().is_exists());
            assert!(matches!(
                images::delete_own(&client, &record.name).await,
                Err(ContainerdError::Precondition { .. })
            ));
            assert!(matches!(
                images::replace_own(&client, &record).await,
                Err(ContainerdError::Precondition { .. })
            ));
            assert_eq!(images::get(&client, "registry.test/none:1").await.unwrap(), None);
            assert_eq!(images::list_target(&client, &record.target).await.unwrap().len(), 3);
            let other = Descriptor { digest: Digest::of(b"other"), ..record.target.clone() };
            assert_eq!(images::list_target(&client, &other).await.unwrap(), []);
            let content = inventory::content(&client, &other).await.unwrap();
            assert_eq!((content.id, content.blobs.len()), (None, 0), "a dangling target is no failure");
        });
        node.containerd
            .snapshot_of_state()
            .without_times()
            .expect_equal(&before, "labels set and taken away");
    });
}

/// Given CRI, then it says what the harness configured.
#[test]
fn cri_and_introspection_say_what_containerd_is() {
    both(|version| {
        let node = Node::start("api-cri", version);
        let client = node.client();
        node.runtime.block_on(async {
            let cri = Cri::new(&client);
            let status = cri.status().await.unwrap();
            assert_eq!(status.sandbox_image.as_ref(), Some(&node.containerd.sandbox_image));
            assert_eq!(status.snapshotter.as_deref(), Some("overlayfs"));
            assert_eq!(status.root.as_deref(), Some(Path::new(&node.containerd.root())));
            assert_eq!(cri.containers().await.unwrap(), []);
            let image = cri.image_status(&node.image.name).await.unwrap().unwrap();
            assert_eq!((image.id, image.pinned), (node.image.id.clone(), false));
            assert_eq!(cri.image_status("registry.test/none:1").await.unwrap(), None);

            let expected = match version {
                Version::Debian => "1.6.",
                Version::V1_7 => "1.7.",
            };
            let text = introspect::version(&client).await.unwrap();
            assert!(text.trim_start_matches('v').starts_with(expected), "{text}");
            assert_eq!(introspect::server_id(&client).await.unwrap().len(), 36);
            let store = Store::find(&client, &cri).await.unwrap().unwrap();
            assert_eq!(store.snapshots.map(|root| root.join("snapshots")), Some(node.containerd.snapshots()));
        });
    });
}

/// Given a name that is moved to another image, then the event says so, and the old image's blobs are what went.
#[test]
fn a_moved_name_is_a_move() {
    let node = Node::start("api-move", Version::V1_7);
    let client = node.client();
    let archive = Archive::write(
        &node.containerd.scratch.dir.join("next.tar"),
        &[Spec::new("registry.test/app:1").layers(&[50]).own_base()],
    );
    node.runtime.block_on(async {
        let mut inventory = Inventory::load(&client, Limits::default()).await.unwrap();
        let mut events = events::subscribe(&client).await.unwrap();
        tokio::task::block_in_place(|| node.containerd.import(&archive));
        let moved = loop {
            let event =
                tokio::time::timeout(Duration::from_secs(10), events.next()).await.unwrap().unwrap().unwrap();
            if let Change::Moved { before, after, .. } =
                inventory.apply(&client, &event, Boottime(1)).await.unwrap()
            {
                break (before, after);
            }
        };
        assert_eq!(moved.0.record.target.digest, digest(&node.image.manifest));
        assert_eq!(moved.1.target.digest, digest(&archive.image().manifest));
    });
}

fn no_ingests(containerd: &Containerd) {
    let ingests = containerd.root().join("io.containerd.content.v1.content/ingest");
    let left: Vec<_> = fs::read_dir(&ingests).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(left, Vec::<std::path::PathBuf>::new());
}
