//! The chain of records: what ties one to the one before, and the check of every link.
//!
//! A record's `prev` is the SHA-256 of the record before in RFC 8785 form, so a shipper may write a record anew (other
//! spacing, other order of keys) without breaking it. The chain shows what was changed, removed or put in *before* the
//! last record that left the node; it can't show what a root user of this node did after.

use std::{collections::BTreeSet, fmt, io, path::Path};

use serde_json::Value;
use uuid::Uuid;

use super::{
    Body,
    agent::{Gap, GapKind},
    clock::Time,
    reader::{Line, Record, Tail},
};
use crate::digest::Digest;

/// Problems beyond this many are counted, not kept.
const PROBLEMS: usize = 100;

/// The hash that the next record's `prev` carries. Numbers count as IEEE doubles, as RFC 8785 has it.
pub fn hash(record: &Value) -> Result<Digest, serde_json::Error> {
    serde_json_canonicalizer::to_vec(record).map(|canonical| Digest::of(&canonical))
}

/// What `verify` found.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Report {
    /// How many files were read.
    pub segments: u64,
    /// How many records were read.
    pub records: u64,
    /// The first record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Position>,
    /// The last record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Position>,
    /// The last record's hash: equal to what was shipped off the node, or the end was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Digest>,
    /// Gaps that the journal itself declares: the oldest records removed at full size, numbers lost with a power cut.
    pub declared: Vec<Missing>,
    /// What is wrong; the first 100.
    pub problems: Vec<Problem>,
    /// How many things are wrong.
    pub problems_count: u64,
    /// Whether the last line is not complete: a record is being written, or was being written at a crash. The agent
    /// puts it in order at its next start.
    pub torn: bool,
}

/// A record's place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Position {
    pub stream: Uuid,
    pub seq: u64,
    pub time: Time,
}

/// Numbers that are not in the journal.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Missing {
    pub what: GapKind,
    pub first_seq: u64,
    pub last_seq: u64,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Problem {
    /// The file's name.
    pub file: String,
    /// The line in it, from 1.
    pub line: u64,
    pub what: Wrong,
}

#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrong {
    /// The line is no record of imgwarden's.
    Foreign(String),
    /// The record before is not the one that this one was written after: one of them was changed, removed or put in.
    Link { seq: u64, prev: Option<Digest>, expected: Digest },
    /// Numbers are missing, and no gap record says why.
    Undeclared { first_seq: u64, last_seq: u64 },
    /// The number was used before.
    Repeated { seq: u64 },
    /// The agent found that records had been taken from it or changed.
    Damaged { first_seq: u64, last_seq: u64 },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, what } = self;
        write!(f, "{file}:{line}: ")?;
        match what {
            Wrong::Foreign(why) => write!(f, "no record of imgwarden's: {why}"),
            Wrong::Link { seq, .. } => write!(
                f,
                "record {seq} was not written after the record before it: one was changed, removed or put in"
            ),
            Wrong::Undeclared { first_seq, last_seq } => {
                write!(f, "records {first_seq} to {last_seq} are missing, and no gap record says why")
            }
            Wrong::Repeated { seq } => write!(f, "number {seq} was used before"),
            Wrong::Damaged { first_seq, last_seq } => {
                write!(f, "records {first_seq} to {last_seq} were removed or changed while the agent ran")
            }
        }
    }
}

impl Report {
    /// Whether every link holds and all that is missing is declared.
    pub fn intact(&self) -> bool {
        self.problems_count == 0
    }

    fn wrong(&mut self, line: &Line, what: Wrong) {
        self.problems_count += 1;
        if self.problems.len() < PROBLEMS {
            self.problems.push(Problem { file: line.file.clone(), line: line.number, what });
        }
    }
}

/// Reads the journal in `dir` from its oldest record and checks every link.
///
/// A changed record is found by the one after it; whether the last record is the last that was ever written can only
/// be told by one that was shipped.
pub fn verify(dir: &Path) -> io::Result<Report> {
    let mut report = Report::default();
    let mut tail = Tail::oldest(dir)?;
    let mut before: Option<(Position, Digest)> = None;
    let mut head: Option<(Line, u64)> = None;
    let mut removed = BTreeSet::new();
    while let Some(line) = tail.next_line()? {
        let record = match &line.record {
            Ok(record) => record,
            Err(why) => {
                let why = why.to_string();
                report.wrong(&line, Wrong::Foreign(why));
                continue;
            }
        };
        report.records += 1;
        let here = Position { stream: record.head.stream, seq: record.head.seq, time: record.head.time };
        let gap = declared(record);
        if let Some(gap) = &gap {
            match gap.what {
                GapKind::JournalRemoved => drop(removed.insert(gap.last_seq)),
                GapKind::JournalDamaged => {
                    report.wrong(&line, Wrong::Damaged { first_seq: gap.first_seq, last_seq: gap.last_seq });
                }
                _ => {}
            }
            report.declared.push(gap.clone());
        }
        match &before {
            None => {
                report.first = Some(here);
                if gap.is_none_or(|gap| gap.first_seq > 1 || gap.last_seq + 1 < here.seq) {
                    head = Some((line.clone(), here.seq));
                }
            }
            Some((last, expected)) => {
                if record.head.prev != Some(*expected) {
                    let prev = record.head.prev;
                    report.wrong(&line, Wrong::Link { seq: here.seq, prev, expected: *expected });
                }
                // A new stream counts from 1 again.
                let next = if last.stream == here.stream { last.seq + 1 } else { 1 };
                if here.seq < next {
                    report.wrong(&line, Wrong::Repeated { seq: here.seq });
                } else if here.seq > next
                    && gap.is_none_or(|gap| gap.first_seq > next || gap.last_seq + 1 < here.seq)
                {
                    report.wrong(&line, Wrong::Undeclared { first_seq: next, last_seq: here.seq - 1 });
                }
            }
        }
        match hash(&record.value) {
            Ok(hash) => {
                report.hash = Some(hash);
                before = Some((here, hash));
            }
            Err(error) => report.wrong(&line, Wrong::Foreign(error.to_string())),
        }
        report.last = Some(here);
    }
    if let Some((line, seq)) = head
        && seq > 1
        && !removed.contains(&(seq - 1))
    {
        report.wrong(&line, Wrong::Undeclared { first_seq: 1, last_seq: seq - 1 });
    }
    report.segments = tail.segments();
    report.torn = tail.torn();
    Ok(report)
}

/// The numbers that a gap record declares missing from the journal.
fn declared(record: &Record) -> Option<Missing> {
    match record.event().ok()?.body {
        Body::AgentGap(Gap { what, first_seq: Some(first_seq), last_seq: Some(last_seq), .. }) => {
            Some(Missing { what, first_seq, last_seq })
        }
        _ => None,
    }
}
