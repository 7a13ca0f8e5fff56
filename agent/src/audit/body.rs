//! What each type of event carries beside the head.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Severity, agent, image, repair};

/// `type`, and what this type carries: a closed list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type")]
pub enum Body {
    #[serde(rename = "agent.started")]
    AgentStarted(agent::Started),
    #[serde(rename = "agent.stopped")]
    AgentStopped(agent::Stopped),
    #[serde(rename = "agent.recovered")]
    AgentRecovered(agent::Recovered),
    #[serde(rename = "agent.gap")]
    AgentGap(agent::Gap),
    #[serde(rename = "agent.checkpoint")]
    AgentCheckpoint(agent::Checkpoint),
    #[serde(rename = "config.applied")]
    ConfigApplied(agent::Config),
    #[serde(rename = "config.rejected")]
    ConfigRejected(agent::Config),
    #[serde(rename = "image.deleted")]
    ImageDeleted(Box<image::Deleted>),
    #[serde(rename = "incident.closed")]
    IncidentClosed(Box<repair::Closed>),
    #[serde(rename = "burst.closed")]
    BurstClosed(Box<repair::BurstClosed>),
    #[serde(rename = "image.damaged")]
    ImageDamaged(Box<image::Damaged>),
    #[serde(rename = "image.retagged")]
    ImageRetagged(Box<image::Retagged>),
    #[serde(rename = "image.restored")]
    ImageRestored(Box<repair::Restored>),
    #[serde(rename = "image.restore_failed")]
    ImageRestoreFailed(Box<repair::NotRestored>),
    #[serde(rename = "image.restore_deferred")]
    ImageRestoreDeferred(Box<repair::NotRestored>),
    #[serde(rename = "image.unpinned")]
    ImageUnpinned(Box<image::Pin>),
    #[serde(rename = "image.repinned")]
    ImageRepinned(Box<image::Pin>),
    #[serde(rename = "image.pin_ineffective")]
    ImagePinIneffective(Box<image::Pin>),
    #[serde(rename = "image.superseded")]
    ImageSuperseded(Box<image::Release>),
    #[serde(rename = "image.released")]
    ImageReleased(Box<image::Release>),
    #[serde(rename = "hold.taken")]
    HoldTaken(Box<repair::HoldChanged>),
    #[serde(rename = "hold.dropped")]
    HoldDropped(Box<repair::HoldChanged>),
    #[serde(rename = "blob.removed")]
    BlobRemoved(Box<agent::BlobRemoved>),
    #[serde(rename = "snapshot.removed")]
    SnapshotRemoved(Box<agent::SnapshotRemoved>),
}

impl Body {
    /// `type`.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::AgentStarted(_) => "agent.started",
            Self::AgentStopped(_) => "agent.stopped",
            Self::AgentRecovered(_) => "agent.recovered",
            Self::AgentGap(_) => "agent.gap",
            Self::AgentCheckpoint(_) => "agent.checkpoint",
            Self::ConfigApplied(_) => "config.applied",
            Self::ConfigRejected(_) => "config.rejected",
            Self::ImageDeleted(_) => "image.deleted",
            Self::IncidentClosed(_) => "incident.closed",
            Self::BurstClosed(_) => "burst.closed",
            Self::ImageDamaged(_) => "image.damaged",
            Self::ImageRetagged(_) => "image.retagged",
            Self::ImageRestored(_) => "image.restored",
            Self::ImageRestoreFailed(_) => "image.restore_failed",
            Self::ImageRestoreDeferred(_) => "image.restore_deferred",
            Self::ImageUnpinned(_) => "image.unpinned",
            Self::ImageRepinned(_) => "image.repinned",
            Self::ImagePinIneffective(_) => "image.pin_ineffective",
            Self::ImageSuperseded(_) => "image.superseded",
            Self::ImageReleased(_) => "image.released",
            Self::HoldTaken(_) => "hold.taken",
            Self::HoldDropped(_) => "hold.dropped",
            Self::BlobRemoved(_) => "blob.removed",
            Self::SnapshotRemoved(_) => "snapshot.removed",
        }
    }

    /// How bad it is, unless who tells it knows better.
    pub fn severity(&self) -> Severity {
        match self {
            Self::ImageRestoreFailed(_) | Self::ConfigRejected(_) => Severity::Error,
            Self::ImageDamaged(damaged) if damaged.image.protected => Severity::Error,
            Self::AgentStarted(started) if started.hooks.iter().any(|hook| !hook.attached) => Severity::Warn,
            Self::ImageDeleted(deleted) if deleted.image.protected => Severity::Warn,
            Self::ImageUnpinned(pin) if pin.image.protected => Severity::Warn,
            Self::AgentGap(_)
            | Self::AgentRecovered(_)
            | Self::ImageDamaged(_)
            | Self::ImageRestoreDeferred(_)
            | Self::ImagePinIneffective(_) => Severity::Warn,
            Self::AgentStarted(_)
            | Self::AgentStopped(_)
            | Self::AgentCheckpoint(_)
            | Self::ConfigApplied(_)
            | Self::ImageDeleted(_)
            | Self::IncidentClosed(_)
            | Self::BurstClosed(_)
            | Self::ImageRetagged(_)
            | Self::ImageRestored(_)
            | Self::ImageUnpinned(_)
            | Self::ImageRepinned(_)
            | Self::ImageSuperseded(_)
            | Self::ImageReleased(_)
            | Self::HoldTaken(_)
            | Self::HoldDropped(_)
            | Self::BlobRemoved(_)
            | Self::SnapshotRemoved(_) => Severity::Info,
        }
    }

    /// The image that it is about.
    pub fn image(&self) -> Option<&image::Image> {
        match self {
            Self::ImageDeleted(body) => Some(&body.image),
            Self::IncidentClosed(body) => Some(&body.image),
            Self::ImageDamaged(body) => Some(&body.image),
            Self::ImageRetagged(body) => Some(&body.image),
            Self::ImageRestored(body) => Some(&body.image),
            Self::ImageRestoreFailed(body) | Self::ImageRestoreDeferred(body) => Some(&body.image),
            Self::ImageUnpinned(body) | Self::ImageRepinned(body) | Self::ImagePinIneffective(body) => {
                Some(&body.image)
            }
            Self::ImageSuperseded(body) | Self::ImageReleased(body) => Some(&body.image),
            Self::HoldTaken(body) | Self::HoldDropped(body) => Some(&body.image),
            Self::AgentStarted(_)
            | Self::AgentStopped(_)
            | Self::AgentRecovered(_)
            | Self::AgentGap(_)
            | Self::AgentCheckpoint(_)
            | Self::ConfigApplied(_)
            | Self::ConfigRejected(_)
            | Self::BurstClosed(_)
            | Self::BlobRemoved(_)
            | Self::SnapshotRemoved(_) => None,
        }
    }
}
