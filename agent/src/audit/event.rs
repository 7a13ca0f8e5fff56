//! One record of the journal: the head that all events share, and a [`Body`].

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Body, clock::Time};
use crate::digest::Digest;

/// The version of the record's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Schema {
    #[default]
    #[serde(rename = "imgwarden/v1")]
    V1,
}

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Event {
    /// The version of the record's form.
    pub schema: Schema,
    /// A UUID v7 of this event; the same in every sink and at every retry.
    pub id: Uuid,
    /// One more than the record before. (`stream`, `seq`) is unique for ever.
    pub seq: u64,
    /// SHA-256 of the record before in RFC 8785 form. Absent in the first record of a journal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prev: Option<Digest>,
    /// New when the machine or the state directory is.
    pub stream: Uuid,
    /// When it happened: UTC, with nanoseconds.
    pub time: Time,
    /// When it happened, in nanoseconds since boot, suspend included.
    pub uptime_ns: u64,
    /// The node's name.
    pub node: String,
    /// The machine and its boot.
    pub host: Host,
    /// How bad it is.
    pub severity: Severity,
    /// Shared by all events of one incident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub incident: Option<Uuid>,
    /// The event as one sentence for a person.
    pub message: String,
    /// What was cut so that the line stays within its limit: paths of fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cut: Vec<String>,
    /// `type`, and what this type carries.
    #[serde(flatten)]
    pub body: Body,
}

/// The machine and its boot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Host {
    /// /etc/machine-id.
    pub id: String,
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
}

/// How bad an event is. (An image has a priority.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Info,
    Warn,
    Error,
}

/// An event before the journal has numbered it.
#[derive(Debug, Clone, PartialEq)]
pub struct Draft {
    /// The body's own ([`Body::severity`]) when absent.
    pub severity: Option<Severity>,
    /// Shared by all events of one incident.
    pub incident: Option<Uuid>,
    /// When it happened.
    pub time: Timestamp,
    pub body: Body,
}

impl Draft {
    /// A draft of `body`, which happens now and belongs to no incident.
    pub fn now(body: impl Into<Body>) -> Self {
        Self { severity: None, incident: None, time: Timestamp::now(), body: body.into() }
    }

    /// A draft of `body`, part of `incident`, which happened at `time`.
    pub fn of(incident: Uuid, time: Timestamp, body: impl Into<Body>) -> Self {
        Self { severity: None, incident: Some(incident), time, body: body.into() }
    }
}
