//! `imgwarden archive ls|verify PATH…`: what tarballs hold, and whether it is whole. Needs no agent and changes nothing.

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::archive::{
    Archive, ArchiveError, ArchiveProblem, ArchivedImage, Depth, Fault, Options, archives_in, checksum, read,
};

use super::{Exit, Global};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// List the images in tarballs.
    Ls {
        /// Tarballs, or directories of them.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
    /// Check every byte: digests, what layers unpack to, and a sha256sum*.txt beside the file. Exit code 3 when something
    /// is wrong.
    Verify {
        /// Tarballs, or directories of them.
        #[arg(required = true, value_name = "PATH")]
        paths: Vec<PathBuf>,
    },
}

/// What came of one file.
struct Outcome {
    path: PathBuf,
    result: Result<Archive, ArchiveError>,
}

impl Outcome {
    /// Something is wrong with what the file holds.
    fn is_damaged(&self) -> bool {
        match &self.result {
            Ok(archive) => archive.problems.iter().any(ArchiveProblem::is_damage),
            Err(error) => !error.fault.is_unreadable(),
        }
    }
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let (paths, verify) = match args.command {
        Command::Ls { paths } => (paths, false),
        Command::Verify { paths } => (paths, true),
    };
    let outcomes =
        tokio::task::spawn_blocking(move || look(&paths, verify)).await.context("reading the archives")??;
    if global.json {
        let all: Vec<_> = outcomes.iter().map(json_of).collect();
        println!("{}", serde_json::to_string_pretty(&Value::Array(all))?);
    } else if verify {
        outcomes.iter().for_each(print_verdict);
    } else {
        print!("{}", table(&outcomes));
    }
    let unreadable =
        |outcome: &Outcome| matches!(&outcome.result, Err(error) if !verify || error.fault.is_unreadable());
    for error in outcomes.iter().filter(|outcome| unreadable(outcome)).filter_map(|o| o.result.as_ref().err())
    {
        eprintln!("imgwarden: archive: {}", chain(error));
    }
    Ok(if outcomes.iter().any(unreadable) {
        Exit::Failed
    } else if verify && outcomes.iter().any(Outcome::is_damaged) {
        Exit::Found
    } else {
        Exit::Fine
    })
}

fn look(paths: &[PathBuf], verify: bool) -> anyhow::Result<Vec<Outcome>> {
    let depth = if verify { Depth::Layers } else { Depth::Content };
    let options = Options { depth, ..Options::default() };
    let mut outcomes = Vec::new();
    for path in paths {
        let files = if path.is_dir() {
            let files = archives_in(path, options.limits.archives)
                .with_context(|| format!("archive: {}: can't be read", path.display()))?;
            anyhow::ensure!(!files.is_empty(), "archive: {}: no archives in this directory", path.display());
            files
        } else {
            vec![path.clone()]
        };
        for path in files {
            let mut result = read(&path, &options);
            if verify {
                compare_to_list(&path, &mut result, &options);
            }
            outcomes.push(Outcome { path, result });
        }
    }
    Ok(outcomes)
}

/// Adds what a list of checksums says. Of a file that is broken, the place of the break says more than the list.
fn compare_to_list(path: &Path, result: &mut Result<Archive, ArchiveError>, options: &Options) {
    let Ok(archive) = result else { return };
    match checksum(path, &options.stop) {
        Ok(Some(sum)) if sum.expected != sum.found => archive.problems.push(ArchiveProblem::Checksum {
            list: sum.list.display().to_string(),
            expected: sum.expected,
            found: sum.found,
        }),
        Ok(_) => {}
        Err(error) => *result = Err(ArchiveError { path: path.into(), fault: Fault::Io(error) }),
    }
}

fn print_verdict(outcome: &Outcome) {
    let path = outcome.path.display();
    match &outcome.result {
        Ok(archive) => {
            for problem in &archive.problems {
                let mark = if problem.is_damage() { "BAD" } else { "note" };
                println!("{path}: {mark}: {problem}");
            }
            if !outcome.is_damaged() {
                let (images, bytes) =
                    (archive.images.len(), archive.images.iter().map(ArchivedImage::size).sum());
                println!("{path}: good: {images} images, {}, {}", size(bytes), form(archive));
            }
        }
        Err(error) if !error.fault.is_unreadable() => println!("{}", bad(error)),
        Err(_) => {}
    }
}

fn bad(error: &ArchiveError) -> String {
    format!("{}: BAD: {}", error.path.display(), reasons(&error.fault))
}

/// An error and its sources in one line.
fn chain(error: &ArchiveError) -> String {
    format!("{}: {}", error.path.display(), reasons(&error.fault))
}

fn reasons(fault: &Fault) -> String {
    let mut text = fault.to_string();
    let mut next = std::error::Error::source(fault);
    while let Some(source) = next {
        _ = write!(text, ": {source}");
        next = source.source();
    }
    text
}

fn table(outcomes: &[Outcome]) -> String {
    let mut out = String::new();
    for Outcome { path, result } in outcomes {
        let Ok(archive) = result else { continue };
        let images = archive.images.len();
        let plural = if images == 1 { "" } else { "s" };
        _ = writeln!(out, "{} ({}, {images} image{plural})", path.display(), form(archive));
        for image in &archive.images {
            let id = &image.id.to_hex()[..12];
            let layers = image.chain.len();
            let names = match image.names.is_empty() {
                true => "<no name>".to_owned(),
                false => image.names.iter().map(|name| printable(name)).collect::<Vec<_>>().join(", "),
            };
            _ = writeln!(out, "  {id}  {:>9}  {layers:>3} layers  {names}", size(image.size()));
        }
        for problem in &archive.problems {
            _ = writeln!(out, "  {} {problem}", if problem.is_damage() { "!" } else { "-" });
        }
    }
    out
}

fn form(archive: &Archive) -> String {
    format!("{}, {}", archive.form.as_str(), archive.compression)
}

/// A name from an archive may hold anything; a terminal must not obey it.
fn printable(name: &str) -> String {
    name.chars()
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect()
}

fn size(bytes: u64) -> String {
    indicatif::HumanBytes(bytes).to_string()
}

fn json_of(outcome: &Outcome) -> Value {
    let path = outcome.path.display().to_string();
    let archive = match &outcome.result {
        Ok(archive) => archive,
        Err(error) => return json!({"path": path, "error": reasons(&error.fault)}),
    };
    let images = archive.images.iter().map(|image| {
        json!({
            "names": image.names,
            "id": image.id,
            "target": {
                "media_type": image.target.media_type,
                "digest": image.target.digest,
                "bytes": image.target.size,
                "genuine": image.genuine,
            },
            "bytes": image.size(),
            "layers": image.chain.len(),
            "chain": image.chain,
            "blobs": image.blobs.iter().map(|blob| json!({
                "digest": blob.descriptor.digest,
                "bytes": blob.descriptor.size,
                "media_type": blob.descriptor.media_type,
            })).collect::<Vec<_>>(),
        })
    });
    let problems = archive
        .problems
        .iter()
        .map(|problem| json!({"damage": problem.is_damage(), "text": problem.to_string()}));
    json!({
        "path": path,
        "form": archive.form.as_str(),
        "compression": archive.compression.as_str(),
        "bytes_on_disk": archive.identity.size,
        "images": images.collect::<Vec<_>>(),
        "problems": problems.collect::<Vec<_>>(),
    })
}
