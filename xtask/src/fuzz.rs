//! `cargo xtask fuzz`: libFuzzer on the parsers of what others send.

use std::{fs, path::Path, process::ExitCode};

use anyhow::{Context as _, Result, bail};

use crate::{
    command::{cargo, command, run},
    paths,
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// One of fuzz/fuzz_targets; all, one after the other, without it
    target: Option<String>,
    /// How long each is fuzzed
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
}

/// The version of cargo-fuzz.
const VERSION: &str = "0.13.1";

pub(crate) fn run_fuzz(arguments: &Args) -> Result<ExitCode> {
    let Args { target, seconds } = arguments;
    let root = paths::root()?;
    let all = targets(&root.join("fuzz/fuzz_targets"))?;
    let chosen = match target {
        Some(target) if all.contains(target) => vec![target.clone()],
        Some(target) => bail!("no fuzz target {target:?}; there are {}", all.join(", ")),
        None => all,
    };
    let installed = paths::cache()?.join(format!("cargo-fuzz-{VERSION}"));
    let program = installed.join("bin/cargo-fuzz");
    if !program.exists() {
        println!("cargo-fuzz {VERSION}: building it");
        run(cargo()
            .args(["install", "cargo-fuzz", "--quiet", "--locked", "--version", VERSION, "--root"])
            .arg(&installed)
            .current_dir("/"))?;
    }
    for target in chosen {
        println!("{target}: {seconds} s");
        run(command(&program)
            .current_dir(&root)
            // The sanitizer's flags are unstable; this is how a stable compiler takes them.
            .env("RUSTC_BOOTSTRAP", "1")
            .args(["fuzz", "run", &target, "--"])
            .arg(format!("-max_total_time={seconds}")))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The names of the fuzz targets, sorted.
fn targets(dir: &Path) -> Result<Vec<String>> {
    let entries = fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".rs").map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}
