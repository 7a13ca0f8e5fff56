//! The journal's files: `events.jsonl` is written, `events.N.jsonl` are complete, and N grows. A shipper that follows
//! renames reads all of them; no file is ever truncated or written anew.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// The file that is written.
pub(super) const ACTIVE: &str = "events.jsonl";

/// A file of the journal, as the directory lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    /// None: the active one.
    pub(super) number: Option<u64>,
    pub(super) bytes: u64,
    pub(super) inode: u64,
}

/// The journal's files, oldest first. A directory that isn't there has none.
pub(super) fn list(dir: &Path) -> io::Result<Vec<Segment>> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut segments = Vec::new();
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let Some(number) = name.to_str().and_then(number) else { continue };
        match entry.metadata() {
            Ok(meta) if meta.is_file() => {
                segments.push(Segment { path: entry.path(), number, bytes: meta.len(), inode: meta.ino() })
            }
            Ok(_) => {}
            // Rotated away between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    segments.sort_by_key(|segment| segment.number.unwrap_or(u64::MAX));
    Ok(segments)
}

/// `events.jsonl` → `Some(None)`, `events.7.jsonl` → `Some(Some(7))`, others are not the journal's.
#[expect(clippy::option_option, reason = "whether it is the journal's, and then its number, if it has one")]
fn number(name: &str) -> Option<Option<u64>> {
    if name == ACTIVE {
        return Some(None);
    }
    let digits = name.strip_prefix("events.")?.strip_suffix(".jsonl")?;
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit()) && !digits.starts_with('0');
    digits.parse().ok().filter(|_| plain).map(Some)
}

/// The active segment, open for appending.
#[derive(Debug)]
pub(super) struct Active {
    file: File,
    path: PathBuf,
    bytes: u64,
    inode: u64,
}

impl Active {
    /// Opens `events.jsonl`, or makes it: 0640, for the shipper's group.
    pub(super) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(ACTIVE);
        let file = OpenOptions::new().read(true).append(true).create(true).mode(0o640).open(&path)?;
        let meta = file.metadata()?;
        File::open(dir)?.sync_all()?;
        Ok(Self { file, path, bytes: meta.len(), inode: meta.ino() })
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Cuts what stands after the last line's end: the part of a record that a crash left. Returns how many bytes.
    pub(super) fn heal(&mut self) -> io::Result<u64> {
        let mut end = self.bytes;
        let mut chunk = vec![0; 64 << 10];
        while end > 0 {
            let start = end.saturating_sub(chunk.len() as u64);
            let part = &mut chunk[..usize::try_from(end - start).unwrap_or(0)];
            self.file.read_exact_at(part, start)?;
            if let Some(at) = part.iter().rposition(|byte| *byte == b'\n') {
                end = start + at as u64 + 1;
                break;
            }
            end = start;
        }
        let cut = self.bytes - end;
        if cut > 0 {
            self.file.set_len(end)?;
            self.file.sync_all()?;
            self.bytes = end;
        }
        Ok(cut)
    }

    /// Appends one line, `\n` included, whole or not at all.
    pub(super) fn append(&mut self, line: &[u8]) -> io::Result<()> {
        match self.file.write_all(line) {
            Ok(()) => {
                self.bytes += line.len() as u64;
                Ok(())
            }
            Err(error) => {
                // A full disk may have taken part of it. If that can't be cut off either, the next one begins a line.
                self.file.set_len(self.bytes)?;
                Err(error)
            }
        }
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    /// What became of the file since the last append, other than by this agent.
    pub(super) fn look(&mut self) -> io::Result<Look> {
        match fs::metadata(&self.path) {
            Ok(meta) if meta.ino() != self.inode => return Ok(Look::Replaced),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Look::Replaced),
            Err(error) => return Err(error),
        }
        let now = self.file.metadata()?.len();
        if now == self.bytes {
            return Ok(Look::Same);
        }
        let shrunk = now < self.bytes;
        self.bytes = now;
        let mut last = [0];
        if now > 0 && self.file.read_at(&mut last, now - 1)? == 1 && last != *b"\n" {
            // Whatever was put there, a record begins its own line.
            self.append(b"\n")?;
        }
        Ok(if shrunk { Look::Shrunk } else { Look::Grown })
    }

    /// Renames the file to the next number, and begins a new one.
    pub(super) fn rotate(self, dir: &Path) -> Result<Self, (Self, io::Error)> {
        let rename = || {
            self.file.sync_all()?;
            let last = list(dir)?.iter().filter_map(|segment| segment.number).max().unwrap_or(0);
            let to = dir.join(format!("events.{}.jsonl", last + 1));
            fs::rename(&self.path, &to)?;
            // Without the new file there is nothing to append to: the old name comes back.
            Self::open(dir).inspect_err(|_| drop(fs::rename(&to, &self.path)))
        };
        rename().map_err(|error| (self, error))
    }
}

/// What became of the active file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Same,
    /// The name is gone, or stands for another file.
    Replaced,
    /// Something was cut off.
    Shrunk,
    /// Something was put in.
    Grown,
}
