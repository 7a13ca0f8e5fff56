//! A node under test: a containerd with images, tarballs on the side, and the agent.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    agent::{Agent, of_type},
    containerd::{Containerd, Version},
    golden::Normaliser,
    image::{Archive, Image, Spec},
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
        let containerd = Containerd::start(test, version);
        let archives = containerd.scratch.dir.join("archives");
        fs::create_dir_all(&archives).expect("the scratch directory is writable");
        let kept =
            Archive::write(&archives.join("kept.tar"), &[Spec::new(KEPT).layers(&[4096, 70_000]).own_base()]);
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
        let (tarball, kept, plain) = (kept.path.clone(), kept.image().clone(), plain.image().clone());
        let mut node = Self { agent, kept, plain, tarball, containerd };
        if !config.contains("observe") {
            node.await_held();
        }
        node
    }

    /// Until lease and shadow of the protected image stand.
    pub fn await_held(&mut self) {
        self.agent.wait_for("the protected image to be held", PATIENCE, |events| {
            let held = |hold: &str| of_type(events, "hold.taken").any(|event| event["hold"] == hold);
            (held("lease") && held("shadow") && held("pin")).then_some(())
        });
    }

    /// The events of this one's first incident of a type, once it is closed.
    pub fn incident(&mut self, kind: &str) -> Vec<Value> {
        self.incidents(kind, 1).remove(0)
    }

    /// The events of the first `count` incidents that began with an event of this type, once all are closed.
    pub fn incidents(&mut self, kind: &str, count: usize) -> Vec<Vec<Value>> {
        self.agent.wait_for(&format!("{count} closed incidents of {kind}"), PATIENCE, |events| {
            let ids: Vec<&Value> =
                of_type(events, kind).map(|event| &event["incident"]).take(count).collect();
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

    /// A normaliser that knows this node's images and directories.
    #[must_use]
    pub fn normaliser(&self) -> Normaliser {
        Normaliser::new()
            .text(&self.containerd.scratch.dir.to_string_lossy(), "<dir>")
            .text(&self.containerd.scratch.run.to_string_lossy(), "<run>")
            .text(&self.kept.id, "<kept.id>")
            .text(&self.plain.id, "<plain.id>")
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
        for digest in image.blobs() {
            assert!(self.containerd.blob(digest).is_file(), "blob {digest} is missing");
        }
        let state = self.containerd.snapshot_of_state();
        let records = &state.namespaces["k8s.io"].images;
        for name in image.names() {
            assert!(records.contains_key(&name), "{name} is missing: {:?}", records.keys());
        }
    }
}
