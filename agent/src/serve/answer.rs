//! What can be asked of the running agent, and the answers, as JSON. A field that is absent is not known.

use std::{fmt, future::Future, path::PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::config::{Config, Hold, Mode, Priority};

/// The agent's side. Questions are answered from what is known at the moment; only `restore` acts.
pub trait Answers: Send + Sync + 'static {
    fn status(&self) -> impl Future<Output = Status> + Send;
    /// Every image of the watched namespace, and every protected one that is absent.
    fn images(&self) -> impl Future<Output = Vec<ImageStatus>> + Send;
    /// What `config`, or else the one in force, would hold and let go. Touches nothing.
    fn plan(&self, config: Option<Config>) -> impl Future<Output = Plan> + Send;
    /// Brings an image back now. Progress may be sent or not; a full or closed channel must not hinder the work. The
    /// future is dropped when the asker hangs up.
    fn restore(
        &self,
        restore: Restore,
        progress: mpsc::Sender<Progress>,
    ) -> impl Future<Output = Result<Restored, RestoreRefused>> + Send;
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// imgwarden's.
    pub version: String,
    /// When the agent was started.
    pub since: Timestamp,
    pub mode: Mode,
    pub node: String,
    pub containerd: ContainerdStatus,
    pub probe: ProbeStatus,
    pub counts: Counts,
    pub journal: JournalStatus,
    /// The agent's resident memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rss: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerdStatus {
    pub address: PathBuf,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub version: Option<String>,
    /// Whether it answered last time.
    pub connected: bool,
    pub namespace: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeStatus {
    /// `trampoline` or `tracepoint`. Absent when nothing attached.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub backend: Option<String>,
    pub hooks: Vec<HookStatus>,
    /// What this backend can't see on this kernel, one line each: `io_uring`.
    pub not_seen: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HookStatus {
    pub name: String,
    pub attached: bool,
    /// Why it isn't.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

/// Since the agent's start, except the first three, which are now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    pub images: u64,
    pub protected: u64,
    /// Protected images with every hold that their rule asks for and that works here.
    pub held: u64,
    pub incidents: u64,
    pub restored: u64,
    /// Times that something could not be seen or kept.
    pub gaps: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStatus {
    pub dir: PathBuf,
    /// Of the last event.
    pub seq: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageStatus {
    /// The image ID. Absent for an image that isn't here.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    pub names: Vec<String>,
    /// The rule that protects it. Absent for an unprotected image.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priority: Option<Priority>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub mode: Option<Mode>,
    pub present: bool,
    /// Of its blobs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    /// One of each hold, in their order; empty for an unprotected image.
    pub holds: Vec<HoldStatus>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub archive: Option<ArchiveStatus>,
}

/// Where an image lies in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveStatus {
    pub path: PathBuf,
    /// Whether its bytes were found right; absent if nobody looked yet.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub verified: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldStatus {
    pub hold: Hold,
    pub state: HoldState,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HoldState {
    /// Holds.
    Yes,
    /// Wanted and not (yet) taken.
    No,
    /// Taken, and does nothing here: a pin under a containerd that ignores it.
    Ineffective,
    /// Not wanted by the rule.
    Off,
    /// There is nothing to hold: the image isn't here, or no archive has it.
    Absent,
}

impl fmt::Display for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Yes => "yes",
            Self::No => "no",
            Self::Ineffective => "ineffective",
            Self::Off => "off",
            Self::Absent => "absent",
        })
    }
}

/// What a config would do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    pub images: Vec<PlannedImage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedImage {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    pub names: Vec<String>,
    pub action: PlanAction,
    /// The rule that would protect it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub priority: Option<Priority>,
    /// The holds that would be taken, or let go.
    pub holds: Vec<Hold>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub why: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanAction {
    /// It would be held, and isn't.
    Hold,
    /// It is held and stays so.
    Keep,
    /// It is held and would no longer be.
    LetGo,
    /// It would be held, and isn't here; an archive may have it.
    Absent,
    /// No rule means it.
    Leave,
}

impl fmt::Display for PlanAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hold => "hold",
            Self::Keep => "keep",
            Self::LetGo => "let go",
            Self::Absent => "absent",
            Self::Leave => "leave",
        })
    }
}

/// An image to bring back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// A name in any spelling, or an image ID.
    pub image: String,
    /// The archive to take it from. Absent: whatever still has it, the cheapest first.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<PathBuf>,
}

/// How far a restore is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// What is being done, in a few words.
    pub what: String,
    /// Bytes so far.
    pub done: u64,
    /// Bytes in all, where that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub total: Option<u64>,
}

/// An image that is back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Restored {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    pub names: Vec<String>,
    /// `records`, `lease`, `shadow`, `link` or `archive`; absent if nothing was missing.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub method: Option<String>,
    pub bytes_moved: u64,
    pub took_ms: f64,
    /// CRI gives the right answer and everything is there.
    pub verified: bool,
    /// The archive that was read.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub source: Option<PathBuf>,
}

/// Why an image is not brought back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct RestoreRefused {
    pub reason: Refusal,
    /// One line for a person.
    pub why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// The text is neither a name nor an image ID.
    NotAName,
    /// Nothing on this node has it.
    NotFound,
    /// The archive can't be read, or its bytes are wrong.
    Archive,
    /// `mode = "observe"`.
    Observing,
    /// containerd does not answer, or refused.
    Containerd,
    /// The agent is stopping.
    Stopping,
}

/// A line of the answer to a restore: any number of the first, then one of the others.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RestoreLine {
    Progress(Progress),
    Restored(Restored),
    Refused(RestoreRefused),
}
