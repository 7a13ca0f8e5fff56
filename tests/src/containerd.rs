//! A containerd of a test's own: private root, state, socket and config, CRI on, no network.
//!
//! Dropping it ends the daemon, the shims that outlived it and their containers, and every mount. It never touches
//! the machine's own containerd.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    cri::Cri,
    image::Archive,
    process::{Output, Process, poll, run},
    scratch::{Scratch, cache_dir},
    state::State,
};

mod leftovers;

/// The namespace that CRI uses.
pub const NAMESPACE: &str = "k8s.io";

/// How long a containerd may take to answer or to end; a busy machine needs seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which containerd.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Debian 12's 1.6: its CRI knows no pins.
    Debian,
    /// 1.7: pins count, deletion events of snapshots exist.
    V1_7,
}

impl Version {
    /// The directory of its programs; `None` says those of the machine's `PATH`.
    fn programs(self) -> Option<PathBuf> {
        match self {
            Self::Debian => None,
            Self::V1_7 => Some(cache_dir().join("containerd-1.7.24")),
        }
    }

    /// A program of this version.
    #[must_use]
    pub fn program(self, name: &str) -> PathBuf {
        let path = self.programs().map_or_else(|| Path::new("/usr/bin").join(name), |dir| dir.join(name));
        assert!(path.exists(), "{} is not there; cargo xtask setup", path.display());
        path
    }

    /// `PATH` for the daemon, whose shim must be of its own version.
    fn search_path(self) -> String {
        let system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        self.programs().map_or_else(|| system.to_owned(), |dir| format!("{}:{system}", dir.display()))
    }
}

/// A running containerd.
#[derive(Debug)]
pub struct Containerd {
    version: Version,
    // Declared before the directories: dropped before them.
    daemon: Option<Process>,
    /// Its directories; others of the same test may share them.
    pub scratch: Scratch,
    /// What CRI starts pods with.
    pub sandbox_image: String,
}

/// The sandbox image's name unless a test says another.
pub const SANDBOX_IMAGE: &str = "registry.test/pause:3.9";

impl Containerd {
    /// Starts one and waits until CRI answers.
    #[must_use]
    pub fn start(test: &str, version: Version) -> Self {
        Self::start_with(test, version, SANDBOX_IMAGE)
    }

    /// The same, with another sandbox image.
    #[must_use]
    pub fn start_with(test: &str, version: Version, sandbox_image: &str) -> Self {
        let scratch = Scratch::new(test);
        let mut containerd = Self { version, daemon: None, scratch, sandbox_image: sandbox_image.to_owned() };
        containerd.write_config();
        containerd.boot();
        containerd
    }

    /// The directory with `io.containerd.content.v1.content`.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.scratch.dir.join("root")
    }

    /// The directory of running tasks.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.scratch.run.join("state")
    }

    /// The gRPC socket.
    #[must_use]
    pub fn address(&self) -> PathBuf {
        self.scratch.run.join("containerd.sock")
    }

    /// Where a blob's file is, whether it is there or not.
    #[must_use]
    pub fn blob(&self, digest: &str) -> PathBuf {
        let hash = digest.strip_prefix("sha256:").unwrap_or(digest);
        self.root().join("io.containerd.content.v1.content/blobs/sha256").join(hash)
    }

    /// overlayfs' numbered directories.
    #[must_use]
    pub fn snapshots(&self) -> PathBuf {
        self.root().join("io.containerd.snapshotter.v1.overlayfs/snapshots")
    }

    /// The daemon's pid; panics while it is stopped.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.daemon.as_ref().map(Process::pid).expect("containerd is running")
    }

    /// The version asked for.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The `[containerd]` section of an agent's config for this one.
    #[must_use]
    pub fn agent_section(&self) -> String {
        format!(
            "[containerd]\naddress = {:?}\nroot = {:?}\nstate = {:?}\nnamespace = {NAMESPACE:?}\n",
            self.address(),
            self.root(),
            self.state()
        )
    }

    /// Starts the stopped daemon again on what it left.
    pub fn boot(&mut self) {
        assert!(self.daemon.is_none(), "containerd is already running");
        let log = self.scratch.log("containerd");
        let mut command = Command::new(self.version.program("containerd"));
        command.arg("--config").arg(self.config()).env("PATH", self.version.search_path());
        let mut daemon = Process::spawn("containerd", &mut command, &log);
        let ready = poll(PATIENCE, || {
            assert!(daemon.ended().is_none(), "containerd ended at its start; see {}", log.display());
            Cri::try_connect(&self.address())
        });
        self.daemon = Some(daemon);
        assert!(ready.is_some(), "containerd does not answer after {PATIENCE:?}");
    }

    /// Ends the daemon in order; containers go on.
    pub fn stop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.terminate(PATIENCE);
        }
    }

    /// SIGKILL; containers go on, and the socket's file stays.
    pub fn kill9(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            let _ = daemon.kill9();
        }
    }

    /// Ends it in order and starts it again.
    pub fn restart(&mut self) {
        self.stop();
        self.boot();
    }

    /// `ctr` of this version on this socket, in the namespace of CRI; the caller adds arguments and runs it.
    #[must_use]
    pub fn ctr_command(&self) -> Command {
        let mut command = Command::new(self.version.program("ctr"));
        command.arg("--address").arg(self.address()).args(["--namespace", NAMESPACE]);
        command
    }

    /// Runs `ctr` and panics unless it exits with 0.
    pub fn ctr(&self, arguments: &[&str]) -> Output {
        self.try_ctr(arguments).expect_success(&format!("ctr {}", arguments.join(" ")))
    }

    /// Runs `ctr`, however it ends.
    pub fn try_ctr(&self, arguments: &[&str]) -> Output {
        run(self.ctr_command().args(arguments), PATIENCE * 5)
    }

    /// Imports every image of a tarball and unpacks it, gives each the three names that a pull would leave (see
    /// [`Image::names`](crate::image::Image::names)), and waits until CRI knows it by all of them.
    pub fn import(&self, archive: &Archive) {
        let _ = self.ctr(&["images", "import", &archive.path.to_string_lossy()]);
        let mut cri = self.cri();
        for image in &archive.images {
            let [name, by_digest, id] = image.names();
            // The record of the id is CRI's answer to the event; the one with the digest is a person's doing here.
            cri.wait_for(&name);
            let _ = self.ctr(&["images", "tag", &name, &by_digest]);
            cri.wait_for(&by_digest);
            cri.wait_for(&id);
        }
    }

    /// The same without unpacking, which is much faster for many images; CRI doesn't list such images.
    pub fn import_packed(&self, archive: &Archive) -> Output {
        self.ctr(&["images", "import", "--no-unpack", &archive.path.to_string_lossy()])
    }

    /// A new CRI connection.
    #[must_use]
    pub fn cri(&self) -> Cri {
        Cri::try_connect(&self.address()).expect("CRI answers")
    }

    /// Everything that it holds, comparable.
    #[must_use]
    pub fn snapshot_of_state(&self) -> State {
        State::read(self)
    }

    fn config(&self) -> PathBuf {
        self.scratch.dir.join("containerd.toml")
    }

    fn write_config(&self) {
        let Self { version, daemon: _, scratch, sandbox_image } = self;
        let registries = scratch.dir.join("registries");
        fs::create_dir_all(&registries).expect("the scratch directory is writable");
        // An unprivileged machine can't lower oom_score_adj, and runc then fails every pod.
        let mut config = format!(
            r#"version = 2
root = {root:?}
state = {state:?}
[grpc]
  address = {address:?}
[debug]
  level = "debug"
[plugins."io.containerd.internal.v1.opt"]
  path = {opt:?}
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = {sandbox_image:?}
  restrict_oom_score_adj = true
  stream_server_port = "0"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {cni:?}
    conf_dir = {cni:?}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = {registries:?}
"#,
            root = self.root(),
            state = self.state(),
            address = self.address(),
            opt = scratch.dir.join("opt"),
            cni = scratch.dir.join("cni"),
        );
        if *version == Version::V1_7 {
            config.push_str("[plugins.\"io.containerd.nri.v1.nri\"]\n  disable = true\n");
        }
        fs::write(self.config(), config).expect("the scratch directory is writable");
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            // Killed rather than stopped: a test that fails must not hang here.
            let _ = daemon.kill9();
        }
        leftovers::end(&self.address(), &self.state());
    }
}
