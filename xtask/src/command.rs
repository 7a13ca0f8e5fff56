//! Child processes: an environment that a nested cargo understands, errors that name what failed.

use std::{
    env,
    ffi::OsStr,
    process::{Command, ExitCode, Stdio},
};

use anyhow::{Context as _, Result, bail};

/// A program, with the environment that was there before cargo ran xtask.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy();
        let of_xtask = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
        // cargo's own run environment: a nested cargo would take it for this package's, and another toolchain's
        // compiler would load the libraries of the one that built xtask.
        if of_xtask.iter().any(|prefix| name.starts_with(prefix)) || name == "LD_LIBRARY_PATH" {
            command.env_remove(&*name);
        }
    }
    command
}

/// The cargo that runs xtask.
pub(crate) fn cargo() -> Command {
    command(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// How a command is named in a message.
fn name(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|argument| argument.to_string_lossy().into_owned()));
    words.join(" ")
}

/// Runs it to its end with this terminal's output and no input; anything but 0 is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status =
        command.stdin(Stdio::null()).status().with_context(|| format!("starting {}", name(command)))?;
    if !status.success() {
        bail!("{}: {status}", name(command));
    }
    Ok(())
}

/// Runs it to its end with this terminal; its exit code becomes xtask's.
pub(crate) fn run_interactive(command: &mut Command) -> Result<ExitCode> {
    let status = command.status().with_context(|| format!("starting {}", name(command)))?;
    match status.code() {
        Some(code) => Ok(ExitCode::from(u8::try_from(code).unwrap_or(1))),
        None => bail!("{}: {status}", name(command)),
    }
}

/// Runs it to its end without showing anything; its errors are in the error.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output =
        command.stdin(Stdio::null()).output().with_context(|| format!("starting {}", name(command)))?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {}", name(command), output.status, errors.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
