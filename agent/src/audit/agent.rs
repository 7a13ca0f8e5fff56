//! What the agent tells of itself and of its config, and the removals that belong to no incident.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Actor, Cause, clock::Time, repair::Hold};
use crate::digest::Digest;

/// `agent.started`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Started {
    /// imgwarden's version.
    pub version: String,
    /// `trampoline` or `tracepoint`. Absent when the kernel side is off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backend: Option<String>,
    /// What the kernel side hooks, and what it could not.
    #[serde(default)]
    pub hooks: Vec<Hook>,
    /// containerd's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub containerd: Option<String>,
    /// `protect` or `observe`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// The holds that work on this node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub holds: Option<Vec<Hold>>,
    /// The effective config's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<Digest>,
    /// Whether the last run ended in order. Absent at the first start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clean: Option<bool>,
    /// The last record before: what happened since was not seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_from: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_to: Option<Time>,
}

/// One hook of the kernel side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hook {
    pub name: String,
    pub attached: bool,
    /// Why it isn't attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// `agent.stopped`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Stopped {
    /// The signal, or the error that ended it.
    pub why: String,
}

/// `agent.recovered`: what an unclean end left behind was put in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Recovered {
    /// What was found and done, one sentence an entry.
    pub what: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_from: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub down_to: Option<Time>,
}

/// `agent.gap`: something could not be seen, or not be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Gap {
    pub what: GapKind,
    /// How many. Absent when that can't be known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    /// Of the journal: the first `seq` that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seq: Option<u64>,
    /// Of the journal: the last `seq` that is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// What it means, or what caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a gap is made of: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum GapKind {
    /// Parts of requests that the ring had no room for.
    #[serde(rename = "sends")]
    Sends,
    /// Parts of requests whose bytes could not be read from the sender's memory.
    #[serde(rename = "sends.unreadable")]
    SendsUnreadable,
    /// Removals that the ring had no room for.
    #[serde(rename = "removals")]
    Removals,
    /// Programs whose file and arguments could not be noted when they were started: they are missing in actors.
    #[serde(rename = "execs")]
    Execs,
    /// Connections or requests that could not be decoded, or for which there was no room.
    #[serde(rename = "requests")]
    Requests,
    /// Events of containerd's that could not be understood.
    #[serde(rename = "containerd.events")]
    ContainerdEvents,
    /// Image names beyond what is kept in mind: their deletion can't be explained.
    #[serde(rename = "images")]
    Images,
    /// Events that could not be written.
    #[serde(rename = "journal.failed")]
    JournalFailed,
    /// The oldest records, removed because the journal has its full size.
    #[serde(rename = "journal.removed")]
    JournalRemoved,
    /// A record that was cut off in the middle by a crash.
    #[serde(rename = "journal.torn")]
    JournalTorn,
    /// Numbers that a power cut may have taken: written, but not yet on the disk.
    #[serde(rename = "journal.unsynced")]
    JournalUnsynced,
    /// Records that something else put into the journal, took from it, or changed.
    #[serde(rename = "journal.damaged")]
    JournalDamaged,
}

/// `agent.checkpoint`: what was counted up to here. Hourly, and with the journal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Checkpoint {
    /// What was seen since the start, by kind.
    pub seen: BTreeMap<String, u64>,
    /// What was lost since the start, by kind.
    pub lost: BTreeMap<String, u64>,
    /// How many images are protected.
    pub protected: u64,
    /// The `seq` of the last record that the signature covers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// That record's hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hash: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
}

/// `config.applied`, `config.rejected`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Config {
    /// The hash of the config in force before. Absent at the start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The hash of the config in force now; of a rejected one, its own hash.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
    /// The keys that changed; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed_count: Option<u64>,
    /// Why it was rejected: file, line, and what was meant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// `blob.removed`: the kernel saw it go, and it belongs to no incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlobRemoved {
    /// Absent when many were folded into one record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// How many, when many were folded into one record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
}

/// `snapshot.removed`: the kernel saw it go, and it belongs to no incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SnapshotRemoved {
    /// Its chain ID, or its directory's number. Absent when many were folded into one record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// How many, when many were folded into one record.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
}
