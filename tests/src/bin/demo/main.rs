//! `cargo xtask demo`: imgwarden's whole job against a real containerd, told from its real events.
//!
//! Images come from real tarballs, others delete them in every common way, and each chapter prints the command, then what
//! imgwarden saw and did. Whatever does not happen as it must ends the demo with a sentence and exit code 1. It leaves
//! nothing behind.

#![expect(clippy::expect_used, clippy::panic, reason = "a demo that goes wrong says so and ends")]

use std::{
    panic::{self, PanicHookInfo},
    path::PathBuf,
    process::ExitCode,
    time::Instant,
};

use imgwarden_tests::{process::processes_naming, scratch::mounts_below};
use page::Page;
use stage::Stage;

mod page;
mod play;
mod stage;
mod tell;

fn main() -> ExitCode {
    if std::env::args_os().len() > 1 {
        eprintln!("demo: it takes no arguments");
        return ExitCode::from(2);
    }
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let said = info.payload_as_str().unwrap_or("something unexpected");
        eprintln!("\ndemo: this did not go as it must: {said}");
    }));
    let began = Instant::now();
    let played = panic::catch_unwind(|| {
        let mut page = Page::new();
        let stage = Stage::set(&mut page);
        let mut directories = stage.directories();
        directories.extend(play::all(&mut page, stage));
        directories
    });
    let Ok(directories) = played else { return ExitCode::FAILURE };
    let left = left_in(&directories);
    if !left.is_empty() {
        eprintln!("demo: left behind: {}", left.join("; "));
        return ExitCode::FAILURE;
    }
    println!(
        "\nIt took {:.0} s. Both containerds, both agents and all of their files, mounts and processes are gone.",
        began.elapsed().as_secs_f64()
    );
    ExitCode::SUCCESS
}

/// What is still there of these directories.
fn left_in(directories: &[PathBuf]) -> Vec<String> {
    let mut left = Vec::new();
    for dir in directories {
        left.extend(mounts_below(dir).iter().map(|mount| format!("the mount {}", mount.display())));
        left.extend(
            processes_naming(&dir.to_string_lossy()).iter().map(|line| format!("the process `{line}`")),
        );
        left.extend(dir.exists().then(|| format!("the directory {}", dir.display())));
    }
    left
}
