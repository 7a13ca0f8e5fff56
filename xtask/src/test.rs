//! `cargo xtask test`: everything that can be tested on one machine, counted.
//!
//! Unit and property tests first, then end to end with the agent that ships. The last line is `N passed, N failed`
//! over all runs. Nothing is skipped silently: tests that only `--all` runs are counted and said.

use std::{
    io::{BufRead as _, BufReader},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

use crate::{
    build::{OBJECT, agent_release},
    command::cargo,
    ebpf,
    leftover::Leftover,
    lock, paths, setup,
};

/// What the unit tests may take, built from nothing on a slow machine.
const UNIT: Duration = Duration::from_secs(20 * 60);
/// What the end-to-end tests may take.
const END_TO_END: Duration = Duration::from_secs(40 * 60);
/// How long what a test left running may hold the output after the tests have ended.
const STRAGGLERS: Duration = Duration::from_secs(5);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Also what takes long or needs more than this machine has by itself
    #[arg(long)]
    all: bool,
    /// Only tests whose name contains this
    filter: Option<String>,
}

/// What the test programs reported.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    passed: u64,
    failed: u64,
    ignored: u64,
}

/// What `cargo xtask test` does. The closing line is printed whatever happens.
pub(crate) fn run_tests(arguments: &Args) -> Result<ExitCode> {
    let outcome = run_all(arguments);
    if outcome.is_err() {
        println!("0 passed, 1 failed");
    }
    outcome
}

fn run_all(arguments: &Args) -> Result<ExitCode> {
    let Args { all, filter } = arguments;
    if !rustix::process::geteuid().is_root() {
        bail!("the tests load eBPF programs and start containerd: run them as root");
    }
    let _lock = lock::take()?;
    setup::run(true)?;
    let earlier = Leftover::find()?;
    if !earlier.is_empty() {
        print!("removing what an earlier run left:\n{earlier}");
        earlier.remove();
    }
    let object = ebpf::build(&paths::root()?)?;
    let agent = agent_release(&object)?;
    let test = |packages: &[&str]| -> Result<Command> {
        let mut test = cargo();
        test.current_dir(paths::root()?).args(["test", "--no-fail-fast"]);
        for package in packages {
            test.args(["--package", package]);
        }
        test.env(OBJECT, &object).env("IMGWARDEN_BINARY", &agent).arg("--").args(filter);
        if *all {
            test.arg("--include-ignored");
        }
        Ok(test)
    };
    let mut count = Count::default();
    count.add(&mut test(&["imgwarden", "imgwarden-ebpf", "xtask"])?, UNIT)?;
    // One at a time: they measure milliseconds, and share the kernel and the processors.
    count.add(test(&["imgwarden-tests"])?.arg("--test-threads=1"), END_TO_END)?;

    let left = Leftover::find()?;
    if !left.is_empty() {
        eprint!("the tests left behind:\n{left}");
        left.remove();
        count.failed += 1;
    }
    let Count { passed, failed, ignored } = count;
    if ignored > 0 {
        println!("{ignored} more with --all");
    }
    if let Some(filter) = filter.as_ref().filter(|_| passed + failed == 0) {
        bail!("no test's name contains {filter:?}");
    }
    println!("{passed} passed, {failed} failed");
    Ok(if failed == 0 && passed > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Count {
    /// Runs `cargo test`, shows what it says, and adds what its programs report. After `limit` it is ended, with all
    /// that it started, and counts as failed.
    fn add(&mut self, test: &mut Command, limit: Duration) -> Result<()> {
        let failed_before = self.failed;
        let mut child = test
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .context("starting cargo test")?;
        let stdout = child.stdout.take().context("cargo test has an output")?;
        // On a thread of its own: what a test leaves running may hold the output for ever.
        let (lines, read) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n').map_while(Result::ok) {
                if lines.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                    return;
                }
            }
        });
        let mut until = Instant::now() + limit;
        let mut ended = None;
        loop {
            match read.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    println!("{line}");
                    self.line(&line);
                }
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if ended.is_none() {
                ended = child.try_wait().context("waiting for cargo test")?;
                if ended.is_some() {
                    until = Instant::now() + STRAGGLERS;
                }
            }
            if Instant::now() >= until {
                break;
            }
        }
        let status = match ended {
            Some(status) => status,
            None if Instant::now() < until => child.wait().context("waiting for cargo test")?,
            None => {
                eprintln!("cargo test: not done after {} minutes, ended", limit.as_secs() / 60);
                self.failed += 1;
                let group = rustix::process::Pid::from_child(&child);
                rustix::process::kill_process_group(group, rustix::process::Signal::KILL)
                    .context("ending cargo test")?;
                child.wait().context("waiting for cargo test")?;
                return Ok(());
            }
        };
        if !status.success() && self.failed == failed_before {
            eprintln!("cargo test: {status}, without a failed test: it did not build, or a program died");
            self.failed += 1;
        }
        Ok(())
    }

    /// Adds a line like `test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; …`.
    fn line(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let result = result.split_once(". ").map_or("", |(_, counts)| counts);
        for part in result.split("; ") {
            let Some((number, what)) = part.split_once(' ') else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed_and_other_lines_are_not() {
        let mut count = Count::default();
        count.line(
            "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 4.44s",
        );
        count.line(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 7 filtered out; finished in 1s",
        );
        count.line("9 passed, 9 failed");
        count.line("test x ... ok");
        assert_eq!(count, Count { passed: 8, failed: 2, ignored: 1 });
    }
}
