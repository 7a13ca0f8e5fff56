//! `cargo xtask demo`: the agent that ships, at work against a real containerd.
//!
//! Everything is built first, aloud; then the story is told. What an earlier run left is removed, and whatever this one
//! leaves fails it.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{
    build::{OBJECT, agent_release},
    command::{cargo, command, run, run_interactive},
    ebpf,
    leftover::Leftover,
    lock, paths, setup,
};

pub(crate) fn run_demo() -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("the demo loads eBPF programs and starts containerd: run it as root");
    }
    let _lock = lock::take()?;
    setup::run(true)?;
    let earlier = Leftover::find()?;
    if !earlier.is_empty() {
        print!("removing what an earlier run left:\n{earlier}");
        earlier.remove();
    }
    let root = paths::root()?;
    let object = ebpf::build(&root)?;
    let agent = agent_release(&object)?;
    run(cargo()
        .current_dir(&root)
        .args(["build", "--package", "imgwarden-tests", "--bin", "demo"])
        .env(OBJECT, object))?;
    let demo = paths::target()?.join("debug/demo");
    let played = run_interactive(command(demo).current_dir(root).env("IMGWARDEN_BINARY", agent))?;
    let left = Leftover::find()?;
    if !left.is_empty() {
        eprint!("the demo left behind:\n{left}");
        left.remove();
        return Ok(ExitCode::FAILURE);
    }
    Ok(played)
}
