//! `cargo xtask demo`: the agent that ships, at work against a real containerd.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::{
    build::{OBJECT, agent_release},
    command::{cargo, run_interactive},
    ebpf, lock, paths, setup,
};

pub(crate) fn run_demo(arguments: &[String]) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("the demo loads eBPF programs and starts containerd: run it as root");
    }
    let _lock = lock::take()?;
    setup::run(true)?;
    let root = paths::root()?;
    let object = ebpf::build(&root)?;
    let agent = agent_release(&object)?;
    run_interactive(
        cargo()
            .current_dir(root)
            .args(["run", "--quiet", "--package", "imgwarden-tests", "--bin", "demo", "--"])
            .args(arguments)
            .env(OBJECT, object)
            .env("IMGWARDEN_BINARY", agent),
    )
}
