//! What events say of images: which one, what a deletion orphaned and cost, and the bodies of `image.*` events that
//! aren't repairs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Actor, Cause, clock::Time, repair::Would};
use crate::digest::Digest;

/// The image that an event is about.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Image {
    /// The image ID: the config's digest. Absent when manifest or config can't be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Digest>,
    /// The names it has, or had before the event; at most 20.
    #[serde(default)]
    pub names: Vec<String>,
    /// How many names there are, when `names` was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_count: Option<u64>,
    /// Which rule protects it: `sandbox`, `self`, `archives`, or `protect[0]` for the first `[[protect]]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub priority: Option<Priority>,
    pub protected: bool,
}

/// How much an image matters. (An event has a severity.)
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    Normal,
    High,
    Critical,
}

/// The call that asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Request {
    /// `/package.Service/Method`. Absent when it could not be known from the side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What the caller named: an image's name or ID, a digest, a lease.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// containerd's namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// When its last byte was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Time>,
    /// How many such calls belong to the incident.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
}

/// A blob, and what it takes on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BlobSize {
    pub digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What the names that went referenced alone: containerd's next GC will take it, unless something holds it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Orphaned {
    /// Whether no name of the image is left.
    pub last_name: bool,
    /// The names that went; at most 20.
    #[serde(default)]
    pub names: Vec<String>,
    /// How many went, when `names` was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_count: Option<u64>,
    /// At most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<Vec<BlobSize>>,
    /// Of all blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs_count: Option<u64>,
    /// Of all blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs_bytes: Option<u64>,
    /// Chain IDs; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Vec<String>>,
    /// Of all snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_count: Option<u64>,
    /// Of everything, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// What really went: names by containerd's word, files as the kernel saw them go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Lost {
    /// At most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
    /// How many went, when `names` was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names_count: Option<u64>,
    /// At most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs: Option<Vec<BlobSize>>,
    /// Of all blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs_count: Option<u64>,
    /// Of all blobs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blobs_bytes: Option<u64>,
    /// Chain IDs, or the numbers of directories whose chain ID isn't known; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Vec<String>>,
    /// Of all snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshots_count: Option<u64>,
    /// Of everything, as far as it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// `image.deleted`: names of one image went. Sent within 100 ms of the last one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deleted {
    pub image: Image,
    /// Who asked. Absent when nobody is known to have, or several may have (`candidates`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Those who may have asked, when there are several; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Actor>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates_count: Option<u64>,
    pub cause: Cause,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub orphaned: Option<Orphaned>,
    /// Shared by the incidents of one actor that are at most 10 s apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Uuid>,
    /// With `mode = "observe"`: what would have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<Would>,
}

/// `image.damaged`: content or snapshots of a listed image went or rotted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Damaged {
    pub image: Image,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// Those who may have done it, when there are several; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Actor>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    pub lost: Lost,
    /// Shared by the incidents of one actor that are at most 10 s apart.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<Uuid>,
    /// With `mode = "observe"`: what would have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<Would>,
}

/// `image.retagged`: a name was deleted and created again, or moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Retagged {
    pub image: Image,
    /// The name that moved.
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// The target before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Digest>,
    /// The target now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Digest>,
}

/// `image.unpinned`, `image.repinned`, `image.pin_ineffective`: the label that keeps the kubelet from asking.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pin {
    pub image: Image,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// Everyone who could have done it, when it is not certain who did; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates: Option<Vec<Actor>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidates_count: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Request>,
    /// The label, as `key=value`.
    pub label: String,
    /// Why it does nothing, or why it was set again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// All images, when one actor did it to several at once; at most 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images: Option<Vec<Image>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_count: Option<u64>,
    /// With `mode = "observe"`: what would have been done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub would: Option<Would>,
}

/// `image.superseded`, `image.released`: protection ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Release {
    pub image: Image,
    pub why: ReleaseWhy,
    /// Who asked, when a person did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<Actor>,
    /// What the person gave as the reason, or what newer image supersedes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the release ends, or for a superseded image when it is let go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Why protection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ReleaseWhy {
    /// A newer archive of the same repository replaced it, and nothing uses it.
    Superseded,
    /// `imgwarden release`.
    Operator,
    /// The image filesystem fell below its floor.
    Disk,
    /// No rule selects it any more.
    Rule,
}

impl JsonSchema for Digest {
    fn schema_name() -> Cow<'static, str> {
        "Digest".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": "^sha256:[0-9a-f]{64}$" })
    }
}
