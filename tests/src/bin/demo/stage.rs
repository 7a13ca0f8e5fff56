//! The node that the demo plays on: a containerd without a registry, four images from tarballs, the agent.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use imgwarden_tests::{
    agent::{Agent, of_type},
    client::{self, Kind},
    containerd::{Containerd, Version},
    image::{Archive, Image, Spec, damage},
    node::{Node, PATIENCE},
    scratch::{cache_dir, workspace},
};

use crate::{page::Page, tell::text};

/// Protected; its tarball is an OCI layout.
const WEB: &str = "registry.test/web:1";
/// Protected; its tarball is a docker-archive, compressed by gzip.
const DB: &str = "registry.test/db:1";
/// Protected; its tarball is damaged.
const MAIL: &str = "registry.test/mail:1";
/// Not protected.
const JOB: &str = "registry.test/job:1";

/// The size of each image's own layer, in bytes.
const LAYER: usize = 3_000_000;

/// Everything that is up.
#[derive(Debug)]
pub(crate) struct Stage {
    /// Its `kept` is the web image, its `plain` the job.
    pub(crate) node: Node,
    pub(crate) db: Image,
    pub(crate) mail: Image,
}

impl Stage {
    /// Starts it all and says so.
    pub(crate) fn set(page: &mut Page) -> Self {
        // Built before anything runs: the first time takes a while.
        let _ = client::program(Kind::Go);
        page.call(&workspace().to_string_lossy(), ".");
        page.call(&cache_dir().to_string_lossy(), "$CACHE");
        page.chapter("A node that has no registry");
        page.text(
            "A containerd of its own, four images imported from tarballs, and the agent. $NODE and $RUN stand for \
             the node's directories, `ctr` for `ctr --address $RUN/containerd.sock --namespace k8s.io`; digests are \
             cut to 12 digits. What stands under a command comes from imgwarden's events.",
        );
        page.blank();
        let containerd = Containerd::start("demo", Version::Debian);
        page.call(&containerd.scratch.dir.to_string_lossy(), "$NODE");
        page.call(&containerd.scratch.run.to_string_lossy(), "$RUN");
        page.field("containerd", &format!("{}, which Debian 12 ships", version(&containerd)));

        let archives = containerd.scratch.dir.join("archives");
        fs::create_dir_all(&archives).expect("the scratch directory is writable");
        let spec = |name: &str| Spec::new(name).layers(&[4096, LAYER]).own_base();
        let web = Archive::write(&archives.join("web.tar"), &[spec(WEB)]);
        let db = docker_archive(&containerd.scratch.dir, spec(DB));
        compress(&db.path, &archives.join("db.tar.gz"));
        let mail = Archive::write(&archives.join("mail.tar"), &[spec(MAIL)]);
        let job = Archive::write(&containerd.scratch.dir.join("job.tar"), &[spec(JOB)]);
        for (archive, kind) in [
            (&web, "protected; an OCI layout, $NODE/archives/web.tar"),
            (&db, "protected; a docker-archive by skopeo, $NODE/archives/db.tar.gz"),
            (&mail, "protected; one byte is wrong in $NODE/archives/mail.tar"),
            (&job, "not protected"),
        ] {
            containerd.import(archive);
            page.field("image", &format!("{:<20}  {kind}", archive.image().name));
        }
        damage::corrupt_last_layer(&mail);

        page.blank();
        page.command("imgwarden run --config $NODE/agent/config.toml");
        let config = format!(
            "[archives]\ndirs = [{archives:?}]\n\
             [[protect]]\nnames = [{WEB:?}, {DB:?}, {MAIL:?}]\npriority = \"high\"\n"
        );
        let agent = Agent::start(&config, &containerd);
        let [kept, plain] = [&web, &job].map(|archive| archive.image().clone());
        let mut node = Node { agent, kept, plain, tarball: web.path.clone(), containerd };
        for image in [&web, &db, &mail].map(Archive::image) {
            await_held(&mut node, image);
        }
        let pin = node.agent.wait_for_type("image.pin_ineffective", 1);
        let started = node.agent.wait_for_type("agent.started", 1);
        page.blank();
        for event in [&started, &pin] {
            page.field("event", &format!("{}: {}", text(&event["type"]), text(&event["message"])));
        }
        let events = node.agent.events();
        let holds =
            of_type(&events, "hold.taken").filter(|event| event["image"]["id"] == node.kept.id.as_str());
        for event in holds {
            page.field("event", &format!("hold.taken: {}", text(&event["message"])));
        }
        page.text(
            "The same holds stand for the other two. This containerd's CRI knows no pins, so it is leases and shadows \
             that hold here; a later chapter has a newer containerd.",
        );
        Self { node, db: db.image().clone(), mail: mail.image().clone() }
    }

    /// Where it lives.
    pub(crate) fn directories(&self) -> Vec<PathBuf> {
        let scratch = &self.node.containerd.scratch;
        vec![scratch.dir.clone(), scratch.run.clone()]
    }
}

/// The daemon's version, by its own word.
pub(crate) fn version(containerd: &Containerd) -> String {
    let said = containerd.ctr(&["version"]).stdout;
    // The client's comes first.
    let version = said.lines().filter_map(|line| line.trim().strip_prefix("Version:")).next_back();
    version.expect("ctr says the daemon's version").trim().to_owned()
}

/// A tarball as `docker save` writes it, by skopeo.
fn docker_archive(dir: &Path, spec: Spec) -> Archive {
    Archive::write(&dir.join("db.oci.tar"), &[spec]).to_docker_by_skopeo(&dir.join("db.tar"))
}

/// What a person's `gzip` does.
fn compress(from: &Path, to: &Path) {
    let mut plain = File::open(from).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    let file = File::create(to).unwrap_or_else(|error| panic!("{}: {error}", to.display()));
    let mut gzip = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    let _ = std::io::copy(&mut plain, &mut gzip).expect("the tarball can be compressed");
    let _ = gzip.finish().expect("the tarball can be compressed");
}

fn await_held(node: &mut Node, image: &Image) {
    node.agent.wait_for(&format!("{} to be held", image.name), PATIENCE, |events| {
        let held = |hold: &str| {
            of_type(events, "hold.taken")
                .any(|event| event["hold"] == hold && event["image"]["id"] == image.id.as_str())
        };
        (held("lease") && held("shadow")).then_some(())
    });
}
