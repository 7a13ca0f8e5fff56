//! Kernel records as the agent uses them: who did what, as the kernel knew it at that moment.

use std::{fmt, sync::Arc};

use crate::digest::Digest;

/// Nanoseconds since boot, suspend included (CLOCK_BOOTTIME).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Boottime(pub u64);

/// One process for ever: a pid alone is reused. `start` is in clock ticks since boot, field 22 of /proc/PID/stat.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessKey {
    pub pid: u32,
    pub start: u64,
}

/// The process that made a system call, as it was at that moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub key: ProcessKey,
    pub uid: u32,
    /// The audit login uid; absent when it was never set (4294967295).
    pub login_uid: Option<u32>,
    /// The audit session id; absent when unset.
    pub session_id: Option<u32>,
    /// The thread group leader's name, at most 15 bytes. Claimed by the process.
    pub comm: String,
    pub program: Program,
    /// The names of the last two cgroup directories, innermost last; empty for the root cgroup.
    pub cgroup: Vec<String>,
    /// Whether the process was in the initial mount namespace's root cgroup path outside any container;
    /// absent when it can't be told.
    pub host: Option<bool>,
    /// Parent, grandparent, …: at most four, nearest first; ends at pid 1.
    pub parents: Vec<Ancestor>,
}

/// What ran: recorded at exec, or read from /proc for processes older than the agent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// The executable file's absolute path. Absent when it was not seen in time; never guessed from argv.
    pub exe: Option<String>,
    /// The script that an interpreter was started for, as it was typed.
    pub script: Option<String>,
    /// Claimed by the process. Cut after 512 bytes.
    pub argv: Vec<String>,
    /// Whether argv was longer than what is kept.
    pub argv_cut: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestor {
    pub key: ProcessKey,
    pub comm: String,
    pub program: Program,
}

/// A client's end of a connection to the watched socket: its sockfs inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Connection(pub u64);

/// Part of one write to the watched socket. Parts of a write arrive in order; a part that the ring could not take is
/// missing, which the next part's `offset` (or the next write's) shows.
///
/// `bytes` may hold secrets: it is borrowed from the ring and must not be kept beyond what the method list allows.
#[derive(Clone)]
pub struct Send<'ring> {
    pub connection: Connection,
    /// The same for all parts of one write, different from other writes of the connection.
    pub write: u64,
    pub at: Boottime,
    /// How many bytes of the write the kernel accepted in all.
    pub accepted: u64,
    /// Where in the write `bytes` begins.
    pub offset: u64,
    pub bytes: &'ring [u8],
    pub process: Arc<Process>,
}

impl fmt::Debug for Send<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { connection, write, at, accepted, offset, bytes, process } = self;
        f.debug_struct("Send")
            .field("connection", connection)
            .field("write", write)
            .field("at", at)
            .field("accepted", accepted)
            .field("offset", offset)
            .field("bytes", &format_args!("{} not shown", bytes.len()))
            .field("process", &process.key)
            .finish()
    }
}

/// An entry of a watched directory that went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    pub at: Boottime,
    pub process: Arc<Process>,
    pub entry: Entry,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Entry {
    Blob(Digest),
    /// A snapshot's directory, by its number.
    Snapshot(u64),
    /// A watched directory itself, or one above it.
    Directory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    Unlinked,
    RenamedAway,
    /// Another file was renamed over it.
    Replaced,
}

/// What the kernel side tells, but for sends (which are borrowed from the ring and go to `wire` at once).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Removal(Removal),
    /// A process that had sent on the watched socket is gone.
    Exited {
        key: ProcessKey,
        at: Boottime,
    },
    /// Something could not be seen: records of this kind were lost.
    Gap {
        what: Gap,
        count: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Gap {
    /// Parts of sends that the request ring had no room for.
    Sends,
    /// Removals that the removal ring had no room for.
    Removals,
    /// Parts of sends whose bytes could not be read from the sender's memory.
    Unreadable,
    /// Programs that could not be noted when they were started.
    Execs,
}
