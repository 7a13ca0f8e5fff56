//! The journal: takes drafts, numbers and chains them, and appends them to `events.jsonl` as whole lines.
//!
//! It declares itself what it could not keep: numbers that a power cut may have taken, the oldest records removed at
//! full size, events that a full disk refused. It never changes a line that is written.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Deserialize as _;
use uuid::Uuid;

use super::{
    Clock, Draft, Event, Severity,
    agent::{Gap, GapKind},
    body::Body,
    chain,
    clock::Time,
    event::{Host, Schema},
    fit,
    reader::{Head, Tail},
    segment::{self, Active, Look},
    stream::{BLOCK, Stream, StreamError},
};
use crate::digest::Digest;

/// Where and how the journal is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Where the files are; made when it is missing.
    pub dir: PathBuf,
    /// Where the stream's identity is; made when it is missing. Only one agent at a time may use it.
    pub state_dir: PathBuf,
    /// Bytes that all files may take together. At least the last complete file is kept, for the shipper's sake.
    pub max_size: u64,
    /// Bytes of one file.
    pub max_segment: u64,
    pub fsync: Fsync,
    /// The node's name.
    pub node: String,
    pub host: Host,
}

/// When records are put onto the disk for good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    /// Each before the next is written.
    Always,
    /// Together, when no more are waiting.
    #[default]
    Batch,
}

impl Options {
    /// The defaults.
    pub fn new(dir: impl Into<PathBuf>, state_dir: impl Into<PathBuf>, node: impl Into<String>) -> Self {
        Self {
            dir: dir.into(),
            state_dir: state_dir.into(),
            max_size: 256 << 20,
            max_segment: 10 << 20,
            fsync: Fsync::default(),
            node: node.into(),
            host: Host::this(),
        }
    }
}

impl Host {
    /// The machine that this runs on. What can't be read is empty.
    pub fn this() -> Self {
        let read = |paths: &[&str]| {
            let text = paths.iter().find_map(|path| fs::read_to_string(path).ok()).unwrap_or_default();
            super::text::short(text.trim(), 64)
        };
        Self {
            id: read(&["/proc/1/root/etc/machine-id", "/etc/machine-id"]),
            boot_id: read(&["/proc/sys/kernel/random/boot_id"]),
        }
    }
}

/// What the journal looked like when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Opened {
    /// Whether the last run ended in order. None: there was none.
    pub clean: Option<bool>,
    /// How many bytes of an unfinished record were cut off.
    pub torn: u64,
    /// The last record before.
    pub last: Option<chain::Position>,
    /// What was declared missing, already in the journal.
    pub gaps: Vec<Gap>,
}

/// Why a record could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    #[error("{path}: {source}")]
    Dir { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Stream(#[from] StreamError),
    #[error("{dir}: append: {source}")]
    Append { dir: PathBuf, source: io::Error },
    #[error("{dir}: rotate: {source}")]
    Rotate { dir: PathBuf, source: io::Error },
    #[error("event {kind}: {source}")]
    Form { kind: &'static str, source: serde_json::Error },
}

/// Events that could not be written, until that can be written.
#[derive(Debug, Clone, Copy)]
struct Failed {
    count: u64,
    from: Timestamp,
    to: Timestamp,
}

/// The open journal.
#[derive(Debug)]
pub struct Journal {
    options: Options,
    stream: Stream,
    /// None only when rotation failed half-way; opened again at the next append.
    active: Option<Active>,
    /// The last number that was used.
    seq: u64,
    /// The last record's hash.
    prev: Option<Digest>,
    /// The first number in the active file. None while it has none.
    first_here: Option<u64>,
    failed: Option<Failed>,
}

impl Journal {
    /// Opens the journal, puts in order what a crash left, and declares what is missing.
    pub fn open(options: &Options) -> Result<(Self, Opened), JournalError> {
        let options = options.clone();
        make_dir(&options.dir, 0o750)?;
        make_dir(&options.state_dir, 0o700)?;
        let at = |source| JournalError::Dir { path: options.dir.clone(), source };
        let mut active = Active::open(&options.dir).map_err(at)?;
        let torn = active.heal().map_err(at)?;
        let found = last_record(&options.dir).map_err(at)?;

        let known = Stream::load(&options.state_dir)?.filter(|known| known.machine == options.host.id);
        let first_run = known.is_none();
        let mut stream = known.unwrap_or_else(|| Stream::new(&options.host.id, &options.host.boot_id));
        let (seq, jump) = continued(&stream, found.as_ref(), &options.host.boot_id);
        let opened = Opened {
            clean: (!first_run).then_some(stream.last.is_some()),
            torn,
            last: found.as_ref().map(|found| found.position),
            gaps: Vec::new(),
        };
        stream.boot.clone_from(&options.host.boot_id);
        stream.last = None;
        // Numbers that are left out are given up by the first record's reservation: a crash before it must find the
        // state as it was.
        if jump.is_none() {
            stream.store(&options.state_dir)?;
        }

        let prev = found.as_ref().map(|found| found.hash);
        let first_here = found.and_then(|found| found.first_here);
        let mut journal = Self { options, stream, active: Some(active), seq, prev, first_here, failed: None };
        let gaps = journal.declare(&opened, jump)?;
        Ok((journal, Opened { gaps, ..opened }))
    }

    /// Writes at the open what is missing before.
    fn declare(&mut self, opened: &Opened, jump: Option<Gap>) -> Result<Vec<Gap>, JournalError> {
        let from = opened.last.map(|last| last.time);
        let mut gaps: Vec<Gap> = jump.into_iter().map(|gap| Gap { from, ..gap }).collect();
        if opened.torn > 0 {
            gaps.push(Gap {
                count: Some(1),
                from,
                why: Some(format!("a record was cut off in the middle: {} bytes", opened.torn)),
                ..Gap::of(GapKind::JournalTorn)
            });
        }
        for gap in &gaps {
            self.write(&Draft::now(Body::AgentGap(gap.clone())))?;
        }
        Ok(gaps)
    }

    /// Appends one event. When that fails, the event is lost, counted, and declared by the next append that succeeds.
    pub fn append(&mut self, draft: Draft) -> Result<Event, JournalError> {
        self.try_append(&draft).inspect_err(|_| self.lose(&draft))
    }

    /// Appends one event, or leaves everything as it was.
    pub fn try_append(&mut self, draft: &Draft) -> Result<Event, JournalError> {
        self.look()?;
        self.declare_lost()?;
        self.write(draft)
    }

    /// Says how many events could not be written, if there are any.
    fn declare_lost(&mut self) -> Result<(), JournalError> {
        if let Some(Failed { count, from, to }) = self.failed {
            let gap = Gap {
                count: Some(count),
                from: Some(from.into()),
                to: Some(to.into()),
                why: Some("events could not be written".into()),
                ..Gap::of(GapKind::JournalFailed)
            };
            self.write(&Draft::now(Body::AgentGap(gap)))?;
            self.failed = None;
        }
        Ok(())
    }

    /// Counts an event that its teller gives up.
    pub fn lose(&mut self, draft: &Draft) {
        let failed = self.failed.get_or_insert(Failed { count: 0, from: draft.time, to: draft.time });
        failed.count += 1;
        failed.from = failed.from.min(draft.time);
        failed.to = failed.to.max(draft.time);
    }

    /// Puts everything that was appended onto the disk.
    pub fn sync(&self) -> Result<(), JournalError> {
        self.active.as_ref().map_or(Ok(()), Active::sync).map_err(|source| self.append_error(source))
    }

    /// Ends in order: the next start knows that nothing was lost. If events were, and that can't be written either, the
    /// next start finds a journal that was not closed.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.look()?;
        self.declare_lost()?;
        self.sync()?;
        self.stream.last = Some(self.seq);
        Ok(self.stream.store(&self.options.state_dir)?)
    }

    /// The stream of the records.
    pub fn stream(&self) -> Uuid {
        self.stream.stream
    }

    /// The last record's number and hash.
    pub fn head(&self) -> (u64, Option<Digest>) {
        (self.seq, self.prev)
    }

    /// The directory of the files.
    pub fn dir(&self) -> &Path {
        &self.options.dir
    }

    /// Whether the file is still the one that was written last: a `rm` or a foreign log rotation would otherwise let
    /// all events go into a file without a name.
    fn look(&mut self) -> Result<(), JournalError> {
        let error = |dir: &Path, source| JournalError::Append { dir: dir.to_owned(), source };
        let Some(active) = &mut self.active else {
            make_dir(&self.options.dir, 0o750)?;
            let active =
                Active::open(&self.options.dir).map_err(|source| error(&self.options.dir, source))?;
            self.active = Some(active);
            return Ok(());
        };
        let look = active.look().map_err(|source| error(&self.options.dir, source))?;
        let why = match look {
            Look::Same => return Ok(()),
            Look::Grown => "something else wrote into the journal's file",
            Look::Shrunk => "something else cut the journal's file",
            Look::Replaced => {
                self.active = None;
                make_dir(&self.options.dir, 0o750)?;
                let mut new =
                    Active::open(&self.options.dir).map_err(|source| error(&self.options.dir, source))?;
                new.heal().map_err(|source| error(&self.options.dir, source))?;
                self.active = Some(new);
                "something else removed or renamed the journal's file"
            }
        };
        let mut gap = Gap { why: Some(why.into()), ..Gap::of(GapKind::JournalDamaged) };
        if look != Look::Grown
            && let Some(first) = self.first_here.take()
        {
            gap.first_seq = Some(first);
            gap.last_seq = Some(self.seq);
        }
        self.write(&Draft::now(Body::AgentGap(gap))).map(drop)
    }

    fn write(&mut self, draft: &Draft) -> Result<Event, JournalError> {
        let (mut event, mut line, mut hash) = self.numbered(draft)?;
        let full = self.active.as_ref().is_some_and(|active| {
            active.bytes() > 0 && active.bytes() + line.len() as u64 > self.options.max_segment
        });
        if full {
            let before = self.seq;
            // A file that is too long is better than an event that is lost. It is tried again with the next one.
            if let Err(error) = self.rotate() {
                tracing::warn!(%error, "the journal's file stays longer than it should");
            }
            if self.seq != before {
                (event, line, hash) = self.numbered(draft)?;
            }
        }
        self.put(event.seq, &line, hash)?;
        Ok(event)
    }

    /// Writes one line that carries the next number.
    fn put(&mut self, seq: u64, line: &[u8], hash: Digest) -> Result<(), JournalError> {
        if seq > self.stream.reserved {
            let mut stream = self.stream.clone();
            stream.reserved = seq - 1 + BLOCK;
            stream.store(&self.options.state_dir)?;
            self.stream = stream;
        }
        let active = self.active.as_mut().ok_or_else(|| JournalError::Append {
            dir: self.options.dir.clone(),
            source: io::ErrorKind::NotFound.into(),
        })?;
        let appended = active.append(line);
        appended.map_err(|source| self.append_error(source))?;
        self.seq = seq;
        self.prev = Some(hash);
        self.first_here.get_or_insert(seq);
        if let Fsync::Always = self.options.fsync
            && let Err(error) = self.sync()
        {
            // The record is in the file and has its number: written again, it would break the chain.
            tracing::error!(%error, "the journal is not on the disk");
        }
        Ok(())
    }

    /// Makes the record: the event, its line, its hash.
    fn numbered(&self, draft: &Draft) -> Result<(Event, Vec<u8>, Digest), JournalError> {
        let Draft { severity, incident, time, body } = draft;
        let kind = body.kind();
        let event = Event {
            schema: Schema::V1,
            id: Uuid::now_v7(),
            seq: self.seq + 1,
            prev: self.prev,
            stream: self.stream.stream,
            time: Time(*time),
            uptime_ns: Clock::now().uptime_at(*time).0,
            node: self.options.node.clone(),
            host: self.options.host.clone(),
            severity: severity.unwrap_or_else(|| body.severity()),
            incident: *incident,
            message: body.message(),
            cut: Vec::new(),
            body: body.clone(),
        };
        let form = |source| JournalError::Form { kind, source };
        let fitted = fit::fit(serde_json::to_value(&event).map_err(form)?);
        let event = Event::deserialize(&fitted).map_err(form)?;
        let hash = serde_json::to_value(&event).and_then(|written| chain::hash(&written)).map_err(form)?;
        let mut line = serde_json::to_vec(&event).map_err(form)?;
        line.push(b'\n');
        Ok((event, line, hash))
    }

    /// Begins a new file; before that, removes the oldest ones for which there is no room, and says so.
    fn rotate(&mut self) -> Result<(), JournalError> {
        let error = |dir: &Path, source| JournalError::Rotate { dir: dir.to_owned(), source };
        let Some(active) = self.active.take() else { return Ok(()) };
        match active.rotate(&self.options.dir) {
            Ok(new) => self.active = Some(new),
            Err((old, source)) => {
                self.active = Some(old);
                return Err(error(&self.options.dir, source));
            }
        }
        self.first_here = None;
        let segments = segment::list(&self.options.dir).map_err(|source| error(&self.options.dir, source))?;
        let complete: Vec<_> = segments.into_iter().filter(|segment| segment.number.is_some()).collect();
        let mut total: u64 = complete.iter().map(|segment| segment.bytes).sum();
        let room = self.options.max_size.saturating_sub(self.options.max_segment);
        let mut gone = Vec::new();
        for segment in complete.iter().take(complete.len().saturating_sub(1)) {
            if total <= room {
                break;
            }
            total -= segment.bytes;
            gone.push(segment);
        }
        let (Some(first), Some(last)) = (gone.first(), gone.last()) else { return Ok(()) };
        // Said first: a crash in between leaves records that were declared gone, not the other way round.
        let ends = |path| Tail::ends(path).map_err(|source| error(&self.options.dir, source));
        let first = ends(&first.path)?.0.map(|record| record.head);
        let last = ends(&last.path)?.1.map(|record| record.head);
        let gap = Gap {
            count: first.zip(last).map(|(first, last)| last.seq.saturating_sub(first.seq) + 1),
            from: first.map(|head| head.time),
            to: last.map(|head| head.time),
            first_seq: first.map(|head| head.seq),
            last_seq: last.map(|head| head.seq),
            why: Some(format!("the journal has its full size, {} bytes", self.options.max_size)),
            ..Gap::of(GapKind::JournalRemoved)
        };
        let draft = Draft { severity: Some(Severity::Info), ..Draft::now(Body::AgentGap(gap)) };
        let (event, line, hash) = self.numbered(&draft)?;
        self.put(event.seq, &line, hash)?;
        for segment in gone {
            fs::remove_file(&segment.path).map_err(|source| error(&self.options.dir, source))?;
        }
        Ok(())
    }

    fn append_error(&self, source: io::Error) -> JournalError {
        JournalError::Append { dir: self.options.dir.clone(), source }
    }
}

impl Gap {
    /// A gap of which nothing but the kind is known.
    pub const fn of(what: GapKind) -> Self {
        Self { what, count: None, from: None, to: None, first_seq: None, last_seq: None, why: None }
    }
}

/// The last record of the journal.
struct Found {
    position: chain::Position,
    hash: Digest,
    /// The first number in the active file, if it has records.
    first_here: Option<u64>,
}

/// The last number that counts as used, and what that leaves out.
fn continued(stream: &Stream, found: Option<&Found>, boot: &str) -> (u64, Option<Gap>) {
    let of_stream = found.filter(|found| found.position.stream == stream.stream);
    let found = of_stream.map_or(0, |found| found.position.seq);
    let (what, why) = match stream.last {
        // Numbers beyond the state's: an older state directory was put back, and the records are right.
        Some(last) if found >= last => return (found, None),
        Some(_) => (GapKind::JournalDamaged, "records of the last run are gone"),
        None if stream.boot != boot && stream.reserved > found => {
            (GapKind::JournalUnsynced, "the last records before the machine stopped may be lost")
        }
        // One block is reserved at most beyond the last number.
        None if stream.reserved > found + BLOCK || (found == 0 && stream.reserved > 0) => {
            (GapKind::JournalDamaged, "records of the last run are gone")
        }
        None => return (found, None),
    };
    let last = stream.reserved;
    let gap =
        Gap { first_seq: Some(found + 1), last_seq: Some(last), why: Some(why.into()), ..Gap::of(what) };
    (last, Some(gap))
}

/// Looks for the last record, in the active file and then in the complete ones.
fn last_record(dir: &Path) -> io::Result<Option<Found>> {
    for segment in segment::list(dir)?.iter().rev() {
        let (Some(first), Some(last)) = Tail::ends(&segment.path)? else { continue };
        let Head { seq, stream, time, .. } = last.head;
        let Ok(hash) = chain::hash(&last.value) else { continue };
        let first_here = segment.number.is_none().then_some(first.head.seq);
        return Ok(Some(Found { position: chain::Position { stream, seq, time }, hash, first_here }));
    }
    Ok(None)
}

fn make_dir(path: &Path, mode: u32) -> Result<(), JournalError> {
    let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
    made.map_err(|source| JournalError::Dir { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests;
