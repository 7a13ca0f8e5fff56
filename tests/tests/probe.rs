//! The probe against the running kernel: what is done on this machine, and what it tells of it.
//!
//! Needs root (or CAP_BPF and CAP_PERFMON) and a kernel with BTF; the programs are attached while a test runs.

#![expect(clippy::unwrap_used, clippy::panic, reason = "tests panic")]

use std::{
    fs,
    io::{Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::{Command, Output},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use imgwarden::{
    digest::Digest,
    probe::{
        Hook, Options, Probe, Sink, Watches,
        record::{Boottime, Entry, Gap, How, Process, ProcessKey, Record, Removal, Send},
    },
};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a record may take to arrive; only a failing test waits so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// The client whose calls are watched: the test's own process is the agent's, and its sends are no news.
const PYTHON: &str = "/usr/bin/python3";

/// A send, owned: the tests send nothing secret.
#[derive(Debug, Clone)]
struct Sent {
    connection: u64,
    write: u64,
    accepted: u64,
    offset: u64,
    bytes: Vec<u8>,
    process: Arc<Process>,
}

#[derive(Debug, Default)]
struct Seen {
    sends: Vec<Sent>,
    removals: Vec<Removal>,
    exits: Vec<ProcessKey>,
    gaps: Vec<(Gap, u64)>,
    /// Up to when everything is said to have been delivered.
    drained: Boottime,
}

#[derive(Clone, Default)]
struct Keep(Arc<Mutex<Seen>>);

impl Sink for Keep {
    fn send(&mut self, send: Send<'_>) {
        self.0.lock().unwrap().sends.push(Sent {
            connection: send.connection.0,
            write: send.write,
            accepted: send.accepted,
            offset: send.offset,
            bytes: send.bytes.to_vec(),
            process: send.process,
        });
    }

    fn record(&mut self, record: Record) {
        let mut seen = self.0.lock().unwrap();
        match record {
            Record::Removal(removal) => seen.removals.push(removal),
            Record::Exited { key, .. } => seen.exits.push(key),
            Record::Gap { what, count } => seen.gaps.push((what, count)),
        }
    }

    fn drained(&mut self, at: Boottime) {
        self.0.lock().unwrap().drained = at;
    }
}

/// A containerd root of a test's own, watched.
struct Node {
    dir: TempDir,
    seen: Keep,
    cancel: CancellationToken,
    running: JoinHandle<()>,
}

impl Node {
    fn new() -> Self {
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let node = dir.path();
        fs::create_dir_all(node.join("root/io.containerd.content.v1.content/blobs/sha256")).unwrap();
        fs::create_dir_all(node.join("root/io.containerd.content.v1.content/ingest/1")).unwrap();
        fs::create_dir_all(node.join("root/io.containerd.snapshotter.v1.overlayfs/snapshots")).unwrap();
        fs::create_dir_all(node.join("run")).unwrap();
        let mut probe = Probe::load(&Options::default()).unwrap();
        probe
            .watch(&Watches {
                content_dirs: vec![node.join("root/io.containerd.content.v1.content")],
                snapshot_dirs: vec![node.join("root/io.containerd.snapshotter.v1.overlayfs/snapshots")],
                sockets: vec![node.join("run/containerd.sock")],
            })
            .unwrap();
        let (seen, cancel) = (Keep::default(), CancellationToken::new());
        let (sink, token) = (seen.clone(), cancel.clone());
        let running = tokio::spawn(async move { probe.run(sink, token).await.unwrap() });
        Self { dir, seen, cancel, running }
    }

    fn content(&self) -> PathBuf {
        self.dir.path().join("root/io.containerd.content.v1.content")
    }

    fn blobs(&self) -> PathBuf {
        self.content().join("blobs/sha256")
    }

    fn snapshots(&self) -> PathBuf {
        self.dir.path().join("root/io.containerd.snapshotter.v1.overlayfs/snapshots")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/containerd.sock")
    }

    /// A new blob; its name is the digest of `seed`.
    fn blob(&self, seed: u64) -> (PathBuf, Digest) {
        let digest = Digest::of(&seed.to_ne_bytes());
        let path = self.blobs().join(digest.to_hex());
        fs::write(&path, seed.to_ne_bytes()).unwrap();
        (path, digest)
    }

    /// Waits until what was seen gives something.
    async fn wait<T>(&self, what: &str, find: impl Fn(&Seen) -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = find(&self.seen.0.lock().unwrap()) {
                return found;
            }
            if Instant::now() > until {
                let seen = self.seen.0.lock().unwrap();
                panic!(
                    "{what}: not seen; removals {:#?}, {} sends, gaps {:?}",
                    seen.removals,
                    seen.sends.len(),
                    seen.gaps
                );
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn removal(&self, what: &str, entry: Entry) -> Removal {
        self.wait(what, |seen| seen.removals.iter().find(|removal| removal.entry == entry).cloned()).await
    }

    /// Everything that was done before this call has been told.
    async fn settled(&self) {
        // A record that matters to nobody wakes the probe.
        let (path, digest) = self.blob(u64::MAX);
        fs::remove_file(path).unwrap();
        self.removal("the record that ends a test", Entry::Blob(digest)).await;
    }

    async fn end(self) -> Seen {
        self.settled().await;
        self.cancel.cancel();
        self.running.await.unwrap();
        let mut seen = std::mem::take(&mut *self.seen.0.lock().unwrap());
        let last = Entry::Blob(Digest::of(&u64::MAX.to_ne_bytes()));
        seen.removals.retain(|removal| removal.entry != last);
        seen
    }
}

/// A shell script that removes the blob of the given hex name.
type Script<'a> = Box<dyn Fn(&str) -> String + 'a>;

/// Runs a shell script; it must succeed.
fn sh(script: &str) {
    let done = Command::new("sh").args(["-c", script]).output().unwrap();
    assert!(done.status.success(), "{script}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hook_attaches_within_its_budget() {
    let probe = Probe::load(&Options::default()).unwrap();
    println!("{:#?}", probe.report());
    assert!(probe.report().hooks.iter().all(Hook::attached), "{:#?}", probe.report());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_remove_a_blob_is_seen() {
    let node = Node::new();
    let (blobs, content) = (node.blobs().display().to_string(), node.content().display().to_string());
    let outside = node.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    let outside = outside.display();
    std::os::unix::fs::symlink(&blobs, format!("{outside}/alias")).unwrap();
    let ways: [(&str, Script, How); 11] = [
        ("rm of an absolute path", Box::new(|x| format!("rm {blobs}/{x}")), How::Unlinked),
        ("cd and rm", Box::new(|x| format!("cd {blobs}; rm {x}")), How::Unlinked),
        ("rm ./x", Box::new(|x| format!("cd {blobs}; rm ./{x}")), How::Unlinked),
        ("rm from above", Box::new(|x| format!("cd {content}/blobs; rm sha256/{x}")), How::Unlinked),
        ("rm from two above", Box::new(|x| format!("cd {content}; rm blobs/sha256/{x}")), How::Unlinked),
        (
            "rm through ..",
            Box::new(|x| format!("cd {content}/ingest; rm ../blobs/sha256/{x}")),
            How::Unlinked,
        ),
        ("rm by a symbolic link", Box::new(|x| format!("rm {outside}/alias/{x}")), How::Unlinked),
        (
            "find -delete (by descriptor)",
            Box::new(|x| format!("find {blobs} -name {x} -delete")),
            How::Unlinked,
        ),
        ("mv away", Box::new(|x| format!("mv {blobs}/{x} {outside}/")), How::RenamedAway),
        ("cd and mv away", Box::new(|x| format!("cd {blobs}; mv {x} {outside}/")), How::RenamedAway),
        (
            "mv over",
            Box::new(|x| format!("echo evil > {outside}/evil; mv -f {outside}/evil {blobs}/{x}")),
            How::Replaced,
        ),
    ];
    for (seed, (what, script, how)) in (1..).zip(ways) {
        let (_, digest) = node.blob(seed);
        sh(&script(&digest.to_hex()));
        let removal = node.removal(what, Entry::Blob(digest)).await;
        assert_eq!(removal.how, how, "{what}");
        let exe = removal.process.program.exe.as_deref().unwrap_or_else(|| panic!("{what}: {removal:#?}"));
        assert!(["/usr/bin/rm", "/usr/bin/mv", "/usr/bin/find"].contains(&exe), "{what}: {exe}");
    }
    let seen = node.end().await;
    assert_eq!(seen.removals.len(), 11, "each once: {:#?}", seen.removals);
    assert_eq!(seen.gaps, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshots_directory_is_seen_to_go() {
    let node = Node::new();
    let snapshots = node.snapshots();
    for (number, script) in [
        (7, format!("rm -rf {}/7", snapshots.display())),
        (8, format!("cd {}; rm -rf 8", snapshots.display())),
        (9, format!("rmdir {}/9/", snapshots.display())),
    ] {
        fs::create_dir(snapshots.join(number.to_string())).unwrap();
        sh(&script);
        let removal = node.removal(&script, Entry::Snapshot(number)).await;
        assert_eq!(removal.how, How::Unlinked);
    }
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_removal_is_not_told() {
    let node = Node::new();
    let hex = Digest::of(b"decoy").to_hex();
    let elsewhere = node.dir.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join(&hex), "").unwrap();
    // Given a file with a blob's name elsewhere, and a directory with a snapshot's.
    fs::remove_file(elsewhere.join(&hex)).unwrap();
    fs::create_dir(elsewhere.join("7")).unwrap();
    fs::remove_dir(elsewhere.join("7")).unwrap();
    // Failed calls.
    assert!(fs::remove_file(node.blobs().join(&hex)).is_err());
    fs::create_dir_all(node.snapshots().join("3/fs")).unwrap();
    assert!(fs::remove_dir(node.snapshots().join("3")).is_err());
    // A blob's arrival, as containerd writes it.
    let ingest = node.content().join("ingest/1/data");
    fs::write(&ingest, "new").unwrap();
    fs::rename(&ingest, node.blobs().join(&hex)).unwrap();
    // A snapshot's arrival.
    fs::create_dir(node.snapshots().join("new-123")).unwrap();
    fs::rename(node.snapshots().join("new-123"), node.snapshots().join("12")).unwrap();
    let seen = node.end().await;
    assert_eq!(seen.removals, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_is_made_again_is_watched_again() {
    let node = Node::new();
    for round in 0..3 {
        let (first, digest) = node.blob(100 + round);
        sh(&format!("rm -rf {}", node.content().join("blobs").display()));
        node.removal("a blob of rm -rf", Entry::Blob(digest)).await;
        assert!(!first.exists());
        fs::create_dir_all(node.blobs()).unwrap();
        // The agent learns of it by inotify; the first removals after it can be missed, for milliseconds.
        tokio::time::sleep(Duration::from_millis(200)).await;
        let (path, digest) = node.blob(200 + round);
        sh(&format!("cd {}; rm {}", node.blobs().display(), digest.to_hex()));
        let _ = path;
        node.removal("a blob of the directory made again", Entry::Blob(digest)).await;
    }
    let seen = node.end().await;
    assert!(seen.removals.iter().any(|removal| removal.entry == Entry::Directory));
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_short_lived_rm_have_their_programs() {
    let node = Node::new();
    for seed in 0..500 {
        let (path, _) = node.blob(1000 + seed);
        sh(&format!("rm {}; :", path.display()));
    }
    let seen = node.end().await;
    assert_eq!(seen.removals.len(), 500, "gaps {:?}", seen.gaps);
    for removal in &seen.removals {
        let process = &removal.process;
        assert_eq!(process.program.exe.as_deref(), Some("/usr/bin/rm"), "{process:#?}");
        assert_eq!(process.program.argv[0], "rm", "{process:#?}");
        assert_eq!(process.program.argv.len(), 2, "{process:#?}");
        assert_eq!(process.comm, "rm");
        let parent = &process.parents[0];
        assert_eq!(parent.program.exe.as_deref(), Some("/usr/bin/dash"), "{process:#?}");
        assert_eq!(parent.program.argv[1], "-c", "{process:#?}");
        assert_eq!(process.parents[1].key.pid, std::process::id(), "{process:#?}");
        assert!(process.parents[1].program.exe.is_some(), "{process:#?}");
    }
    assert_eq!(seen.gaps, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_is_told_with_its_interpreter() {
    use std::os::unix::fs::PermissionsExt as _;
    let node = Node::new();
    let (path, digest) = node.blob(1);
    let script = node.dir.path().join("clean.py");
    fs::write(&script, format!("#!{PYTHON}\nimport os\nos.unlink('{}')\n", path.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(Command::new(&script).status().unwrap().success());
    let removal = node.removal("the script's unlink", Entry::Blob(digest)).await;
    let program = &removal.process.program;
    assert_eq!(program.script.as_deref(), script.to_str(), "{program:?}");
    assert!(program.exe.as_deref().unwrap().starts_with("/usr/bin/python3"), "{program:?}");
    node.end().await;
}

/// A server on the node's socket that keeps all that one connection sends.
struct Server {
    listener: UnixListener,
}

impl Server {
    fn bind(path: &Path) -> Self {
        let _ = fs::remove_file(path);
        Self { listener: UnixListener::bind(path).unwrap() }
    }

    /// Runs a Python client that finds a connected socket `s`; gives its pid, what it printed, and what arrived.
    /// `late`: the server reads only when the client is done.
    fn client(&self, socket: &Path, body: &str, late: bool) -> (u32, String, Vec<u8>) {
        let script = format!(
            "import socket, os, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect('{}')\n{body}",
            socket.display()
        );
        let child = Command::new(PYTHON)
            .args(["-c", &script])
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{PYTHON}: {error}; cargo xtask setup installs it"));
        let pid = child.id();
        let (mut connection, _) = self.listener.accept().unwrap();
        let mut all = Vec::new();
        let finish = |child: std::process::Child| -> Output { child.wait_with_output().unwrap() };
        let output = if late {
            let output = finish(child);
            connection.read_to_end(&mut all).unwrap();
            output
        } else {
            connection.read_to_end(&mut all).unwrap();
            finish(child)
        };
        assert!(output.status.success(), "{body}: {}", String::from_utf8_lossy(&output.stderr));
        (pid, String::from_utf8(output.stdout).unwrap(), all)
    }
}

impl Seen {
    /// The writes of a process, put together: what was accepted, and the bytes.
    fn writes(&self, pid: u32) -> Vec<(u64, Vec<u8>)> {
        let mut writes: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        for sent in self.sends.iter().filter(|sent| sent.process.key.pid == pid) {
            match writes.last_mut().filter(|(write, ..)| *write == sent.write) {
                Some((_, accepted, bytes)) => {
                    assert_eq!(
                        (*accepted, bytes.len() as u64),
                        (sent.accepted, sent.offset),
                        "parts in order"
                    );
                    bytes.extend(&sent.bytes);
                }
                None => {
                    assert_eq!(sent.offset, 0, "a write starts at its start");
                    writes.push((sent.write, sent.accepted, sent.bytes.clone()));
                }
            }
        }
        writes.into_iter().map(|(_, accepted, bytes)| (accepted, bytes)).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_way_to_send_is_seen_whole() {
    let node = Node::new();
    let socket = node.socket();
    let server = Server::bind(&socket);
    let ways = [
        ("write", "os.write(s.fileno(), b'PRI * HTTP/2.0')", 1),
        ("sendto", "s.send(b'0123456789')", 1),
        ("writev of 30", "os.writev(s.fileno(), [bytes([65 + n]) * (n + 1) for n in range(30)])", 1),
        ("sendmsg of 30", "s.sendmsg([bytes([65 + n]) * (n * 7) for n in range(30)])", 1),
        ("64 KiB", "assert os.write(s.fileno(), bytes(n * 7 % 251 for n in range(65536))) == 65536", 1),
        (
            "64 KiB of 30",
            "assert s.sendmsg([bytes([n]) * 2184 for n in range(30)] + [b'x' * 16]) == 65536",
            1,
        ),
        ("several", "[os.write(s.fileno(), b'x' * n) for n in range(1, 60)]", 59),
    ];
    for (what, body, count) in ways {
        let (pid, _, arrived) = server.client(&socket, body, false);
        node.settled().await;
        let writes = node.seen.0.lock().unwrap().writes(pid);
        assert_eq!(writes.len(), count, "{what}");
        let bytes: Vec<u8> = writes.iter().flat_map(|(_, bytes)| bytes.clone()).collect();
        assert!(bytes == arrived, "{what}: {} of {} bytes, or others", bytes.len(), arrived.len());
        assert_eq!(writes.iter().map(|(accepted, _)| accepted).sum::<u64>(), arrived.len() as u64, "{what}");
    }
    // More than is kept: the hole has a known length.
    let (pid, _, arrived) = server.client(&socket, "s.sendall(b'y' * 100000)", false);
    node.settled().await;
    let writes = node.seen.0.lock().unwrap().writes(pid);
    assert_eq!(writes.iter().map(|(accepted, _)| accepted).sum::<u64>(), arrived.len() as u64);
    assert!(writes.iter().all(|(accepted, bytes)| bytes.len() as u64 == (*accepted).min(65536)));
    let seen = node.end().await;
    assert_eq!(seen.gaps, []);
    let connections: std::collections::HashSet<u64> = seen.sends.iter().map(|sent| sent.connection).collect();
    assert_eq!(connections.len(), 8, "one of each client");
    let process = &seen.sends[0].process;
    assert!(process.program.exe.as_deref().unwrap().starts_with("/usr/bin/python3"), "{process:#?}");
    assert_eq!((process.comm.as_str(), process.uid), ("python3", 0));
    assert_eq!(process.parents[0].key.pid, std::process::id());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_short_write_exactly_the_accepted_bytes_are_told() {
    let node = Node::new();
    let socket = node.socket();
    let server = Server::bind(&socket);
    let body = "s.setblocking(False)\nsent = []\ntry:\n  while len(sent) < 1000: sent.append(os.writev(s.fileno(), [b'a' * 1000, b'b' * 40000]))\n\
                except BlockingIOError: pass\nprint(' '.join(map(str, sent)))";
    let (pid, printed, arrived) = server.client(&socket, body, true);
    let accepted: Vec<u64> = printed.split_whitespace().map(|count| count.parse().unwrap()).collect();
    assert!(accepted.last().is_some_and(|last| *last < 41000), "a short write was provoked: {accepted:?}");
    let seen = node.end().await;
    let writes = seen.writes(pid);
    assert_eq!(writes.iter().map(|(accepted, _)| *accepted).collect::<Vec<_>>(), accepted);
    let bytes: Vec<u8> = writes.into_iter().flat_map(|(_, bytes)| bytes).collect();
    assert!(bytes == arrived, "{} of {} bytes, or others", bytes.len(), arrived.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_socket_that_is_bound_anew_still_matches() {
    let node = Node::new();
    let socket = node.socket();
    for _ in 0..3 {
        let server = Server::bind(&socket);
        let (pid, ..) = server.client(&socket, "s.send(b'hello')", false);
        node.settled().await;
        assert_eq!(node.seen.0.lock().unwrap().writes(pid), [(5, b"hello".to_vec())]);
    }
    // Its directory is made anew as well, as systemd does with RuntimeDirectory=.
    fs::remove_dir_all(socket.parent().unwrap()).unwrap();
    fs::create_dir(socket.parent().unwrap()).unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let server = Server::bind(&socket);
    let (pid, ..) = server.client(&socket, "s.send(b'hello')", false);
    node.settled().await;
    assert_eq!(node.seen.0.lock().unwrap().writes(pid), [(5, b"hello".to_vec())]);
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_sends_and_other_sockets_are_not_told() {
    let node = Node::new();
    let server = Server::bind(&node.socket());
    let other = node.dir.path().join("run/other.sock");
    let unwatched = Server::bind(&other);
    unwatched.client(&other, "s.send(b'not for containerd')", false);
    let mut own = UnixStream::connect(node.socket()).unwrap();
    own.write_all(b"from the agent itself").unwrap();
    let (mut replies, _) = server.listener.accept().unwrap();
    replies.write_all(b"a reply").unwrap();
    let seen = node.end().await;
    assert!(seen.sends.is_empty(), "{} sends", seen.sends.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_client_is_told_after_its_sends() {
    let node = Node::new();
    let socket = node.socket();
    let server = Server::bind(&socket);
    let threads = "import threading\nt = threading.Thread(target=lambda: s.send(b'from a thread'))\nt.start(); t.join(); s.send(b'last')";
    let (pid, ..) = server.client(&socket, threads, false);
    node.wait("the client's end", |seen| seen.exits.iter().find(|key| key.pid == pid).copied()).await;
    let writes = node.seen.0.lock().unwrap().writes(pid);
    assert_eq!(writes.len(), 2, "the sends came first");
    sh("true");
    let seen = node.end().await;
    assert_eq!(seen.exits.len(), 1, "one end a process, and only of clients: {:?}", seen.exits);
    assert!(seen.sends.iter().all(|sent| sent.process.key == seen.exits[0]));
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_vector_beyond_the_limit_the_rest_is_a_hole_of_known_length() {
    let node = Node::new();
    let socket = node.socket();
    let server = Server::bind(&socket);
    let body = "s.sendmsg([b'z'] * 200)";
    let (pid, _, arrived) = server.client(&socket, body, false);
    node.settled().await;
    let writes = node.seen.0.lock().unwrap().writes(pid);
    assert_eq!(writes.len(), 1);
    assert_eq!((writes[0].0, arrived.len()), (200, 200), "the hole's length is known");
    assert_eq!(writes[0].1, b"z".repeat(128), "segments beyond the limit are not looked at");
    node.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_before_drained_was_delivered() {
    let node = Node::new();
    node.settled().await;
    let at = node.wait("drained", |seen| (seen.drained > Boottime(0)).then_some(seen.drained)).await;
    assert!(at < imgwarden::probe::now());
    thread::sleep(Duration::from_millis(1));
    node.end().await;
}
