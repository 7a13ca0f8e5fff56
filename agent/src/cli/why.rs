//! `imgwarden why IMAGE`: an image's life on this node as a timeline of at most 20 lines, and what to type next. Reads
//! files only, so it works with no agent running.

use std::{
    collections::VecDeque,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use jiff::Timestamp;

use super::{
    Exit, Global,
    events::{Wanted, journal},
};
use crate::audit::{
    Body, Cause, Confidence, Event, Kind,
    message::duration,
    reader::{Record, Tail},
    repair::Outcome,
    text::{plain, short},
};

/// The most lines of a timeline, the line of the folded ones included.
const LINES: usize = 20;
/// The most records that are kept for it: some are told by a later one.
const KEPT: usize = 2 * LINES;
/// What to do about a protected image that should go.
const LET_GO: &str =
    "to have it stay deleted: add it to defaults.excluded in the config and restart imgwarden";
/// The longest sentence, in bytes.
const SENTENCE: usize = 640;

/// Tells what happened to an image on this node, by whom and why, and what was done about it.
///
/// Works with no agent running. Exits with 1 when nothing is known about the image.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// A name in any usual spelling, an ID, or an ID's first 6 digits or more.
    #[arg(value_name = "IMAGE")]
    pub image: String,
    /// The journal's directory. Default: what the config says.
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let dir = journal(args.journal.as_deref(), global)?;
    run_with(&dir, args, global).await
}

/// As [`run`], on a given directory.
pub async fn run_with(dir: &Path, args: Args, global: &Global) -> anyhow::Result<Exit> {
    let json = global.json;
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || {
        if !dir.is_dir() {
            anyhow::bail!(
                "why: {}: there is no journal here; --journal DIR names another place",
                dir.display()
            );
        }
        let life = Life::read(&dir, &args.image).with_context(|| format!("why: {}", dir.display()))?;
        let Some(life) = life else {
            // One line, and the exit code of a failure.
            anyhow::bail!("why: nothing is known about {} in {}", plain(&args.image), dir.display());
        };
        let text = if json { life.json() } else { life.text(Timestamp::now()) };
        match io::stdout().lock().write_all(text.as_bytes()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("stdout"),
            _ => Ok(Exit::Fine),
        }
    })
    .await?
}

/// What the journal has on one image.
#[derive(Debug)]
struct Life {
    /// As the person typed it.
    asked: String,
    /// The newest records, oldest first; at most [`KEPT`].
    newest: VecDeque<Record>,
    /// How many there are, and when the first one was.
    count: u64,
    first: Timestamp,
}

impl Life {
    fn read(dir: &Path, image: &str) -> io::Result<Option<Self>> {
        let wanted = Wanted::new(image);
        let mut tail = Tail::oldest(dir)?;
        let mut life: Option<Self> = None;
        while let Some(line) = tail.next_line()? {
            let Ok(record) = line.record else { continue };
            if !wanted.is_in(&record) {
                continue;
            }
            let life = life.get_or_insert_with(|| Self {
                asked: wanted.text.clone(),
                newest: VecDeque::new(),
                count: 0,
                first: record.head.time.0,
            });
            life.count += 1;
            life.newest.push_back(record);
            if life.newest.len() > KEPT {
                life.newest.pop_front();
            }
        }
        Ok(life)
    }

    /// Whether the end of its incident says the same: `restored` is a part of `closed`.
    fn is_told_later(&self, record: &Record) -> bool {
        let Some(incident) = record.value.get("incident") else { return false };
        let closes = |later: &Record| {
            later.kind() == "incident.closed" && later.value.get("incident") == Some(incident)
        };
        record.kind() == "image.restored" && self.newest.iter().any(closes)
    }

    /// The newest records as they stand in the journal.
    fn json(&self) -> String {
        let skipped = self.newest.len().saturating_sub(LINES);
        self.newest.iter().skip(skipped).flat_map(|record| [record.text.as_str(), "\n"]).collect()
    }

    fn text(&self, now: Timestamp) -> String {
        let mut lines = Vec::new();
        let mut shown: Vec<(usize, &Record)> =
            self.newest.iter().enumerate().filter(|(_, record)| !self.is_told_later(record)).collect();
        // The heading and what to type next are not lines of the timeline; the folded ones are one.
        let all = self.count == self.newest.len() as u64 && shown.len() <= LINES;
        let room = if all { LINES } else { LINES - 1 };
        shown.drain(..shown.len().saturating_sub(room));
        let told = self.newest.len() - shown.first().map_or(0, |(at, _)| *at);
        let folded = self.count - told as u64;
        lines.push(format!("{}: {} events since {:.0}", plain(&self.asked), self.count, self.first));
        if folded > 0 {
            lines.push(format!(
                "  {:<24} {folded} older events: imgwarden events --image {}",
                "…",
                self.quoted()
            ));
        }
        for (_, record) in &shown {
            let time = record.head.time.0;
            let ago = duration(now.duration_since(time).as_millis_f64().max(0.0));
            let event = record.event().ok();
            let sentence = event.as_ref().map_or_else(|| record.kind().to_owned(), sentence);
            lines.push(format!("  {time:.0} {:>8} ago  {}", ago, plain(&short(&sentence, SENTENCE))));
        }
        lines.push(self.next(shown.last().and_then(|(_, record)| record.event().ok()).as_ref()));
        lines.join("\n") + "\n"
    }

    /// What to type next.
    fn next(&self, last: Option<&Event>) -> String {
        let image = self.quoted();
        let restore = format!("to bring it back: imgwarden restore {image}");
        match last.map(|event| &event.body) {
            Some(Body::ImageDeleted(deleted)) if !deleted.image.protected => {
                "it is not protected; to see what would be: imgwarden plan".into()
            }
            Some(Body::ImageRestoreFailed(_) | Body::ImageRestoreDeferred(_) | Body::ImageDamaged(_)) => {
                restore
            }
            Some(Body::ImageDeleted(deleted)) if deleted.would.is_some() => restore,
            Some(Body::ImageReleased(_) | Body::ImageSuperseded(_)) => restore,
            Some(Body::IncidentClosed(closed)) => match closed.repair.as_ref().map(|repair| repair.outcome) {
                Some(Outcome::NotProtected) => {
                    "it is not protected; to see what would be: imgwarden plan".into()
                }
                Some(Outcome::Failed | Outcome::Deferred | Outcome::Observed | Outcome::Released) => restore,
                _ => LET_GO.into(),
            },
            Some(_) => LET_GO.into(),
            None => format!("all of it: imgwarden events --image {image}"),
        }
    }

    /// The image as a shell takes it.
    fn quoted(&self) -> String {
        let plain = plain(&self.asked);
        let safe = plain.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"./:@_-+".contains(&byte));
        if safe { plain } else { format!("'{}'", plain.replace('\'', "'\\''")) }
    }
}

/// The event's own sentence, and why it happened.
fn sentence(event: &Event) -> String {
    let message = &event.message;
    let cause = match &event.body {
        Body::ImageDeleted(deleted) => Some(&deleted.cause),
        Body::ImageDamaged(damaged) => damaged.cause.as_ref(),
        _ => None,
    };
    match cause.and_then(because) {
        Some(why) => format!("{message} [{why}]"),
        None => message.clone(),
    }
}

fn because(cause: &Cause) -> Option<String> {
    let sure = match cause.confidence {
        Confidence::Seen => "seen",
        Confidence::Inferred => "inferred",
        Confidence::None => return None,
    };
    let tool = cause.tool.as_deref().filter(|_| cause.kind != Kind::Cli);
    let tool = tool.map(|tool| format!(" {tool}")).unwrap_or_default();
    Some(format!("{}{tool}, {sure}", cause.kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        audit::{
            Draft, Image, Journal, Severity,
            image::{Deleted, Lost},
            journal::Options,
            repair::{Closed, Hold, HoldChanged, Method, Restored},
        },
        digest::Digest,
    };

    fn image(protected: bool) -> Image {
        Image {
            id: Some(Digest::of(b"pause")),
            names: vec!["docker.io/rancher/mirrored-pause:3.6".into()],
            protected,
            ..Image::default()
        }
    }

    fn deleted(protected: bool) -> Body {
        let evidence = vec!["request seen on containerd's socket from pid 7".into()];
        let (kind, confidence) = (Kind::Cli, Confidence::Seen);
        Body::ImageDeleted(Box::new(Deleted {
            image: image(protected),
            actor: None,
            request: None,
            candidates: None,
            candidates_count: None,
            cause: Cause { kind, tool: Some("crictl".into()), confidence, evidence },
            orphaned: None,
            burst: None,
            would: None,
        }))
    }

    fn at(time: &str, body: Body) -> Draft {
        Draft { severity: Some(Severity::Info), incident: None, time: time.parse().unwrap(), body }
    }

    fn journal() -> (tempfile::TempDir, Journal) {
        let root = tempfile::tempdir().unwrap();
        let options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
        let (journal, _) = Journal::open(&options).unwrap();
        (root, journal)
    }

    #[test]
    fn a_life_is_told_in_order_with_its_causes_and_the_next_command() {
        let (_root, mut journal) = journal();
        let held =
            HoldChanged { image: image(true), hold: Hold::Lease, why: Some("sandbox".into()), bytes: None };
        journal.append(at("2026-01-02T03:00:00Z", Body::HoldTaken(Box::new(held)))).unwrap();
        journal.append(at("2026-01-02T03:04:05Z", deleted(true))).unwrap();
        let life = Life::read(journal.dir(), "rancher/mirrored-pause:3.6").unwrap().unwrap();
        assert_eq!(
            life.text("2026-01-02T05:04:05Z".parse().unwrap()),
            "rancher/mirrored-pause:3.6: 2 events since 2026-01-02T03:00:00Z\n  \
             2026-01-02T03:00:00Z      2 h ago  docker.io/rancher/mirrored-pause:3.6 is held by a lease (sandbox)\n  \
             2026-01-02T03:04:05Z      2 h ago  an unknown process deleted docker.io/rancher/mirrored-pause:3.6 \
             [cli, seen]\n\
             to have it stay deleted: add it to defaults.excluded in the config and restart imgwarden\n"
        );
    }

    #[test]
    fn a_long_life_is_folded_to_20_lines() {
        let (_root, mut journal) = journal();
        for minute in 0..50 {
            journal.append(at(&format!("2026-01-02T03:{minute:02}:00Z"), deleted(false))).unwrap();
        }
        let id = Digest::of(b"pause").to_hex();
        let life = Life::read(journal.dir(), &id[..8]).unwrap().unwrap();
        let text = life.text("2026-01-03T03:00:00Z".parse().unwrap());
        let timeline: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
        assert_eq!(timeline.len(), 20, "{text}");
        assert!(timeline[0].contains("31 older events"), "{text}");
        assert!(timeline[1].contains("2026-01-02T03:31:00Z"), "{text}");
        assert!(text.ends_with("imgwarden plan\n"), "{text}");
    }

    #[test]
    fn a_restoration_is_told_once_by_the_end_of_its_incident() {
        let (_root, mut journal) = journal();
        let incident = Some(uuid::Uuid::from_u128(7));
        let restored = Restored {
            image: image(true),
            method: Method::Records,
            bytes_moved: 0,
            took_ms: 10.0,
            delete_to_usable_ms: Some(12.0),
            source: None,
            verified: None,
            actor: None,
            reason: None,
        };
        let restored = || Body::ImageRestored(Box::new(restored.clone()));
        let draft = |time, body| Draft { incident, ..at(time, body) };
        journal.append(at("2026-01-02T03:00:00Z", restored())).unwrap();
        journal.append(draft("2026-01-02T03:01:00Z", restored())).unwrap();
        let open = Life::read(journal.dir(), "rancher/mirrored-pause:3.6").unwrap().unwrap();
        let now = "2026-01-02T05:04:05Z".parse().unwrap();
        assert_eq!(open.text(now).matches("restored").count(), 2, "{}", open.text(now));
        let closed = Closed {
            image: image(true),
            actor: None,
            cause: None,
            lost: Lost::default(),
            repair: None,
            from: None,
            to: None,
            burst: None,
        };
        journal.append(draft("2026-01-02T03:02:00Z", Body::IncidentClosed(Box::new(closed)))).unwrap();
        let life = Life::read(journal.dir(), "rancher/mirrored-pause:3.6").unwrap().unwrap();
        let text = life.text(now);
        assert_eq!(text.matches("restored").count(), 1, "{text}");
        assert!(text.contains("03:02:00Z") && text.contains("3 events") && !text.contains("older"), "{text}");
    }

    #[tokio::test]
    async fn an_image_that_nothing_is_known_of_is_one_clear_line() {
        let (_root, mut journal) = journal();
        journal.append(at("2026-01-02T03:00:00Z", deleted(true))).unwrap();
        let args = Args { image: "docker.io/library/nginx:1.27".into(), journal: None };
        let error = run_with(journal.dir(), args, &Global::default()).await.unwrap_err();
        assert!(
            error.to_string().starts_with("why: nothing is known about docker.io/library/nginx:1.27 in ")
        );
    }
}
