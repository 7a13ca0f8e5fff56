//! The five holds, and sets of them as a rule names them.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A reason why a protected image survives, weakest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Hold {
    /// CRI's label: the kubelet does not ask.
    Pin,
    /// A lease of our own: containerd's GC does not collect.
    Lease,
    /// A record in our own namespace: containerd does not unlink.
    Shadow,
    /// A hard link of each blob: nobody's unlink takes the bytes.
    Link,
    /// A local tarball.
    Archive,
}

impl Hold {
    pub const ALL: [Self; 5] = [Self::Pin, Self::Lease, Self::Shadow, Self::Link, Self::Archive];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Lease => "lease",
            Self::Shadow => "shadow",
            Self::Link => "link",
            Self::Archive => "archive",
        }
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Some of the five holds. Written as a list; all of them by default.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldSet(u8);

impl HoldSet {
    pub const ALL: Self = Self(0b1_1111);
    pub const NONE: Self = Self(0);

    pub const fn contains(self, hold: Hold) -> bool {
        self.0 & (1 << hold as u8) != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Hold> {
        Hold::ALL.into_iter().filter(move |hold| self.contains(*hold))
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl Default for HoldSet {
    fn default() -> Self {
        Self::ALL
    }
}

impl FromIterator<Hold> for HoldSet {
    fn from_iter<I: IntoIterator<Item = Hold>>(holds: I) -> Self {
        Self(holds.into_iter().fold(0, |bits, hold| bits | 1 << hold as u8))
    }
}

impl fmt::Debug for HoldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for HoldSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for HoldSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Hold>::deserialize(deserializer)?.into_iter().collect())
    }
}

impl JsonSchema for HoldSet {
    fn schema_name() -> Cow<'static, str> {
        "HoldSet".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Vec::<Hold>::json_schema(generator)
    }
}
