//! `imgwarden events`: the journal as compact lines, or as the JSON that it is. Reads files only, so it works with no
//! agent running.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::Context as _;
use jiff::{SignedDuration, Timestamp};

use super::{Exit, Global};
use crate::{
    audit::{
        reader::{Record, Tail},
        text::{plain, short},
    },
    config::Config,
    name,
};

/// How often `--follow` looks for more.
const LOOK: Duration = Duration::from_millis(200);

/// Prints the journal's events, oldest first: time, severity, type and what happened.
///
/// Works with no agent running. With --json each event is printed as it stands in the journal.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Args {
    /// Goes on with what is written from now on, across rotations.
    #[arg(long, short)]
    pub follow: bool,
    /// Only events of this type, e.g. image.deleted; `image.*` for all that begin so. Can be given several times.
    #[arg(long = "type", value_name = "TYPE")]
    pub kinds: Vec<String>,
    /// Only events about this image: a name in any usual spelling, an ID, or an ID's first 6 digits or more.
    #[arg(long, value_name = "IMAGE")]
    pub image: Option<String>,
    /// Only events since then: how long ago (90s, 10m, 2h, 7d) or an RFC 3339 time.
    #[arg(long, value_name = "WHEN", value_parser = since)]
    pub since: Option<Timestamp>,
    /// The journal's directory. Default: what the config says.
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let dir = journal(args.journal.as_deref(), global)?;
    run_with(&dir, args, global).await
}

/// Where the journal is: what was typed, else what the config says.
pub(super) fn journal(typed: Option<&Path>, global: &Global) -> anyhow::Result<PathBuf> {
    match typed {
        Some(dir) => Ok(dir.to_owned()),
        None => Ok(Config::load(global.config.as_deref())?.journal.dir),
    }
}

/// As [`run`], on a given directory.
pub async fn run_with(dir: &Path, args: Args, global: &Global) -> anyhow::Result<Exit> {
    let json = global.json;
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || {
        let mut out = io::stdout().lock();
        match print(&dir, &args, json, &mut out) {
            // `imgwarden events | head`: whoever read has seen enough.
            Err(Print::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(Exit::Fine),
            Err(Print::Out(error)) => Err(error).context("stdout"),
            Err(Print::Journal(error)) => Err(error).with_context(|| format!("events: {}", dir.display())),
            Ok(()) => Ok(Exit::Fine),
        }
    })
    .await?
}

/// What failed.
#[derive(Debug)]
enum Print {
    Journal(io::Error),
    Out(io::Error),
}

fn print(dir: &Path, args: &Args, json: bool, out: &mut impl Write) -> Result<(), Print> {
    if !args.follow && !dir.is_dir() {
        let none = "there is no journal here; --journal DIR names another place";
        return Err(Print::Journal(io::Error::new(io::ErrorKind::NotFound, none)));
    }
    let wanted = args.image.as_deref().map(Wanted::new);
    let mut tail = Tail::oldest(dir).map_err(Print::Journal)?;
    loop {
        while let Some(line) = tail.next_line().map_err(Print::Journal)? {
            let Ok(record) = line.record else { continue };
            if !args.kinds.is_empty() && !args.kinds.iter().any(|kind| of_kind(record.kind(), kind))
                || args.since.is_some_and(|since| record.head.time.0 < since)
                || wanted.as_ref().is_some_and(|wanted| !wanted.is_in(&record))
            {
                continue;
            }
            if json { writeln!(out, "{}", record.text) } else { writeln!(out, "{}", compact(&record)) }
                .map_err(Print::Out)?;
        }
        out.flush().map_err(Print::Out)?;
        if !args.follow {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// `image.*` is all types of images.
fn of_kind(kind: &str, wanted: &str) -> bool {
    match wanted.strip_suffix('*') {
        Some(beginning) => kind.starts_with(beginning),
        None => kind == wanted,
    }
}

fn compact(record: &Record) -> String {
    let field = |key: &str| record.value.get(key).and_then(serde_json::Value::as_str).unwrap_or("");
    let time = format!("{:.3}", record.head.time.0);
    let severity = plain(&short(field("severity"), 8));
    let kind = plain(&short(record.kind(), 40));
    format!("{time} {severity:<5} {kind:<22} {}", plain(field("message")))
}

fn since(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let duration: SignedDuration = text
        .parse()
        .map_err(|_| format!("{text:?}: a time like 2026-01-02T03:04:05Z or a duration like 10m"))?;
    Timestamp::now().checked_sub(duration.abs()).map_err(|error| error.to_string())
}

/// The image that a person asks for.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    /// As it was typed.
    pub(super) text: String,
    /// The name's full form.
    name: Option<String>,
    /// At least 6 hex digits of an ID or a digest.
    hex: Option<String>,
}

impl Wanted {
    pub(super) fn new(text: &str) -> Self {
        let text = text.trim().to_owned();
        let digits = text.strip_prefix("sha256:").unwrap_or(&text).to_ascii_lowercase();
        let hex = (6..=64).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        Self { name: name::normalise(&text).ok(), hex: hex.then_some(digits), text }
    }

    /// Whether the record is about it.
    pub(super) fn is_in(&self, record: &Record) -> bool {
        let value = &record.value;
        let single = value.get("image").into_iter();
        let several = value.get("images").and_then(serde_json::Value::as_array).into_iter().flatten();
        single.chain(several).any(|image| {
            let text = |key: &str| image.get(key).and_then(serde_json::Value::as_str);
            let names = image.get("names").and_then(serde_json::Value::as_array).into_iter().flatten();
            text("id").is_some_and(|id| self.is_id(id))
                || names
                    .filter_map(serde_json::Value::as_str)
                    .chain(text("name"))
                    .any(|name| self.is_name(name))
        }) || ["digest", "snapshot", "before", "after"].iter().any(|key| {
            value.get(key).and_then(serde_json::Value::as_str).is_some_and(|digest| self.is_id(digest))
        })
    }

    fn is_id(&self, id: &str) -> bool {
        let digits = id.strip_prefix("sha256:").unwrap_or(id);
        self.hex.as_ref().is_some_and(|hex| digits.starts_with(hex.as_str()))
    }

    fn is_name(&self, name: &str) -> bool {
        name == self.text
            || name.starts_with("sha256:") && self.is_id(name)
            || name.rsplit_once('@').is_some_and(|(_, digest)| self.is_id(digest))
            || self.name.as_ref().is_some_and(|full| name::normalise(name).as_ref() == Ok(full))
    }
}

#[cfg(test)]
mod tests;
