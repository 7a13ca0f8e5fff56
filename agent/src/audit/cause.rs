//! Why an image went: a judgement, with its evidence.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Why it happened, how sure that is, and what it rests on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Cause {
    pub kind: Kind,
    /// With `cli`, `distro` and `client`: the program, or the distribution's routine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    pub confidence: Confidence,
    /// One sentence an entry; at most 20.
    #[serde(default)]
    pub evidence: Vec<String>,
}

/// The causes: a closed list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Kind {
    /// The kubelet's image GC, because the image filesystem is above its threshold.
    #[serde(rename = "kubelet.gc.space")]
    KubeletGcSpace,
    /// The kubelet's image GC, because the image was unused for too long.
    #[serde(rename = "kubelet.gc.age")]
    KubeletGcAge,
    /// The kubelet's eviction under disk pressure.
    #[serde(rename = "kubelet.eviction")]
    KubeletEviction,
    /// The kubelet; which of its reasons isn't known.
    #[serde(rename = "kubelet")]
    Kubelet,
    /// A command-line tool (`tool`).
    #[serde(rename = "cli")]
    Cli,
    /// A routine of the Kubernetes distribution (`tool`): k3s' retag, k0s' unpin and the like.
    #[serde(rename = "distro")]
    Distro,
    /// Another gRPC client of containerd.
    #[serde(rename = "client")]
    Client,
    /// containerd's garbage collector.
    #[serde(rename = "containerd.gc")]
    ContainerdGc,
    /// An image or a lease whose `containerd.io/gc.expire` passed.
    #[serde(rename = "containerd.expired")]
    ContainerdExpired,
    /// Files were removed below containerd's root without containerd.
    #[serde(rename = "filesystem")]
    Filesystem,
    /// imgwarden itself.
    #[serde(rename = "imgwarden")]
    Imgwarden,
    #[serde(rename = "unknown")]
    Unknown,
}

/// How an actor or a cause is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confidence {
    /// Not known.
    None,
    /// Joined by shape and time.
    Inferred,
    /// The request or the unlink was observed, and joined by digest or name.
    Seen,
}

impl Kind {
    /// As it is written in an event.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::KubeletGcSpace => "kubelet.gc.space",
            Self::KubeletGcAge => "kubelet.gc.age",
            Self::KubeletEviction => "kubelet.eviction",
            Self::Kubelet => "kubelet",
            Self::Cli => "cli",
            Self::Distro => "distro",
            Self::Client => "client",
            Self::ContainerdGc => "containerd.gc",
            Self::ContainerdExpired => "containerd.expired",
            Self::Filesystem => "filesystem",
            Self::Imgwarden => "imgwarden",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
