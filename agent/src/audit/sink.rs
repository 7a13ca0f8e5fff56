//! The stdout sink: the journal's lines, as they are, on a file descriptor. It reads the journal's files with a cursor
//! of its own, which moves after a line is written whole: a slow reader delays nobody, and a restart repeats rather
//! than loses. A repeated line has the same `id`.

use std::{
    fs, io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{chain::Position, reader::Tail};

/// How often the journal is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// A pipe that polls writable takes this much without blocking (PIPE_BUF).
const PIECE: usize = 4096;
/// How long after an error it is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long after the stop a slow reader is waited for.
const PATIENCE: u32 = 20;

/// The last record that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Cursor {
    stream: Uuid,
    seq: u64,
}

/// Writes the journal in `dir` to `out` on a thread of its own, until `stop` is cancelled and what was written to the
/// journal by then is out, or its reader doesn't read.
///
/// The cursor is `<state_dir>/cursor.stdout`. Without one it begins after `last`, the last record at the open.
pub fn stdout<W: io::Write + AsFd + Send + 'static>(
    dir: &Path,
    state_dir: &Path,
    last: Option<Position>,
    out: W,
    stop: CancellationToken,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let cursor = state_dir.join("cursor.stdout");
    let dir = dir.to_owned();
    thread::Builder::new().name("stdout".into()).spawn(move || until_the_end(&dir, &cursor, last, out, &stop))
}

/// Goes on after every error but a reader that has gone: what could not be read or noted now can be in a moment.
fn until_the_end<W: io::Write + AsFd>(
    dir: &Path,
    cursor: &PathBuf,
    last: Option<Position>,
    mut out: W,
    stop: &CancellationToken,
) -> io::Result<()> {
    let mut told = false;
    loop {
        match pump(dir, cursor, last, &mut out, stop) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                tracing::warn!("nobody reads stdout any more: the journal has the events");
                return Err(error);
            }
            Err(error) if !stop.is_cancelled() => {
                if !told {
                    tracing::warn!(%error, "the stdout sink is held up; it is tried again");
                    told = true;
                }
                thread::sleep(AGAIN);
            }
            ended => return ended,
        }
    }
}

fn pump<W: io::Write + AsFd>(
    dir: &Path,
    cursor: &PathBuf,
    last: Option<Position>,
    out: &mut W,
    stop: &CancellationToken,
) -> io::Result<()> {
    let known: Option<Cursor> = fs::read(cursor).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let from = known.or(last.map(|Position { stream, seq, .. }| Cursor { stream, seq }));
    let mut tail = match from {
        Some(Cursor { stream, seq }) => Tail::after(dir, stream, seq)?,
        None => Tail::oldest(dir)?,
    };
    loop {
        // Read before the journal is: what is there by then is still written.
        let last_round = stop.is_cancelled();
        let mut done = None;
        while let Some(line) = tail.next_line()? {
            let Ok(record) = line.record else { continue };
            let mut text = record.text.into_bytes();
            text.push(b'\n');
            if !write(out, &text, stop)? {
                return Ok(());
            }
            done = Some(Cursor { stream: record.head.stream, seq: record.head.seq });
        }
        if let Some(done) = done {
            let new = cursor.with_extension("new");
            fs::write(&new, serde_json::to_vec(&done)?)?;
            fs::rename(&new, cursor)?;
        }
        if last_round {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

/// Writes all of it; false when the agent ends and the reader doesn't read.
fn write<W: io::Write + AsFd>(out: &mut W, text: &[u8], stop: &CancellationToken) -> io::Result<bool> {
    let mut patience = PATIENCE;
    for piece in text.chunks(PIECE) {
        loop {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
            let ready = poll(&mut [PollFd::new(out, PollFlags::OUT)], Some(&timeout))?;
            if ready > 0 {
                break;
            }
            if stop.is_cancelled() {
                patience -= 1;
                if patience == 0 {
                    return Ok(false);
                }
            }
        }
        out.write_all(piece)?;
    }
    out.flush()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        io::{BufRead, BufReader},
    };

    use super::*;
    use crate::audit::{
        Body, Draft, Journal,
        agent::Stopped,
        journal::{Opened, Options},
    };

    fn told(journal: &mut Journal, why: &str) {
        journal.append(Draft::now(Body::AgentStopped(Stopped { why: why.into() }))).unwrap();
    }

    fn seq(line: &str) -> Option<u64> {
        serde_json::from_str::<serde_json::Value>(line).ok()?["seq"].as_u64()
    }

    #[test]
    fn lines_come_out_as_they_are_and_a_slow_reader_gets_the_rest_after_the_restart() {
        let root = tempfile::tempdir().unwrap();
        let options = Options::new(root.path().join("log"), root.path().join("state"), "edge-7");
        let (mut journal, Opened { last, .. }) = Journal::open(&options).unwrap();
        let stop = CancellationToken::new();
        let (reader, writer) = io::pipe().unwrap();
        let sink = stdout(&options.dir, &options.state_dir, last, writer, stop.clone()).unwrap();
        told(&mut journal, "one");
        let mut line = String::new();
        let mut reader = BufReader::new(reader);
        reader.read_line(&mut line).unwrap();
        assert_eq!(line, fs::read_to_string(options.dir.join("events.jsonl")).unwrap());
        // More than a pipe holds, and nobody reads.
        for _ in 0..300 {
            told(&mut journal, &"x".repeat(1000));
        }
        thread::sleep(Duration::from_millis(300));
        stop.cancel();
        sink.join().unwrap().unwrap();
        // What the pipe had room for; its last line may be cut.
        let mut seen: BTreeSet<u64> =
            reader.lines().map(Result::unwrap).filter_map(|line| seq(&line)).collect();

        let stop = CancellationToken::new();
        let (reader, writer) = io::pipe().unwrap();
        let sink = stdout(&options.dir, &options.state_dir, last, writer, stop.clone()).unwrap();
        let rest =
            thread::spawn(move || BufReader::new(reader).lines().map(Result::unwrap).collect::<Vec<_>>());
        stop.cancel();
        sink.join().unwrap().unwrap();
        seen.extend(rest.join().unwrap().iter().map(|line| seq(line).unwrap()));
        assert_eq!(seen, (2..=301).collect());
    }
}
