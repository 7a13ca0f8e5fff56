//! `imgwarden status`: what the running agent sees and holds, on one screen.

use std::fmt::Write as _;

use anyhow::Context as _;
use indicatif::{HumanBytes, HumanDuration};
use jiff::Timestamp;

use super::{Exit, Global, output};
use crate::{
    config::Config,
    serve::{Client, Status},
};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Asks the running agent what it sees and holds: the containerd that it guards, what of the kernel it \
                  watches and what that can't see, how many images are protected and held, and what happened since it \
                  was started.",
    after_help = "Example:\n  imgwarden status --json | jq .counts"
)]
pub struct Args {}

pub async fn run(_args: Args, global: &Global) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref())?;
    let status = Client::new(config.control.socket).status().await.context("status")?;
    if global.json {
        output::json(&status)?;
    } else {
        output::text(&describe(&status, Timestamp::now()))?;
    }
    Ok(Exit::Fine)
}

fn describe(status: &Status, now: Timestamp) -> String {
    let Status { version, since, mode, node, containerd, probe, counts, journal, rss } = status;
    let mode = super::config::word_of(mode);
    let age = HumanDuration(now.duration_since(*since).unsigned_abs());
    let mut text = format!("imgwarden {version} on {node}: {mode}, for {age} (since {since:.0})\n");
    let mut line = |name: &str, value: std::fmt::Arguments<'_>| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "{name:<12}{value}");
    };
    let address = containerd.address.display();
    let namespace = &containerd.namespace;
    let answers = if containerd.connected { "connected" } else { "does not answer" };
    let release = containerd.version.as_deref().unwrap_or("of unknown version");
    line("containerd", format_args!("{release} at {address}, namespace {namespace}: {answers}"));
    let attached = probe.hooks.iter().filter(|hook| hook.attached).count();
    let backend = probe.backend.as_deref().unwrap_or("none");
    line("probe", format_args!("{backend}: {attached} of {} hooks attached", probe.hooks.len()));
    for hook in probe.hooks.iter().filter(|hook| !hook.attached) {
        line("", format_args!("{} is missing: {}", hook.name, hook.why.as_deref().unwrap_or("unknown why")));
    }
    for blind_spot in &probe.not_seen {
        line("", format_args!("not seen: {blind_spot}"));
    }
    line("images", format_args!("{}: {} protected, {} held", counts.images, counts.protected, counts.held));
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    let (incidents, gaps) = (counted(counts.incidents, "incident"), counted(counts.gaps, "gap"));
    line("since start", format_args!("{incidents}, {} restored, {gaps}", counts.restored));
    line("journal", format_args!("{}, event {}", journal.dir.display(), journal.seq));
    if let Some(rss) = rss {
        line("memory", format_args!("{}", HumanBytes(*rss)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Mode,
        serve::{ContainerdStatus, Counts, HookStatus, JournalStatus, ProbeStatus},
    };

    #[test]
    fn a_status_fits_a_screen() {
        let since: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let hook = |name: &str, attached, why: Option<&str>| HookStatus {
            name: name.into(),
            attached,
            why: why.map(Into::into),
        };
        let status = Status {
            version: "0.1.0".into(),
            since,
            mode: Mode::Observe,
            node: "edge-7".into(),
            containerd: ContainerdStatus {
                address: "/run/k3s/containerd/containerd.sock".into(),
                version: Some("1.6.20".into()),
                connected: true,
                namespace: "k8s.io".into(),
            },
            probe: ProbeStatus {
                backend: Some("tracepoint".into()),
                hooks: vec![hook("sys_exit", true, None), hook("sched_process_exec", false, Some("no BTF"))],
                not_seen: vec!["io_uring".into()],
            },
            counts: Counts { images: 12, protected: 5, held: 4, incidents: 3, restored: 2, gaps: 1 },
            journal: JournalStatus { dir: "/var/log/imgwarden".into(), seq: 42 },
            rss: Some(15 << 20),
        };
        let now = "2026-01-02T06:04:05Z".parse().unwrap();
        assert_eq!(
            describe(&status, now),
            "imgwarden 0.1.0 on edge-7: observe, for 3 hours (since 2026-01-02T03:04:05Z)\n\
             containerd  1.6.20 at /run/k3s/containerd/containerd.sock, namespace k8s.io: connected\n\
             probe       tracepoint: 1 of 2 hooks attached\n            \
             sched_process_exec is missing: no BTF\n            \
             not seen: io_uring\n\
             images      12: 5 protected, 4 held\n\
             since start 3 incidents, 2 restored, 1 gap\n\
             journal     /var/log/imgwarden, event 42\n\
             memory      15.00 MiB\n"
        );
    }
}
