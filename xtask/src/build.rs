//! `cargo xtask build`, and what starts from it: `load` and `run`.
//!
//! The eBPF object is built first (or given), then embedded in the agent. The release build is one static program
//! that runs on any node of this architecture; the debug build is for this machine alone.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    command::{cargo, command, run, run_interactive},
    ebpf, paths,
    setup::{self, is_static},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Embed this eBPF object instead of building one: no LLVM is needed then
    #[arg(long, value_name = "FILE")]
    bpf_object: Option<PathBuf>,
    /// Build target/debug/imgwarden: fast to build, not static
    #[arg(long)]
    debug: bool,
}

/// What `cargo xtask build` does.
pub(crate) fn run_build(arguments: &Args) -> Result<ExitCode> {
    let Args { bpf_object, debug } = arguments;
    let object = match bpf_object {
        Some(object) => fs::canonicalize(object).with_context(|| format!("{}", object.display()))?,
        None => {
            setup::run(true)?;
            ebpf::build(&paths::root()?)?
        }
    };
    let program = if *debug { agent_debug(&object)? } else { agent_release(&object)? };
    let bytes = fs::metadata(&program).with_context(|| format!("{}", program.display()))?.len();
    let kind = if *debug { "" } else { ", static" };
    println!("{} ({}.{} MiB{kind})", program.display(), bytes >> 20, ((bytes & 0xf_ffff) * 10) >> 20);
    Ok(ExitCode::SUCCESS)
}

/// What `cargo xtask load` does.
pub(crate) fn load() -> Result<ExitCode> {
    run_agent(&["probe".to_owned()])
}

/// What `cargo xtask run` does: the agent's exit code is its own.
pub(crate) fn run_agent(arguments: &[String]) -> Result<ExitCode> {
    setup::run(true)?;
    let program = agent_debug(&ebpf::build(&paths::root()?)?)?;
    run_interactive(command(program).args(arguments))
}

/// Builds the agent for this machine.
fn agent_debug(object: &Path) -> Result<PathBuf> {
    run(cargo()
        .current_dir(paths::root()?)
        .args(["build", "--quiet", "--package", "imgwarden", "--bin", "imgwarden"])
        .env(OBJECT, object))?;
    Ok(paths::target()?.join("debug/imgwarden"))
}

/// Builds the agent that ships: static, in target/release.
pub(crate) fn agent_release(object: &Path) -> Result<PathBuf> {
    let triple = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    // With a target named, these flags reach neither build scripts nor macros, which can't be static.
    let flags = match env::var("RUSTFLAGS") {
        Ok(flags) => format!("{flags} -Ctarget-feature=+crt-static"),
        Err(_) => "-Ctarget-feature=+crt-static".to_owned(),
    };
    run(cargo()
        .current_dir(paths::root()?)
        .args(["build", "--release", "--package", "imgwarden", "--bin", "imgwarden", "--target", &triple])
        .env("RUSTFLAGS", flags)
        .env(OBJECT, object))?;
    let target = paths::target()?;
    let built = target.join(triple).join("release/imgwarden");
    if !is_static(&built)? {
        bail!("{} needs an interpreter: it is not static", built.display());
    }
    let program = target.join("release/imgwarden");
    // A running agent keeps its file: the new one takes the name, not the inode.
    let fresh = target.join("release/.imgwarden.new");
    fs::create_dir_all(target.join("release"))
        .and_then(|()| fs::copy(&built, &fresh))
        .and_then(|_| fs::rename(&fresh, &program))
        .with_context(|| format!("copying {} to {}", built.display(), program.display()))?;
    Ok(program)
}

/// How agent/build.rs is told what to embed.
pub(crate) const OBJECT: &str = "IMGWARDEN_BPF_OBJECT";
