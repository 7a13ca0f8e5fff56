//! `imgwarden config`: check a config before the agent sees it, and show the effective one with its sources.

use std::path::PathBuf;

use clap::Subcommand;
use serde::Serialize;
use serde_json::Value;

use super::{Exit, Global, output};
use crate::{
    config::{Config, Entry, keys::Key, reference},
    digest::Digest,
};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Checks a config, or shows the one in force. Neither needs a running agent or changes anything.",
    after_help = "Examples:\n  imgwarden config check new.toml\n  imgwarden config show\n  \
                  imgwarden config show --json | jq '.values[] | select(.source != \"default\")'"
)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Subcommand)]
enum Action {
    /// Say whether a config can be used: exit code 0, or 2 with file, line and what was probably meant.
    Check {
        /// The file, with FILE.d/*.toml [default: that of --config].
        file: Option<PathBuf>,
    },
    /// Print every value and where it comes from.
    Show,
    /// Print the reference of every key, as Markdown.
    Reference,
}

/// What `show` prints as JSON.
#[derive(Debug, Serialize)]
struct Effective {
    hash: Digest,
    values: Vec<Entry>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let (file, show) = match args.action {
        Action::Check { file } => (file, false),
        Action::Show => (None, true),
        Action::Reference => {
            output::text(&reference::markdown(Key::top()))?;
            return Ok(Exit::Fine);
        }
    };
    let config = Config::load(file.as_deref().or(global.config.as_deref()))?;
    let effective = Effective { hash: config.hash(), values: config.entries() };
    match (show, global.json) {
        (true, true) => output::json(&effective)?,
        (true, false) => output::text(&describe(&effective.values))?,
        (false, true) => output::json(&serde_json::json!({"fine": true, "hash": effective.hash}))?,
        (false, false) => output::text("the config is fine\n")?,
    }
    Ok(Exit::Fine)
}

fn describe(entries: &[Entry]) -> String {
    let row = |entry: &Entry| [entry.key.clone(), entry.value.to_string(), entry.source.to_string()];
    output::table(["KEY", "VALUE", "FROM"], entries.iter().map(row))
}

/// The word by which a config writes a value of a closed list.
pub(super) fn word_of<T: Serialize>(value: &T) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => String::new(),
    }
}
