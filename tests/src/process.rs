//! Child processes of a test: each in a process group of its own, each ended when its value is dropped.
//!
//! Nothing is ever ended by name, only by the pid of a child that has not been waited for (so it can't be another's).

use std::{
    fs::{self, File},
    io::Read,
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// How often something that will happen soon is looked for.
pub const POLL: Duration = Duration::from_millis(5);

/// A running child and its process group.
#[derive(Debug)]
pub struct Process {
    /// What a message calls it.
    name: String,
    child: Child,
    /// How it ended, once that is known.
    ended: Option<ExitStatus>,
}

impl Process {
    /// Starts `command` with stdout and stderr appended to `log`; stdin is what the command says, else empty.
    pub fn spawn(name: &str, command: &mut Command, log: &Path) -> Self {
        let output = File::options()
            .create(true)
            .append(true)
            .open(log)
            .unwrap_or_else(|error| panic!("{}: {error}", log.display()));
        let errors = output.try_clone().expect("a file handle can be cloned");
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        Self::start(name, command)
    }

    /// Starts `command` with its streams as they are set.
    pub fn start(name: &str, command: &mut Command) -> Self {
        let child = command.process_group(0).spawn().unwrap_or_else(|error| {
            panic!("starting {name} ({}): {error}; cargo xtask setup", command.get_program().display())
        });
        Self { name: name.to_owned(), child, ended: None }
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The child itself, for its streams.
    pub fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        if self.ended.is_none() {
            self.ended =
                self.child.try_wait().unwrap_or_else(|error| panic!("waiting for {}: {error}", self.name));
        }
        self.ended
    }

    /// Waits for its end, at most `timeout`.
    pub fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + timeout;
        loop {
            let ended = self.ended();
            if ended.is_some() || Instant::now() >= deadline {
                return ended;
            }
            thread::sleep(POLL);
        }
    }

    /// Sends a signal to the process alone.
    pub fn signal(&mut self, signal: Signal) {
        if self.ended().is_none() {
            let _ = kill_process(self.id(), signal);
        }
    }

    /// Ends it in order: SIGTERM, then, past `timeout`, a panic.
    pub fn terminate(&mut self, timeout: Duration) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait(timeout).unwrap_or_else(|| {
            panic!("{} (pid {}) did not end in {timeout:?} after SIGTERM", self.name, self.pid())
        })
    }

    /// SIGKILL to the process alone: what a crash does. Its children live on.
    pub fn kill9(&mut self) -> ExitStatus {
        self.signal(Signal::KILL);
        self.wait(Duration::from_secs(10)).unwrap_or_else(|| panic!("{} survives SIGKILL", self.name))
    }

    fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.ended().is_none() {
            let _ = kill_process_group(self.id(), Signal::KILL);
            let _ = self.child.wait();
        }
    }
}

/// What a finished command left.
#[derive(Debug, Clone)]
pub struct Output {
    /// Its pid while it lived: what an event must name.
    pub pid: u32,
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// Whether it exited with 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Its exit code; a signal is 128 more than its number, as a shell says it.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| 128 + self.status.signal().unwrap_or_default())
    }

    /// Panics with everything it said, unless it exited with 0.
    #[must_use]
    pub fn expect_success(self, what: &str) -> Self {
        assert!(
            self.success(),
            "{what}: {}\nstdout: {}\nstderr: {}",
            self.status,
            self.stdout.trim_end(),
            self.stderr.trim_end()
        );
        self
    }
}

/// Runs a command to its end; one that is not done after `timeout` is ended, and panics.
pub fn run(command: &mut Command, timeout: Duration) -> Output {
    let name = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Process::start(&name, command);
    let pid = process.pid();
    let stdout = collect(process.child().stdout.take());
    let stderr = collect(process.child().stderr.take());
    let status = process.wait(timeout).unwrap_or_else(|| panic!("{name}: not done after {timeout:?}"));
    let text = |reader: thread::JoinHandle<Vec<u8>>| {
        String::from_utf8_lossy(&reader.join().expect("a reader thread does not panic")).into_owned()
    };
    Output { pid, status, stdout: text(stdout), stderr: text(stderr) }
}

/// Reads a pipe in a thread, since a full one would block the child.
fn collect(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}

/// Waits until `ready` gives something, at most `timeout`.
pub fn poll<T>(timeout: Duration, mut ready: impl FnMut() -> Option<T>) -> Option<T> {
    let deadline = Instant::now() + timeout;
    loop {
        if let Some(value) = ready() {
            return Some(value);
        }
        if Instant::now() >= deadline {
            return None;
        }
        thread::sleep(POLL);
    }
}

/// The command lines of all processes that hold this text: how a test shows that nothing of its own is left.
#[must_use]
pub fn processes_naming(text: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
        .filter(|arguments| arguments.contains(text))
        .collect()
}
