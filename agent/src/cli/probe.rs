//! `imgwarden probe`: what this kernel lets the agent see. Loads and attaches every hook, says what the verifier said,
//! and detaches.

use std::fmt::Write as _;

use super::{Exit, Global, output};
use crate::probe::{Backend, Hook, Options, Probe, ProbeError, Report, State};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// Try this backend only.
    #[arg(long, value_enum, default_value_t = Wanted::Auto)]
    backend: Wanted,
}

/// `probe.backend` of the config, as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Wanted {
    Auto,
    Trampoline,
    Tracepoint,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let backend = match args.backend {
        Wanted::Auto => Backend::Auto,
        Wanted::Trampoline => Backend::Trampoline,
        Wanted::Tracepoint => Backend::Tracepoint,
    };
    let probe = match Probe::load(&Options { backend, ..Options::default() }) {
        Ok(probe) => probe,
        Err(error) => {
            let exit = if error.missing_capability().is_some() { Exit::NotPermitted } else { Exit::Failed };
            if global.json {
                output::json(&serde_json::json!({ "error": chain(&error) }))?;
            } else {
                eprintln!("{}", chain(&error));
            }
            return Ok(exit);
        }
    };
    let report = probe.report();
    if global.json {
        output::json(report)?;
    } else {
        output::text(&text(report))?;
    }
    let whole = report.hooks.iter().all(Hook::attached);
    Ok(if whole { Exit::Fine } else { Exit::Failed })
}

/// The error with its sources, outermost first.
fn chain(error: &ProbeError) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        let _ = write!(text, ": {inner}");
        source = inner.source();
    }
    text
}

fn text(report: &Report) -> String {
    let Report {
        backend,
        trampoline,
        kernel,
        hooks,
        request_ring_bytes,
        removal_ring_bytes,
        missing_capabilities,
        unseen,
    } = report;
    let mut text = format!("kernel   {kernel}, with BTF\nbackend  {backend} (trampoline: {trampoline})\n");
    for hook in hooks {
        let line = match &hook.state {
            State::Attached { verified: Some(verified) } => {
                format!("attached, {verified} instructions verified")
            }
            State::Attached { verified: None } => "attached".to_owned(),
            State::Missing { why } => format!("missing: {why}"),
        };
        let _ = writeln!(text, "hook     {:<20} {line}", hook.name);
    }
    let _ = writeln!(
        text,
        "rings    requests {} KiB, removals {} KiB",
        request_ring_bytes / 1024,
        removal_ring_bytes / 1024
    );
    for capability in missing_capabilities {
        let _ = writeln!(text, "lacks    {capability}");
    }
    for what in unseen {
        let _ = writeln!(text, "unseen   {what}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_names_what_is_missing_and_why() {
        let report = Report {
            backend: "tracepoint",
            trampoline: "refused",
            kernel: "6.1.0".into(),
            hooks: vec![
                Hook { name: "sys_exit", state: State::Attached { verified: Some(5000) } },
                Hook {
                    name: "sched_process_exec",
                    state: State::Missing { why: "the kernel has no mount.mnt".into() },
                },
            ],
            request_ring_bytes: 4 << 20,
            removal_ring_bytes: 1 << 20,
            missing_capabilities: vec!["CAP_SYS_PTRACE (why)"],
            unseen: vec!["io_uring".into()],
        };
        assert_eq!(
            text(&report),
            "kernel   6.1.0, with BTF\n\
             backend  tracepoint (trampoline: refused)\n\
             hook     sys_exit             attached, 5000 instructions verified\n\
             hook     sched_process_exec   missing: the kernel has no mount.mnt\n\
             rings    requests 4096 KiB, removals 1024 KiB\n\
             lacks    CAP_SYS_PTRACE (why)\n\
             unseen   io_uring\n"
        );
    }
}
