//! Builds the eBPF programs: the object that agent/build.rs embeds.
//!
//! The target has no prebuilt core, so core is built too, from the source that belongs to the compiler: Debian's
//! rustc, whatever toolchain runs xtask.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Result, bail};

use crate::{
    command::{command, run},
    paths, setup,
};

/// The target: eBPF bytecode, little-endian.
const TARGET: &str = "bpfel-unknown-none";

/// Builds the object and gives its path.
pub(crate) fn build(root: &Path) -> Result<PathBuf> {
    // Apart from the host's target directory: another compiler's artefacts must not alternate with it.
    let target_dir = paths::target()?.join("ebpf");
    let flags = [
        format!("-Clinker={}", setup::bpf_linker()?.display()),
        format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH),
        "-Cdebuginfo=2".to_owned(),
        "-Clink-arg=--btf".to_owned(),
    ];
    run(command("/usr/bin/cargo")
        .current_dir(root)
        .env("RUSTC", "/usr/bin/rustc")
        // -Z build-std on a stable compiler.
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .args(["build", "--quiet", "--release", "-Z", "build-std=core", "--target", TARGET])
        .args(["--package", "imgwarden-ebpf", "--features", "bpf", "--bin", "imgwarden-ebpf", "--target-dir"])
        .arg(&target_dir))?;
    let object = target_dir.join(TARGET).join("release/imgwarden-ebpf");
    if !object.exists() {
        bail!("the eBPF programs were built, but {} is not there", object.display());
    }
    Ok(object)
}
