//! What a person types: the commands, what they share, and how each ends.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tracing_subscriber::{EnvFilter, filter::ParseError};

use crate::{config::ConfigError, serve::ClientError};

pub mod archive;
pub mod config;
pub mod events;
pub mod images;
pub mod output;
pub mod plan;
pub mod probe;
pub mod restore;
pub mod run;
pub mod status;
pub mod verify;
pub mod why;

const AFTER_HELP: &str = "\
Examples:
  imgwarden run                                    guard this node
  imgwarden status                                 what the running agent sees and holds
  imgwarden images                                 every image with its holds
  imgwarden why docker.io/rancher/mirrored-pause:3.6
  imgwarden restore docker.io/rancher/mirrored-pause:3.6
  imgwarden config check                           before the agent sees it

Exit codes: 0 fine, 1 failed, 2 usage or config, 3 found something, 4 not permitted.";

/// Says who deleted a Kubernetes node's image, and why, and makes the deletion harmless.
#[derive(Debug, Clone, Parser)]
#[command(name = "imgwarden", version, after_help = AFTER_HELP, propagate_version = true, max_term_width = 110)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Global {
    /// The config file [default: /etc/imgwarden/config.toml]; FILE.d/*.toml are read after it.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What is told on stderr: error, warn, info, debug, trace, or a filter as in RUST_LOG [default: RUST_LOG, else
    /// info for `run` and warn for the others].
    #[arg(long, global = true, value_name = "LEVEL")]
    pub log: Option<String>,
    /// How it is told.
    #[arg(long, global = true, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

/// A doc comment on a variant would replace the long help that its arguments carry: `about` does not.
#[derive(Debug, Clone, Subcommand)]
pub enum Command {
    #[command(about = "Guard this node: the agent")]
    Run(run::Args),
    #[command(about = "What the running agent sees and holds")]
    Status(status::Args),
    #[command(about = "Every image with its holds")]
    Images(images::Args),
    #[command(about = "What a config would hold and let go, touching nothing")]
    Plan(plan::Args),
    #[command(about = "An image's life, as a timeline; also with no agent running")]
    Why(why::Args),
    #[command(about = "The events; also with no agent running")]
    Events(events::Args),
    #[command(about = "Bring an image back now")]
    Restore(restore::Args),
    #[command(about = "Look into image tarballs")]
    Archive(archive::Args),
    #[command(about = "Check the journal's chain; needs no agent")]
    Verify(verify::Args),
    #[command(about = "What this kernel offers for watching")]
    Probe(probe::Args),
    #[command(about = "Check a config, or show the effective one and where each value comes from")]
    Config(config::Args),
}

impl Cli {
    pub async fn run(self) -> anyhow::Result<Exit> {
        let Self { global, command } = self;
        match command {
            Command::Run(args) => run::run(args, &global).await,
            Command::Status(args) => status::run(args, &global).await,
            Command::Images(args) => images::run(args, &global).await,
            Command::Plan(args) => plan::run(args, &global).await,
            Command::Why(args) => why::run(args, &global).await,
            Command::Events(args) => events::run(args, &global).await,
            Command::Restore(args) => restore::run(args, &global).await,
            Command::Archive(args) => archive::run(args, &global).await,
            Command::Verify(args) => verify::run(args, &global).await,
            Command::Probe(args) => probe::run(args, &global).await,
            Command::Config(args) => config::run(args, &global).await,
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Fine = 0,
    Failed = 1,
    Usage = 2,
    Found = 3,
    NotPermitted = 4,
}

impl Exit {
    /// What an error of a command means for the exit code, wherever in its chain the telling part is.
    pub fn of(error: &anyhow::Error) -> Self {
        for part in error.chain() {
            if part.is::<output::Closed>() {
                return Self::Fine;
            }
            if part.is::<ConfigError>() || part.is::<LogFilterError>() {
                return Self::Usage;
            }
            let refused = matches!(part.downcast_ref(), Some(ClientError::NotPermitted { .. }));
            if refused || part.is::<NotPermitted>() {
                return Self::NotPermitted;
            }
        }
        Self::Failed
    }
}

/// The one line of a failed command: `imgwarden: what: why`. Absent where there is nobody left to tell.
pub fn complaint(error: &anyhow::Error) -> Option<String> {
    if Exit::of(error) == Exit::Fine {
        return None;
    }
    let mut line = "imgwarden".to_owned();
    for part in error.chain().map(ToString::to_string) {
        // Some errors tell their source themselves.
        if !line.ends_with(&part) {
            line = format!("{line}: {part}");
        }
    }
    Some(
        line.split(['\n', '\r']).map(str::trim).filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" "),
    )
}

/// What `--log` or RUST_LOG asks for.
pub fn log_filter(text: &str) -> Result<EnvFilter, LogFilterError> {
    EnvFilter::try_new(text)
        .map_err(|source| LogFilterError { text: text.chars().take(80).collect(), source })
}

/// A filter that isn't understood; exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} is no log filter: write a level like info, or imgwarden=debug,h2=warn")]
pub struct LogFilterError {
    text: String,
    source: ParseError,
}

/// The kernel refuses something; exit code 4.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}: not permitted: {capability} is missing")]
pub struct NotPermitted {
    /// What was tried.
    pub what: String,
    /// What would allow it: `CAP_BPF`, `root`.
    pub capability: String,
}

#[cfg(test)]
mod tests;
