//! `cargo xtask lint`: formatting and clippy, warnings denied. Needs neither LLVM nor root.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    command::{cargo, run},
    paths,
};

pub(crate) fn run_lint() -> Result<ExitCode> {
    let root = paths::root()?;
    run(cargo().current_dir(&root).args(["fmt", "--all", "--check"]))?;
    run(cargo().current_dir(&root).args([
        "clippy",
        "--quiet",
        "--workspace",
        "--all-targets",
        "--",
        "--deny",
        "warnings",
    ]))?;
    Ok(ExitCode::SUCCESS)
}
