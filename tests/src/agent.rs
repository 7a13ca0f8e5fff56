//! The real agent, as a program of its own, beside a test's containerd: private config, state, journal and socket.
//!
//! Events are read from its journal's files, as a log shipper reads them. Dropping it kills it.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    containerd::Containerd,
    process::{Output, Process, run},
};

/// How long the agent may take to start or to stop on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often the journal is read while something is awaited.
const POLL: Duration = Duration::from_millis(20);

/// A running agent.
#[derive(Debug)]
pub struct Agent {
    process: Option<Process>,
    /// Where its config, state, journal and socket are.
    dir: PathBuf,
    log: PathBuf,
}

impl Agent {
    /// Starts the agent on this containerd and waits until it says so; `config` is a drop-in over the private paths.
    #[must_use]
    pub fn start(config: &str, containerd: &Containerd) -> Self {
        let mut agent = Self::prepare(config, containerd);
        agent.boot();
        agent
    }

    /// Writes the config and starts nothing.
    #[must_use]
    pub fn prepare(config: &str, containerd: &Containerd) -> Self {
        let dir = containerd.scratch.dir.join("agent");
        let drop_ins = dir.join("config.toml.d");
        fs::create_dir_all(&drop_ins).expect("the scratch directory is writable");
        let base = format!(
            "state_dir = {state:?}\nnode = \"test-node\"\n{containerd}\
             [holds]\nlink_dir = {links:?}\n\
             [archives]\ndirs = []\n\
             [journal]\ndir = {journal:?}\n\
             [control]\nsocket = {socket:?}\n\
             [http]\nlisten = \"\"\n",
            state = dir.join("state"),
            containerd = containerd.agent_section(),
            links = containerd.scratch.dir.join("links"),
            journal = dir.join("journal"),
            socket = containerd.scratch.run.join("imgwarden.sock"),
        );
        fs::write(dir.join("config.toml"), base).expect("the scratch directory is writable");
        fs::write(drop_ins.join("50-test.toml"), config).expect("the scratch directory is writable");
        Self { process: None, log: containerd.scratch.log("agent"), dir }
    }

    /// Starts it, or starts it again, and waits for its own `agent.started`.
    pub fn boot(&mut self) {
        self.boot_with(&[]);
    }

    /// The same with more arguments after `run`.
    pub fn boot_with(&mut self, arguments: &[&str]) {
        self.launch(arguments);
        let started = |events: &[Value]| of_type(events, "agent.started").count();
        let before = started(&self.events());
        self.wait_for("agent.started", PATIENCE, |events| (started(events) > before).then_some(()));
    }

    /// Starts it without waiting for anything, for an agent that can't start yet.
    pub fn launch(&mut self, arguments: &[&str]) {
        assert!(self.process.is_none(), "the agent is already running");
        let mut command = self.command("run");
        command.args(arguments);
        self.process = Some(Process::spawn("imgwarden", &mut command, &self.log));
    }

    /// Another command of the same program with the same config, ready to run.
    #[must_use]
    pub fn command(&self, subcommand: &str) -> Command {
        let mut command = Command::new(binary());
        command.arg(subcommand).arg("--config").arg(self.config());
        command
    }

    /// Runs `imgwarden SUBCOMMAND --config … ARGUMENTS` to its end.
    #[must_use]
    pub fn cli(&self, subcommand: &str, arguments: &[&str]) -> Output {
        run(self.command(subcommand).args(arguments), PATIENCE)
    }

    /// Its config file.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// Its journal's directory.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal")
    }

    /// Its state directory.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        self.dir.join("state")
    }

    /// What it has written to stdout and stderr.
    #[must_use]
    pub fn said(&self) -> String {
        fs::read(&self.log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }

    /// Its process; panics while it is not running.
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the agent is running")
    }

    /// Its pid.
    pub fn pid(&mut self) -> u32 {
        self.process().pid()
    }

    /// Resident memory now, in bytes.
    pub fn rss(&mut self) -> u64 {
        status_bytes(self.pid(), "VmRSS:")
    }

    /// The most that it ever had resident, in bytes.
    pub fn peak_rss(&mut self) -> u64 {
        status_bytes(self.pid(), "VmHWM:")
    }

    /// Processor time that it has used, user and system.
    pub fn cpu(&mut self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid())).expect("the agent is running");
        // The fields after the name, which may hold anything: utime and stime are the 14th and 15th of all.
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        let ticks: u64 =
            fields.split_whitespace().skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_secs(ticks)
            / u32::try_from(rustix::param::clock_ticks_per_second()).expect("a small number")
    }

    /// All events in the journal, in order.
    #[must_use]
    pub fn events(&self) -> Vec<Value> {
        read_journal(&self.journal())
    }

    /// Waits until `found` finds what it looks for in the events; panics with all of them past `timeout`.
    pub fn wait_for<T>(&mut self, what: &str, timeout: Duration, found: impl Fn(&[Value]) -> Option<T>) -> T {
        let deadline = Instant::now() + timeout;
        loop {
            let events = self.events();
            if let Some(value) = found(&events) {
                return value;
            }
            let ended = self.process.as_mut().and_then(Process::ended);
            if ended.is_some() || Instant::now() >= deadline {
                let outcome = ended.map_or_else(
                    || format!("not seen in {timeout:?}"),
                    |status| format!("the agent ended before: {status}"),
                );
                panic!("{what}: {outcome}; the events:\n{}\nit said:\n{}", summary(&events), self.said());
            }
            thread::sleep(POLL);
        }
    }

    /// Waits for the `count`-th event of a type and gives it.
    pub fn wait_for_type(&mut self, kind: &str, count: usize) -> Value {
        self.wait_for(&format!("{kind} #{count}"), PATIENCE, |events| {
            of_type(events, kind).nth(count.saturating_sub(1)).cloned()
        })
    }

    /// SIGTERM and its exit.
    pub fn stop(&mut self) -> ExitStatus {
        let mut process = self.process.take().expect("the agent is running");
        process.terminate(PATIENCE)
    }

    /// SIGKILL.
    pub fn kill9(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill9();
        }
    }
}

/// The agent under test: built and named by `cargo xtask`.
#[must_use]
pub fn binary() -> PathBuf {
    let named =
        env::var_os("IMGWARDEN_BINARY").expect("IMGWARDEN_BINARY is set: run this by cargo xtask test");
    let path = PathBuf::from(named);
    assert!(path.exists(), "{} is not there; cargo xtask build", path.display());
    path
}

/// Every event of a journal's segments, in the order of their `seq`.
#[must_use]
pub fn read_journal(dir: &Path) -> Vec<Value> {
    let mut events: Vec<Value> = Vec::new();
    for path in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.extension().is_none_or(|extension| extension != "jsonl") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The last line may be half written; every other one must be whole.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        events.extend(whole.lines().map(|line| {
            serde_json::from_str::<Value>(line)
                .unwrap_or_else(|error| panic!("{}: {error}: {line}", path.display()))
        }));
    }
    // A segment that is renamed while it is read shows twice.
    events.sort_by_key(|event| event["seq"].as_u64());
    events.dedup_by_key(|event| event["seq"].as_u64());
    events
}

/// The events of one type.
pub fn of_type<'a>(events: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["type"] == kind)
}

/// One line an event, for a person.
#[must_use]
pub fn summary(events: &[Value]) -> String {
    let line = |event: &Value| {
        let text = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
        format!("  {:>4} {} {}: {}", event["seq"], text("time"), text("type"), text("message"))
    };
    events.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A size of /proc/PID/status, in bytes.
fn status_bytes(pid: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the agent is running");
    let line =
        status.lines().find_map(|line| line.strip_prefix(key)).expect("the kernel says a process' memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number of kB") * 1024
}
