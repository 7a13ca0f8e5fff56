//! Reads a journal: line by line, oldest first, across rotations, while the agent writes it or with no agent at all.
//!
//! A line is untrusted: anything may have been put into the files. Lines that are no records are handed on as such, and
//! never end the reading; a line longer than 64 KiB is passed over without being kept.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use uuid::Uuid;

use super::{Event, clock::Time, event::Schema, segment};
use crate::digest::Digest;

/// The longest line that is read. The agent writes at most 16 KiB.
pub const LINE_LIMIT: usize = 64 << 10;

/// One line of the journal.
#[derive(Debug, Clone)]
pub struct Line {
    /// The file's name; that of the moment when it was opened.
    pub file: String,
    /// From 1. Counted from where the reading began.
    pub number: u64,
    pub record: Result<Record, Foreign>,
}

/// A record, as far as every version of the form has it.
#[derive(Debug, Clone)]
pub struct Record {
    /// As it stands in the file, without the line's end.
    pub text: String,
    pub value: Value,
    pub head: Head,
}

/// What the chain needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct Head {
    #[serde(rename = "schema")]
    _schema: Schema,
    pub seq: u64,
    #[serde(default)]
    pub prev: Option<Digest>,
    pub stream: Uuid,
    pub time: Time,
}

/// Why a line is no record.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Foreign {
    #[error("longer than {LINE_LIMIT} bytes")]
    Long,
    #[error("not UTF-8")]
    Encoding,
    #[error("{0}")]
    Form(String),
}

impl Record {
    /// Reads a line, without its end.
    pub fn parse(line: &[u8]) -> Result<Self, Foreign> {
        let text = str::from_utf8(line).map_err(|_| Foreign::Encoding)?;
        let value: Value = serde_json::from_str(text).map_err(|error| Foreign::Form(error.to_string()))?;
        let head = Head::deserialize(&value).map_err(|error| Foreign::Form(error.to_string()))?;
        Ok(Self { text: text.to_owned(), value, head })
    }

    /// The whole event; an error for types of a newer version.
    pub fn event(&self) -> Result<Event, serde_json::Error> {
        Event::deserialize(&self.value)
    }

    /// `type`.
    pub fn kind(&self) -> &str {
        self.value.get("type").and_then(Value::as_str).unwrap_or("")
    }
}

/// A place in a journal. It survives rotation: the file is known by its inode, not by its name.
#[derive(Debug)]
pub struct Tail {
    dir: PathBuf,
    open: Option<Open>,
    segments: u64,
}

#[derive(Debug)]
struct Open {
    file: BufReader<File>,
    inode: u64,
    name: String,
    lines: u64,
    /// The beginning of a line whose end isn't written yet; emptied and `long` set when it grows too long.
    partial: Vec<u8>,
    long: bool,
}

impl Tail {
    /// Begins with the oldest record. A journal that isn't there yet reads as empty.
    pub fn oldest(dir: &Path) -> io::Result<Self> {
        let mut tail = Self { dir: dir.to_owned(), open: None, segments: 0 };
        if let Some(first) = segment::list(dir)?.first() {
            tail.enter(&first.path)?;
        }
        Ok(tail)
    }

    /// Begins after the record (`stream`, `seq`), or with the oldest when that record isn't there any more.
    pub fn after(dir: &Path, stream: Uuid, seq: u64) -> io::Result<Self> {
        for segment in segment::list(dir)?.iter().rev() {
            let mut tail = Self { dir: dir.to_owned(), open: None, segments: 0 };
            if !tail.enter(&segment.path)? {
                continue;
            }
            while let Some(line) = tail.next_here()? {
                if line.record.is_ok_and(|record| record.head.stream == stream && record.head.seq == seq) {
                    return Ok(tail);
                }
            }
        }
        Self::oldest(dir)
    }

    /// The next line; none when all that is written was read. Ask again later for what is written since.
    pub fn next_line(&mut self) -> io::Result<Option<Line>> {
        loop {
            if let Some(line) = self.next_here()? {
                return Ok(Some(line));
            }
            // Nothing more in this file for now. Only if it was rotated away is it complete.
            let Some(next) = self.following()? else { return Ok(None) };
            // What was written between the last reading and the rotation.
            if let Some(line) = self.next_here()? {
                return Ok(Some(line));
            }
            if let Some(line) = self.unfinished() {
                return Ok(Some(line));
            }
            if !self.enter(&next)? {
                return Ok(None);
            }
        }
    }

    /// The first and the last record of one file.
    pub(super) fn ends(path: &Path) -> io::Result<(Option<Record>, Option<Record>)> {
        let mut tail = Self { dir: PathBuf::new(), open: None, segments: 0 };
        let (mut first, mut last) = (None, None);
        if tail.enter(path)? {
            while let Some(line) = tail.next_here()? {
                let Ok(record) = line.record else { continue };
                first.get_or_insert_with(|| record.clone());
                last = Some(record);
            }
        }
        Ok((first, last))
    }

    /// How many files were read.
    pub fn segments(&self) -> u64 {
        self.segments
    }

    /// Whether the file ends in the middle of a line.
    pub fn torn(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.long || !open.partial.is_empty())
    }

    /// The segment after the one that is open, or the first when none is.
    fn following(&self) -> io::Result<Option<PathBuf>> {
        let segments = segment::list(&self.dir)?;
        let Some(open) = &self.open else {
            return Ok(segments.into_iter().next().map(|segment| segment.path));
        };
        match segments.iter().position(|segment| segment.inode == open.inode) {
            Some(at) => Ok(segments.into_iter().nth(at + 1).map(|segment| segment.path)),
            // Removed while it was read: the oldest that is left comes next.
            None => Ok(segments.into_iter().next().map(|segment| segment.path)),
        }
    }

    /// Opens a segment; false when it went in the meantime.
    fn enter(&mut self, path: &Path) -> io::Result<bool> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let inode = file.metadata()?.ino();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = BufReader::with_capacity(LINE_LIMIT, file);
        self.open = Some(Open { file, inode, name, lines: 0, partial: Vec::new(), long: false });
        self.segments += 1;
        Ok(true)
    }

    fn next_here(&mut self) -> io::Result<Option<Line>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        loop {
            let bytes = open.file.fill_buf()?;
            if bytes.is_empty() {
                return Ok(None);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if open.partial.len() + part.len() > LINE_LIMIT {
                open.long = true;
                open.partial.clear();
            } else if !open.long {
                open.partial.extend_from_slice(part);
            }
            let used = part.len() + usize::from(end.is_some());
            open.file.consume(used);
            if end.is_some() {
                return Ok(Some(open.line()));
            }
        }
    }

    /// The end of a rotated segment that has no line end: nothing will be added to it.
    fn unfinished(&mut self) -> Option<Line> {
        if self.torn() { self.open.as_mut().map(Open::line) } else { None }
    }
}

impl Open {
    fn line(&mut self) -> Line {
        self.lines += 1;
        let partial = std::mem::take(&mut self.partial);
        let record =
            if std::mem::take(&mut self.long) { Err(Foreign::Long) } else { Record::parse(&partial) };
        Line { file: self.name.clone(), number: self.lines, record }
    }
}
