//! A node under test: a containerd with images, tarballs on the side, and the agent.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    agent::{Agent, of_type},
    client::{Client, Kind},
    containerd::{Containerd, Version},
    golden::Normaliser,
    image::{Archive, Image, Spec},
    process::{poll, run},
};

/// The name that every test protects.
pub const KEPT: &str = "registry.test/kept:1";
/// The name that no test protects.
pub const PLAIN: &str = "registry.test/plain:1";

/// How long anything may take on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A containerd, a protected and an unprotected image from tarballs, and an agent.
#[derive(Debug)]
pub struct Node {
    pub agent: Agent,
    pub kept: Image,
    pub plain: Image,
    /// The tarball of the protected image, which the agent knows.
    pub tarball: PathBuf,
    pub containerd: Containerd,
}

impl Node {
    /// Everything up, and the protected image held.
    #[must_use]
    pub fn start(test: &str, version: Version) -> Self {
        Self::start_with(test, version, "")
    }

    /// The same with more config.
    #[must_use]
    pub fn start_with(test: &str, version: Version, config: &str) -> Self {
        let mut node = Self::start_unheld(test, version, config);
        node.await_held();
        node
    }

    /// The same without waiting for the holds, for an agent that takes none.
    #[must_use]
    pub fn start_unheld(test: &str, version: Version, config: &str) -> Self {
        Self::start_from(test, version, config, |path| {
            Archive::write(path, &[Spec::new(KEPT).layers(&[4096, 70_000]).own_base()])
        })
    }

    /// The same with a tarball of the protected image that `tarball` makes at the path that it is given;
    /// doesn't wait for the holds.
    #[must_use]
    pub fn start_from(
        test: &str,
        version: Version,
        config: &str,
        tarball: impl FnOnce(&Path) -> Archive,
    ) -> Self {
        let containerd = Containerd::start(test, version);
        let archives = containerd.scratch.dir.join("archives");
        fs::create_dir_all(&archives).expect("the scratch directory is writable");
        let path = archives.join("kept.tar");
        let kept = tarball(&path);
        let plain = Archive::write(
            &containerd.scratch.dir.join("plain.tar"),
            &[Spec::new(PLAIN).layers(&[2048]).own_base()],
        );
        containerd.import(&kept);
        containerd.import(&plain);
        let config = format!(
            "{config}\n[archives]\ndirs = [{archives:?}]\n[[protect]]\nnames = [{KEPT:?}]\npriority = \"high\"\n"
        );
        let agent = Agent::start(&config, &containerd);
        let (kept, plain) = (kept.image().clone(), plain.image().clone());
        Self { agent, kept, plain, tarball: path, containerd }
    }

    /// Until lease and shadow of the protected image stand.
    pub fn await_held(&mut self) {
        self.agent.wait_for("the protected image to be held", PATIENCE, |events| {
            let held = |hold: &str| of_type(events, "hold.taken").any(|event| event["hold"] == hold);
            let pin = held("pin") || of_type(events, "image.pin_ineffective").next().is_some();
            (held("lease") && held("shadow") && pin).then_some(())
        });
    }

    /// The events of this one's first incident of a type, once it is closed.
    pub fn incident(&mut self, kind: &str) -> Vec<Value> {
        self.incidents(kind, 1).remove(0)
    }

    /// The events of the first `count` incidents that began with an event of this type, once all are closed.
    pub fn incidents(&mut self, kind: &str, count: usize) -> Vec<Vec<Value>> {
        self.stories(kind, count, |_| true)
    }

    /// The same of one image, by its id.
    pub fn incidents_of(&mut self, id: &str, kind: &str, count: usize) -> Vec<Vec<Value>> {
        self.stories(kind, count, |event| event["image"]["id"] == id)
    }

    fn stories(&mut self, kind: &str, count: usize, wanted: impl Fn(&Value) -> bool) -> Vec<Vec<Value>> {
        self.agent.wait_for(&format!("{count} closed incidents of {kind}"), PATIENCE, |events| {
            let wanted = of_type(events, kind).filter(|event| wanted(event));
            let ids: Vec<&Value> = wanted.map(|event| &event["incident"]).take(count).collect();
            let stories: Vec<Vec<Value>> = ids
                .iter()
                .map(|id| events.iter().filter(|event| event["incident"] == **id).cloned().collect())
                .collect();
            let closed = stories
                .iter()
                .all(|story: &Vec<Value>| story.iter().any(|event| event["type"] == "incident.closed"));
            (ids.len() == count && closed).then_some(stories)
        })
    }

    /// A process of its own removes an image through CRI, as the kubelet does.
    pub fn remove_through_cri(&self, kind: Kind, image: &str) {
        let mut client = Client::start(kind, &self.containerd, false);
        client
            .ask(&format!("remove-cri {image}"))
            .unwrap_or_else(|error| panic!("RemoveImage {image}: {error}"));
        client.close();
    }

    /// Removes the files of these blobs by a shell.
    pub fn remove_blobs(&self, blobs: &[&str]) {
        let mut rm = Command::new("rm");
        rm.args(blobs.iter().map(|digest| self.containerd.blob(digest)));
        let _ = run(&mut rm, PATIENCE).expect_success("rm");
    }

    /// Waits for an image's lease and shadow, with every blob in both.
    pub fn expect_held(&self, image: &Image) {
        let lease = format!("imgwarden-{}", &image.manifest.trim_start_matches("sha256:")[..16]);
        let problem = std::cell::RefCell::new(String::new());
        let held = poll(PATIENCE, || {
            let state = self.containerd.snapshot_of_state();
            let missing = || {
                let resources = &state.namespaces["k8s.io"].leases.get(&lease).ok_or("no lease")?.resources;
                let shadow = state.namespaces.get("imgwarden").ok_or("no shadow namespace")?;
                if !shadow.images.values().any(|record| record.target == image.manifest) {
                    return Err("no shadow".to_owned());
                }
                for blob in image.blobs() {
                    if !resources.contains(&format!("content/{blob}")) {
                        return Err(format!("{blob} is not in the lease"));
                    }
                    if !shadow.content.contains_key(blob) {
                        return Err(format!("{blob} is not in the shadow"));
                    }
                }
                Ok(())
            };
            missing().map_err(|what| problem.replace(what)).ok()
        });
        assert!(held.is_some(), "{} is not held: {}", image.name, problem.borrow());
    }

    /// Waits until nothing is left of a repair: no lease of a repair or of a hold in the making, no ingest.
    pub fn expect_tidy(&self) {
        let ingests = self.containerd.root().join("io.containerd.content.v1.content/ingest");
        let problem = std::cell::RefCell::new(Vec::new());
        let tidy = poll(PATIENCE, || {
            let state = self.containerd.snapshot_of_state();
            let leases = state.namespaces.values().flat_map(|namespace| namespace.leases.keys());
            let temporary =
                |id: &&String| id.starts_with("imgwarden-repair-") || id.starts_with("imgwarden-take-");
            let mut left: Vec<String> = leases.filter(temporary).cloned().collect();
            let entries = fs::read_dir(&ingests).into_iter().flatten().flatten();
            left.extend(entries.map(|entry| entry.path().display().to_string()));
            problem.replace(left).clear();
            problem.borrow().is_empty().then_some(())
        });
        assert!(tidy.is_some(), "left over: {:?}", problem.borrow());
    }

    /// The journal's chain is unbroken.
    pub fn expect_journal(&self) {
        let report = imgwarden::audit::chain::verify(&self.agent.journal()).expect("the journal can be read");
        assert!(report.intact(), "{report:?}");
    }

    /// A normaliser that knows this node's images and directories.
    #[must_use]
    pub fn normaliser(&self) -> Normaliser {
        let named = |normaliser: Normaliser, image: &Image, name: &str| {
            let layers = image.layers.iter().enumerate();
            layers
                .fold(normaliser, |normaliser, (number, layer)| {
                    let hash = layer.digest.trim_start_matches("sha256:");
                    normaliser.text(hash, &format!("<{name}.layer {number}>"))
                })
                .text(image.manifest.trim_start_matches("sha256:"), &format!("<{name}.manifest>"))
                .text(image.id.trim_start_matches("sha256:"), &format!("<{name}.id>"))
        };
        let normaliser = named(Normaliser::new(), &self.kept, "kept");
        named(normaliser, &self.plain, "plain")
            .text(&self.containerd.scratch.dir.to_string_lossy(), "<dir>")
            .text(&self.containerd.scratch.run.to_string_lossy(), "<run>")
    }

    /// Asserts that the protected image is whole, by CRI's word and by its files.
    pub fn expect_whole(&self, image: &Image) {
        let mut cri = self.containerd.cri();
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = cri.image_status(&image.name) {
                break status;
            }
            assert!(Instant::now() < deadline, "{} is not back", image.name);
            std::thread::sleep(Duration::from_millis(20));
        };
        assert_eq!(status.id, image.id);
        let blobs: Vec<PathBuf> =
            image.blobs().into_iter().map(|digest| self.containerd.blob(digest)).collect();
        let hashes = run(Command::new("sha256sum").args(&blobs), PATIENCE).expect_success("sha256sum");
        for line in hashes.stdout.lines() {
            let (hash, path) = line.split_once("  ").expect("sha256sum prints a hash and a path");
            assert!(path.ends_with(hash), "{path} has the hash {hash}");
        }
        // Names come back one after the other.
        let missing = std::cell::RefCell::new(Vec::new());
        let named = poll(PATIENCE, || {
            let state = self.containerd.snapshot_of_state();
            let records = &state.namespaces["k8s.io"].images;
            missing.replace(image.names().into_iter().filter(|name| !records.contains_key(name)).collect());
            missing.borrow().is_empty().then_some(())
        });
        assert!(named.is_some(), "missing: {:?}", missing.borrow());
    }
}
