//! `cargo xtask setup`: makes a Debian 12 machine ready to build and to test.
//!
//! Looks for what a part provides, not for how it was installed; installs what is missing, one line a step. It never
//! replaces what is there, and stops on a machine without apt with the list of what to install.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use crate::{
    command::{command, output},
    paths::{cache, in_path},
};

mod bpf_linker;
mod containerd;
mod elf;

pub(crate) use elf::is_static;

/// Something that apt installs.
struct Part {
    /// What a person calls it.
    name: &'static str,
    /// Says that it is there, with its version where one is to be had quickly.
    find: fn() -> Option<String>,
    /// Debian 12's packages for it.
    packages: &'static [&'static str],
}

/// What comes from the distribution.
const PARTS: &[Part] = &[
    Part {
        name: "C compiler",
        find: || version("cc", &["-dumpfullversion"]),
        packages: &["gcc", "libc6-dev", "make", "pkg-config"],
    },
    Part {
        name: "protoc",
        find: || {
            let headers = ["/usr/include", "/usr/local/include"];
            let found = headers.iter().any(|dir| Path::new(dir).join("google/protobuf/any.proto").exists());
            version("protoc", &["--version"]).filter(|_| found)
        },
        packages: &["protobuf-compiler", "libprotobuf-dev"],
    },
    Part {
        name: "LLVM 22",
        find: || {
            let polly = Path::new(LLVM_PREFIX).join("lib/libPolly.a").exists();
            version(&format!("{LLVM_PREFIX}/bin/llvm-config"), &["--version"]).filter(|_| polly)
        },
        packages: &["llvm-22-dev", "libpolly-22-dev", "zlib1g-dev", "libzstd-dev"],
    },
    Part {
        name: "rustc with core's source",
        find: || {
            let source = Path::new("/usr/lib/rustlib/src/rust/library/core/src/lib.rs").exists();
            let cargo = Path::new("/usr/bin/cargo").exists();
            version("/usr/bin/rustc", &["--version"]).filter(|_| source && cargo)
        },
        packages: &["rustc-web", "rust-web-src", "cargo-web"],
    },
    Part {
        name: "containerd",
        find: || {
            let ctr = Path::new("/usr/bin/ctr").exists();
            version("/usr/bin/containerd", &["--version"]).filter(|_| ctr)
        },
        packages: &["containerd"],
    },
    Part { name: "runc", find: || version("runc", &["--version"]), packages: &["runc"] },
    Part { name: "skopeo", find: || version("skopeo", &["--version"]), packages: &["skopeo"] },
    Part {
        name: "busybox, static",
        find: || is_static(Path::new("/bin/busybox")).is_ok_and(|is| is).then(|| "/bin/busybox".to_owned()),
        packages: &["busybox-static"],
    },
    Part { name: "go", find: || version("go", &["version"]), packages: &["golang-go"] },
];

/// Where Debian puts this LLVM.
const LLVM_PREFIX: &str = "/usr/lib/llvm-22";

/// Looks for everything and installs what is missing; `quiet` says only what is missing.
pub(crate) fn run(quiet: bool) -> Result<()> {
    let mut missing: Vec<&Part> = Vec::new();
    for part in PARTS {
        match (part.find)() {
            Some(version) if !quiet => println!("{}: there ({version})", part.name),
            Some(_) => {}
            None => missing.push(part),
        }
    }
    install(&missing)?;
    let cache = cache()?;
    bpf_linker::setup(&cache, Path::new(LLVM_PREFIX), quiet)?;
    containerd::setup(&cache, quiet)
}

/// bpf-linker: the one that setup built, else the one on `PATH`.
pub(crate) fn bpf_linker() -> Result<PathBuf> {
    let built = bpf_linker::program(&cache()?);
    if built.is_file() {
        return Ok(built);
    }
    in_path("bpf-linker").context("bpf-linker is missing: run cargo xtask setup")
}

/// LLVM's strip: binutils' does not know eBPF.
pub(crate) fn llvm_strip() -> PathBuf {
    Path::new(LLVM_PREFIX).join("bin/llvm-strip")
}

/// Installs the packages of these parts.
fn install(missing: &[&Part]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    if in_path("apt-get").is_none() {
        let list: Vec<String> = missing
            .iter()
            .map(|Part { name, find: _, packages }| format!("{name} (Debian's {})", packages.join(", ")))
            .collect();
        bail!("this machine has no apt; install {}", list.join("; "));
    }
    if !rustix::process::geteuid().is_root() {
        let packages: Vec<&str> = missing.iter().flat_map(|part| part.packages).copied().collect();
        bail!("only root can install: apt-get install --no-install-recommends {}", packages.join(" "));
    }
    for part in missing {
        println!("{}: installing {}", part.name, part.packages.join(" "));
    }
    let packages: Vec<&str> = missing.iter().flat_map(|part| part.packages).copied().collect();
    // Always: lists that are a month old name files that the mirrors no longer have.
    let _ = output(apt_get().args(["-qq", "update"]))?;
    // dpkg says much; what matters of it is in the error.
    let _ = output(apt_get().args(["-qq", "install", "--yes", "--no-install-recommends"]).args(&packages))?;
    for part in missing {
        let Some(version) = (part.find)() else {
            bail!("{}: still not there after installing {}", part.name, part.packages.join(" "));
        };
        println!("{}: there ({version})", part.name);
    }
    Ok(())
}

fn apt_get() -> Command {
    let mut apt = command("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    apt
}

/// The first line that looks like a version of what a program prints, if it runs.
fn version(program: &str, arguments: &[&str]) -> Option<String> {
    let printed = output(command(program).args(arguments)).ok()?;
    let line = printed.lines().next()?.trim();
    let is_version = |word: &&str| {
        let digits = word.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        digits.contains('.') && digits.starts_with(|c: char| c.is_ascii_digit())
    };
    Some(line.split_whitespace().find(is_version).unwrap_or(line).to_owned())
}
