//! Embeds the eBPF object that `IMGWARDEN_BPF_OBJECT` names (`cargo xtask build` builds it and sets the variable).
//!
//! Without it everything but linking the binary works, so that `cargo check`, clippy and the unit tests need no LLVM.

use std::{env, fs, path::PathBuf, process::ExitCode};

const VARIABLE: &str = "IMGWARDEN_BPF_OBJECT";

fn main() -> ExitCode {
    println!("cargo::rerun-if-env-changed={VARIABLE}");
    let Some(out) = env::var_os("OUT_DIR").map(PathBuf::from) else {
        eprintln!("OUT_DIR is not set: build scripts run under cargo");
        return ExitCode::FAILURE;
    };
    let embedded = out.join("probe.o");
    let written = match env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from) {
        Some(object) => {
            println!("cargo::rerun-if-changed={}", object.display());
            fs::copy(&object, &embedded).map(drop).map_err(|error| format!("{}: {error}", object.display()))
        }
        None => {
            // The linker names its missing input in its error: that name is the explanation.
            println!("cargo::rustc-link-arg-bins=the-eBPF-object-is-missing--build-with--cargo-xtask-build");
            fs::write(&embedded, []).map_err(|error| format!("{}: {error}", embedded.display()))
        }
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("embedding the eBPF object: {error}");
            ExitCode::FAILURE
        }
    }
}
