//! `imgwarden verify [DIR]`: whether the journal's chain holds. Reads files only: needs no agent, changes nothing.

use std::{fmt::Write as _, path::PathBuf};

use anyhow::Context as _;

use super::{Exit, Global, events, output};
use crate::audit::chain::{self, Report};

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Reads the journal from its oldest record and checks that each record was written after the one before \
                  it: what was changed, removed or put in between is found. Whether the last record is the last that was \
                  ever written is told by its hash, if it was shipped off the node. Exits with 3 when something is wrong.",
    after_help = "Examples:\n  imgwarden verify\n  imgwarden verify /mnt/evidence/imgwarden --json | jq .problems"
)]
pub struct Args {
    /// The journal's directory [default: what the config says].
    #[arg(value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let dir = events::journal(args.dir.as_deref(), global)?;
    let read = dir.clone();
    let report = tokio::task::spawn_blocking(move || match read.is_dir() {
        true => chain::verify(&read),
        false => Err(std::io::Error::new(std::io::ErrorKind::NotFound, "there is no journal here")),
    })
    .await?
    .with_context(|| format!("verify: {}", dir.display()))?;
    if global.json {
        output::json(&report)?;
    } else {
        output::text(&describe(&report))?;
    }
    Ok(if report.intact() { Exit::Fine } else { Exit::Found })
}

fn describe(report: &Report) -> String {
    let Report { segments, records, first, last, hash, declared, problems, problems_count, torn } = report;
    let plural = |count: u64, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let mut text = format!("{} in {}", plural(*records, "record"), plural(*segments, "segment"));
    // Writing to a String can't fail.
    if let (Some(first), Some(last)) = (first, last) {
        let _ = write!(text, ", {} ({:.0}) to {} ({:.0})", first.seq, first.time.0, last.seq, last.time.0);
    }
    text.push('\n');
    for missing in declared {
        let _ = writeln!(
            text,
            "records {} to {} are not here, as the journal itself says",
            missing.first_seq, missing.last_seq
        );
    }
    if *torn {
        text.push_str("the last line is not complete: it is being written, or was at a crash\n");
    }
    for problem in problems {
        let _ = writeln!(text, "{problem}");
    }
    let untold = problems_count.saturating_sub(problems.len() as u64);
    if untold > 0 {
        let _ = writeln!(text, "and {untold} more");
    }
    let _ = match (problems_count, hash) {
        (0, Some(hash)) => writeln!(text, "the chain holds; the last record's hash: {hash}"),
        (0, None) => writeln!(text, "the chain holds"),
        (count, _) => writeln!(text, "the chain is broken: {}", plural(*count, "problem")),
    };
    text
}
