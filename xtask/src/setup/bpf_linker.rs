//! bpf-linker, built from its crate: the distribution has none, and it must fit the LLVM that is there.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::command::{cargo, run};

/// The version whose output was tried in kernels.
const VERSION: &str = "0.13.0";

/// Where it is installed.
fn root(cache: &Path) -> PathBuf {
    cache.join(format!("bpf-linker-{VERSION}"))
}

/// The program.
pub(super) fn program(cache: &Path) -> PathBuf {
    root(cache).join("bin/bpf-linker")
}

/// Builds it unless it is there.
pub(super) fn setup(cache: &Path, llvm: &Path, quiet: bool) -> Result<()> {
    let program = program(cache);
    if program.exists() {
        if !quiet {
            println!("bpf-linker {VERSION}: there ({})", program.display());
        }
        return Ok(());
    }
    println!("bpf-linker {VERSION}: building it, which takes some minutes");
    let mut install = cargo();
    install
        .env("LLVM_PREFIX", llvm)
        .args(["install", "bpf-linker", "--quiet", "--locked", "--version", VERSION])
        .args(["--no-default-features", "--features", "llvm-22", "--root"])
        .arg(root(cache))
        // The checkout's settings are not the crate's.
        .current_dir("/");
    run(&mut install)?;
    if !program.exists() {
        bail!("bpf-linker {VERSION}: built, but {} is not there", program.display());
    }
    println!("bpf-linker {VERSION}: there ({})", program.display());
    Ok(())
}
