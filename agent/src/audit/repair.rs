//! What imgwarden did about an incident, and the bodies of the events that tell it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Actor, Cause,
    clock::Time,
    image::{Image, Lost},
};
use crate::digest::Digest;

/// A reason why a protected image survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    Pin,
    Lease,
    Shadow,
    Link,
    Archive,
}

/// How an image came back: the dearest step that was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// Records were created again; all content was still there.
    Records,
    /// The lease had kept the content.
    Lease,
    /// Blobs were adopted from the shadow namespace.
    Shadow,
    /// Blobs were linked back from the link directory.
    Link,
    /// Blobs were read from a tarball.
    Archive,
}

/// What was checked when a repair ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Verified {
    /// CRI's answer: whether ImageStatus gives the right image ID.
    pub image_status: bool,
    /// CRI's answer: whether the image is pinned. Absent when this containerd doesn't say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<bool>,
    /// How many blobs are there with the right size.
    pub blobs: u64,
    /// How many blobs there must be.
    pub blobs_expected: u64,
    /// How many snapshot directories are there. Absent when their numbers aren't known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<u64>,
    /// How many snapshot directories there must be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_expected: Option<u64>,
    /// What is wrong. Empty when nothing is.
    #[serde(default)]
    pub problems: Vec<String>,
}

/// With `mode = "observe"`: what would have been done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Would {
    /// How the image would have been repaired. Absent when nothing could have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    /// What would have been done, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How the repair of an incident ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The image is back.
    Restored,
    /// It was tried and failed.
    Failed,
    /// It waits.
    Deferred,
    /// The client created it again itself.
    Retagged,
    /// The image isn't protected.
    NotProtected,
    /// The deletion was deliberate.
    Released,
    /// `mode = "observe"`.
    Observed,
    /// Nothing of it was gone, or other names hold it.
    NotNeeded,
}

/// What was done about an incident.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Repair {
    pub outcome: Outcome,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_moved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_to_usable_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `image.restored`: a repair ended, and the image is whole.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Restored {
    pub image: Image,
    pub method: Method,
    /// Bytes read from a tarball; 0 for all other methods.
    pub bytes_moved: u64,
    /// How long the repair took.
    pub took_ms: f64,
    /// From the captured request (or the first removal) to `verified`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delete_to_usable_ms: Option<f64>,
    /// The tarball, or the directory, that the content came from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// Who asked, when a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Why it was repaired, when no incident says so: absent at the start, asked by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `image.restore_failed`, `image.restore_deferred`: a repair ended without the image, or waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotRestored {
    pub image: Image,
    /// The method that failed, or that waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<Method>,
    pub reason: String,
    /// When it is tried again at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// The tarball, or the directory, that was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_moved: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified: Option<Verified>,
    /// Who asked, when a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
}

/// `incident.closed`: nothing more is to come.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Closed {
    pub image: Image,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// What went.
    pub lost: Lost,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// The captured request, or the first removal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Time>,
    /// The last removal, or the end of the repair.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Uuid>,
}

/// `burst.closed`: many deletions by one actor, at most 10 s apart, in one record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BurstClosed {
    pub burst: Uuid,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// How many incidents.
    pub incidents_count: u64,
    /// How many images were restored.
    pub restored_count: u64,
    /// How many of the images are protected.
    pub protected_count: u64,
    /// The biggest images, biggest first; at most 20.
    pub images: Vec<ImageSize>,
    /// Of all images.
    pub images_count: u64,
    /// Of all images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_bytes: Option<u64>,
    pub from: Time,
    pub to: Time,
}

/// An image of a burst.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageSize {
    /// Its image ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Digest>,
    /// One of its names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// `hold.taken`, `hold.dropped`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HoldChanged {
    pub image: Image,
    pub hold: Hold,
    /// The rule that wants it, or why it is let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What it keeps from being freed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}
