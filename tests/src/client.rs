//! Clients on one long-lived connection each: Go's HTTP/2 (as the kubelet, crictl and ctr have it) or tonic's.
//!
//! A client is a program of its own, since the agent names processes. It takes one command a line and answers `ok` or
//! `err …`:
//!
//! | command | what it calls |
//! |---|---|
//! | `remove-cri REF` | CRI RemoveImage |
//! | `status REF` | CRI ImageStatus |
//! | `pull REF USER PASSWORD` | CRI PullImage with credentials |
//! | `delete NAME` | containerd Images/Delete |
//! | `delete-between MIB NAME…` | Content/Write of that much, with Images/Delete of the names in between (tonic only) |
//! | `delete-create NAME` | Images/Get, Delete, then Create of the same target: a retag |

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Write as _},
    path::PathBuf,
    process::{ChildStdout, Command, Stdio},
    sync::OnceLock,
    time::Duration,
};

use crate::{
    containerd::Containerd,
    process::{Process, run},
    scratch::workspace,
};

/// Whose HTTP/2 a client speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Go,
    Tonic,
}

/// A connected client.
#[derive(Debug)]
pub struct Client {
    process: Process,
    answers: BufReader<ChildStdout>,
}

impl Client {
    /// Starts one and waits until it is connected; `warm_up` makes it call RemoveImage and ImageStatus for an image
    /// that is not there, so that later calls name their methods by index alone.
    #[must_use]
    pub fn start(kind: Kind, containerd: &Containerd, warm_up: bool) -> Self {
        let mut command = Command::new(program(kind));
        command.arg(containerd.address()).args(warm_up.then_some("--warm-up"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut process = Process::start(&format!("{kind:?} client"), &mut command);
        let answers = process.child().stdout.take().expect("stdout is a pipe");
        let mut client = Self { process, answers: BufReader::new(answers) };
        let said = client.answer();
        assert_eq!(said, format!("pid {}", client.pid()), "what a {kind:?} client says first");
        client
    }

    /// Its pid.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Errors
    /// What the client says after `err`.
    pub fn ask(&mut self, command: &str) -> Result<(), String> {
        let stdin = self.process.child().stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{command}").expect("the client reads its input");
        match self.answer() {
            said if said == "ok" => Ok(()),
            said => match said.strip_prefix("err ") {
                Some(error) => Err(error.to_owned()),
                None => panic!("a client's answer to {command:?}: {said:?}"),
            },
        }
    }

    /// Closes its connection by ending it, as a program that is done.
    pub fn close(mut self) {
        drop(self.process.child().stdin.take());
        let ended = self.process.wait(Duration::from_secs(10));
        assert!(ended.is_some_and(|status| status.success()), "a client's end: {ended:?}");
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        let _ = self.answers.read_line(&mut line).expect("a client's answers can be read");
        line.trim_end().to_owned()
    }
}

/// The program of a kind; Go's is built once.
#[must_use]
pub fn program(kind: Kind) -> PathBuf {
    static GO: OnceLock<PathBuf> = OnceLock::new();
    match kind {
        Kind::Go => GO.get_or_init(build_go).clone(),
        Kind::Tonic => {
            // Cargo puts a package's programs beside the directory of its tests.
            let test = env::current_exe().expect("a test knows its own path");
            let beside = test.ancestors().skip(1).map(|dir| dir.join("client")).find(|path| path.is_file());
            beside.expect("cargo builds the client together with the tests")
        }
    }
}

fn build_go() -> PathBuf {
    let output = workspace().join("target/e2e-go-client");
    // Two test programs may build at once: each makes its own and renames it.
    let own = output.with_extension(std::process::id().to_string());
    let mut go = Command::new("go");
    go.current_dir(workspace().join("tests/clients/go"))
        .env("CGO_ENABLED", "0")
        .args(["build", "-mod=readonly", "-buildvcs=false", "-o"])
        .arg(&own)
        .arg(".");
    let _ = run(&mut go, Duration::from_secs(600)).expect_success("go build of the client");
    fs::rename(&own, &output).unwrap_or_else(|error| panic!("{}: {error}", output.display()));
    output
}
