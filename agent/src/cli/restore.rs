//! `imgwarden restore`: bring an image back now, through the running agent.

use std::{io::IsTerminal as _, path::PathBuf, time::Duration};

use anyhow::Context as _;
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::{Exit, Global, output};
use crate::{
    config::Config,
    serve::{Client, Progress, Restore, Restored},
};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Brings an image back now: from what imgwarden still holds of it, else from an archive. The bytes of \
                  an archive are verified by hash before any record names them. Nothing is pulled.",
    after_help = "Examples:\n  imgwarden restore docker.io/rancher/mirrored-pause:3.6\n  \
                  imgwarden restore nginx:1.27 --from /mnt/usb/images.tar.zst"
)]
pub struct Args {
    /// A name in any spelling, or an image ID.
    image: String,
    /// The archive to take it from, instead of what is found.
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let Args { image, from } = args;
    let config = Config::load(global.config.as_deref())?;
    // The agent has another working directory.
    let from = from.map(std::path::absolute).transpose().context("restore")?;
    let bar = bar(std::io::stderr().is_terminal())?;
    bar.set_message(image.clone());
    let asked = Restore { image: image.clone(), from };
    let outcome = Client::new(config.control.socket).restore(&asked, |progress| show(&bar, progress)).await;
    bar.finish_and_clear();
    let restored = outcome.with_context(|| format!("restore {image}"))?;
    if global.json {
        output::json(&restored)?;
    } else {
        output::text(&describe(&image, &restored))?;
    }
    Ok(if restored.verified { Exit::Fine } else { Exit::Failed })
}

/// On stderr, and only for a person.
fn bar(is_terminal: bool) -> anyhow::Result<ProgressBar> {
    let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    bar.set_style(ProgressStyle::with_template("{spinner} {msg}")?);
    if is_terminal {
        bar.enable_steady_tick(Duration::from_millis(100));
    }
    Ok(bar)
}

fn show(bar: &ProgressBar, progress: Progress) {
    let Progress { what, done, total } = progress;
    if let Some(total) = total {
        let template = "{spinner} {msg} [{bar:30}] {bytes}/{total_bytes} {eta}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_length(total);
    }
    bar.set_position(done);
    bar.set_message(what);
}

fn describe(image: &str, restored: &Restored) -> String {
    let Restored { id: _, names, method, bytes_moved, took_ms, verified, source } = restored;
    let name = output::display_name(names, Some(image));
    let state = if *verified { "verified" } else { "NOT verified" };
    let Some(method) = method else {
        return format!("{name}: nothing was missing, {state}\n");
    };
    let source = source.as_ref().map(|path| format!(" {}", path.display())).unwrap_or_default();
    let moved = HumanBytes(*bytes_moved);
    format!("{name}: restored from {method}{source}, {moved} moved in {took_ms:.0} ms, {state}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_outcome_is_one_line() {
        let mut restored = Restored {
            id: None,
            names: vec!["docker.io/library/nginx:1.27".into()],
            method: Some("archive".into()),
            bytes_moved: 3 << 20,
            took_ms: 340.4,
            verified: true,
            source: Some("/mnt/images.tar".into()),
        };
        assert_eq!(
            describe("nginx:1.27", &restored),
            "docker.io/library/nginx:1.27: restored from archive /mnt/images.tar, 3.00 MiB moved in 340 ms, verified\n"
        );
        restored.method = None;
        restored.verified = false;
        restored.names.clear();
        assert_eq!(describe("nginx:1.27", &restored), "nginx:1.27: nothing was missing, NOT verified\n");
    }
}
