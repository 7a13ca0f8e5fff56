//! Who counts: the identity of a journal's numbers, kept in the state directory.
//!
//! (`stream`, `seq`) must be unique for ever, also when a power cut takes records that a shipper has read already. So
//! numbers are reserved in blocks before they are used, and after an end that may have taken records counting goes on
//! above the reserved ones.

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// How many numbers are reserved at once.
pub(super) const BLOCK: u64 = 1000;
/// The file is one short line.
const LIMIT: usize = 4096;

/// What `<state_dir>/stream` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stream {
    pub(super) stream: Uuid,
    /// The machine that it counts on: a cloned disk is another stream.
    pub(super) machine: String,
    /// The boot in which it was written last.
    pub(super) boot: String,
    /// No number above it was ever used.
    pub(super) reserved: u64,
    /// The last number, when the agent ended in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) last: Option<u64>,
}

/// Why the file can't be kept.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("{path}: {source}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

impl Stream {
    /// A new stream, nothing used.
    pub(super) fn new(machine: &str, boot: &str) -> Self {
        Self { stream: Uuid::now_v7(), machine: machine.into(), boot: boot.into(), reserved: 0, last: None }
    }

    /// What the state directory holds. None when there is nothing, or nothing that can be read as a stream.
    pub(super) fn load(state_dir: &Path) -> Result<Option<Self>, StreamError> {
        let path = state_dir.join("stream");
        match fs::read(&path) {
            Ok(bytes) if bytes.len() <= LIMIT => Ok(serde_json::from_slice(&bytes).ok()),
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(StreamError::Read { path, source }),
        }
    }

    /// Written whole or not at all, and on the disk when this returns.
    pub(super) fn store(&self, state_dir: &Path) -> Result<(), StreamError> {
        let path = state_dir.join("stream");
        let new = state_dir.join("stream.new");
        let write = || {
            let mut file = fs::File::create(&new)?;
            file.write_all(&serde_json::to_vec(self)?)?;
            file.sync_all()?;
            fs::rename(&new, &path)?;
            fs::File::open(state_dir)?.sync_all()
        };
        write().map_err(|source| StreamError::Write { path: path.clone(), source })
    }
}
