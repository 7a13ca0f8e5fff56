//! The eBPF object: `agent-ebpf` for bpfel-unknown-none.
//!
//! The target is built with its own `core`, which only nightly cargo does or a stable one with RUSTC_BOOTSTRAP, and
//! `core`'s sources must be those of the compiler: Debian's rustc-web with rust-web-src is such a pair, a rustup
//! toolchain with the component rust-src is another.

use std::{
    env,
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};

use crate::{
    command::{command, run},
    setup,
};

/// Debian's pair.
const RUSTC: &str = "/usr/bin/rustc";
const CARGO: &str = "/usr/bin/cargo";
/// An outer `cargo run` sets these, for another compiler than the one that is started here.
const INHERITED: &[&str] = &[
    "CARGO",
    "CARGO_BUILD_TARGET",
    "CARGO_ENCODED_RUSTFLAGS",
    "CARGO_TARGET_DIR",
    "RUSTC",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTUP_TOOLCHAIN",
];

/// Builds the object and gives its path.
pub(crate) fn build(root: &Path) -> anyhow::Result<PathBuf> {
    let linker = setup::bpf_linker()?;
    let toolchain = Toolchain::find()?;
    let target = root.join("target/bpf");
    let flags = [
        format!("-Clinker={}", linker.display()),
        "-Cdebuginfo=2".into(),
        "-Clink-arg=--btf".into(),
        format!("--cfg=bpf_target_arch=\"{}\"", env::consts::ARCH),
    ];
    let mut cargo = toolchain.cargo();
    cargo
        .current_dir(root)
        .args(["build", "--quiet", "-Z", "build-std=core", "--target", "bpfel-unknown-none", "--release"])
        .args(["-p", "imgwarden-ebpf", "--features", "bpf", "--bin", "imgwarden-ebpf", "--target-dir"])
        .arg(&target)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"))
        // The verifier refuses a program with a way into a panic; the agent itself must unwind.
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3");
    let status = cargo.status().with_context(|| format!("starting {cargo:?}"))?;
    if !status.success() {
        bail!("building the eBPF object with {toolchain}: {status}");
    }
    let object = target.join("bpfel-unknown-none/release/imgwarden-ebpf");
    if !object.is_file() {
        bail!("{}: cargo built no object there", object.display());
    }
    strip(&object)
}

/// A copy without DWARF: bpf-linker needed it to make the BTF, which stays, and nobody reads it after.
fn strip(object: &Path) -> anyhow::Result<PathBuf> {
    let stripped = object.with_extension("o");
    run(command(setup::llvm_strip()).arg("-g").arg("-o").arg(&stripped).arg(object))?;
    Ok(stripped)
}

/// A compiler with the sources of its `core`.
enum Toolchain {
    Debian,
    /// By rustup's name.
    Rustup(OsString),
}

impl Toolchain {
    fn find() -> anyhow::Result<Self> {
        let sources = Path::new("/usr/lib/rustlib/src/rust/library/core");
        if Path::new(RUSTC).is_file() && Path::new(CARGO).is_file() && sources.is_dir() {
            return Ok(Self::Debian);
        }
        let listed = Command::new("rustup").args(["toolchain", "list", "--quiet"]).output();
        let listed =
            listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
        for name in listed.lines().filter_map(|line| line.split_whitespace().next()) {
            let sysroot = Command::new("rustc").arg(format!("+{name}")).args(["--print", "sysroot"]).output();
            let Ok(sysroot) = sysroot else { continue };
            let sysroot = PathBuf::from(String::from_utf8_lossy(&sysroot.stdout).trim());
            if sysroot.join("lib/rustlib/src/rust/library/core").is_dir() {
                return Ok(Self::Rustup(name.into()));
            }
        }
        bail!(
            "no Rust compiler with the sources of its core library (Debian: rustc-web and rust-web-src; rustup: the component rust-src): run cargo xtask setup"
        )
    }

    fn cargo(&self) -> Command {
        let mut cargo = match self {
            Self::Debian => Command::new(CARGO),
            Self::Rustup(_) => Command::new("cargo"),
        };
        for name in INHERITED {
            cargo.env_remove(name);
        }
        // `cargo +toolchain` works for rustup's proxy only, this for whichever cargo is first on PATH.
        match self {
            Self::Debian => cargo.env("RUSTC", RUSTC),
            Self::Rustup(name) => cargo.env("RUSTUP_TOOLCHAIN", name),
        };
        cargo
    }
}

impl std::fmt::Display for Toolchain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Debian => f.write_str(RUSTC),
            Self::Rustup(name) => write!(f, "rustup's {}", name.display()),
        }
    }
}
