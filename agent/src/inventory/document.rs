//! Manifests, indexes and configs, as far as the inventory needs them: what references what.
//!
//! Only the fields that containerd itself follows are read, and as leniently as it does: an image whose config has an odd
//! `created` runs, so it must be seen. Lists are bounded.

use serde::Deserialize;

use super::image::{Descriptor, Labels};
use crate::digest::Digest;

/// The most children of an index, and the most layers of a manifest. overlayfs can't mount more than 500 layers.
pub const CHILDREN: usize = 512;

/// Why a document is not understood.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("not the expected JSON")]
    Json(#[from] serde_json::Error),
    #[error("{what}: {count} entries are more than {CHILDREN}")]
    TooMany { what: &'static str, count: usize },
    #[error("neither a manifest nor an index")]
    Neither,
}

/// A manifest or an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    Index { manifests: Vec<Child> },
    Manifest { config: Descriptor, layers: Vec<Descriptor> },
}

/// A manifest that an index names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub descriptor: Descriptor,
    pub platform: Option<Platform>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Platform {
    #[serde(default)]
    pub os: String,
    #[serde(default)]
    pub architecture: String,
    #[serde(default)]
    pub variant: String,
}

/// What is needed of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    pub platform: Platform,
    /// Digests of the unpacked layers, bottom first.
    pub diff_ids: Vec<Digest>,
}

#[derive(Deserialize)]
struct WireDescriptor {
    #[serde(rename = "mediaType", default)]
    media_type: String,
    digest: Digest,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    platform: Option<Platform>,
}

impl From<WireDescriptor> for Descriptor {
    fn from(WireDescriptor { media_type, digest, size, platform: _ }: WireDescriptor) -> Self {
        Self { media_type, digest, size }
    }
}

impl Document {
    /// By content, not by media type: containerd tells them apart the same way when the type is missing.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Wire {
            manifests: Option<Vec<WireDescriptor>>,
            config: Option<WireDescriptor>,
            #[serde(default)]
            layers: Vec<WireDescriptor>,
        }
        let Wire { manifests, config, layers } = serde_json::from_slice(bytes)?;
        match (manifests, config) {
            (None, Some(config)) => {
                bounded("layers", layers.len())?;
                Ok(Self::Manifest {
                    config: config.into(),
                    layers: layers.into_iter().map(Descriptor::from).collect(),
                })
            }
            (Some(manifests), None) => {
                bounded("manifests", manifests.len())?;
                Ok(Self::Index {
                    manifests: manifests
                        .into_iter()
                        .map(|mut wire| Child { platform: wire.platform.take(), descriptor: wire.into() })
                        .collect(),
                })
            }
            // Both: a document that means different things to different readers.
            _ => Err(DocumentError::Neither),
        }
    }

    /// The labels by which containerd's GC finds this document's children (images/handlers.go, ChildGCLabels).
    pub fn gc_labels(&self) -> Labels {
        let numbered = |kind: &'static str, children: Vec<&Descriptor>| {
            children
                .into_iter()
                .enumerate()
                .map(move |(n, child)| (format!("{GC_CONTENT}.{kind}.{n}"), child.digest.to_string()))
                .collect::<Labels>()
        };
        match self {
            Self::Index { manifests } => numbered("m", manifests.iter().map(|m| &m.descriptor).collect()),
            Self::Manifest { config, layers } => {
                let mut labels = numbered("l", layers.iter().collect());
                labels.insert(format!("{GC_CONTENT}.config"), config.digest.to_string());
                labels
            }
        }
    }
}

/// The prefix of labels by which a blob keeps others.
pub const GC_CONTENT: &str = "containerd.io/gc.ref.content";
/// The prefix of labels by which a config keeps the unpacked layers.
pub const GC_SNAPSHOT: &str = "containerd.io/gc.ref.snapshot.";

impl Config {
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Wire {
            #[serde(flatten)]
            platform: Platform,
            #[serde(default)]
            rootfs: Option<RootFs>,
        }
        #[derive(Deserialize)]
        struct RootFs {
            #[serde(default)]
            diff_ids: Vec<Digest>,
        }
        let Wire { platform, rootfs } = serde_json::from_slice(bytes)?;
        let diff_ids = rootfs.map(|rootfs| rootfs.diff_ids).unwrap_or_default();
        bounded("rootfs.diff_ids", diff_ids.len())?;
        Ok(Self { platform, diff_ids })
    }

    /// Chain IDs of the layers, bottom first: chain(n) = sha256(chain(n-1) + " " + diffID(n)) (image-spec, config.md).
    pub fn chain(&self) -> Vec<Digest> {
        let mut chain: Vec<Digest> = Vec::with_capacity(self.diff_ids.len());
        for diff_id in &self.diff_ids {
            chain.push(match chain.last() {
                None => *diff_id,
                Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
            });
        }
        chain
    }
}

impl Platform {
    /// Whether an image for it runs on this machine. Variants are not looked at: an arm64 index has one.
    pub fn is_here(&self) -> bool {
        let here = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let architecture = match self.architecture.as_str() {
            "x86_64" | "x86-64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        self.os == "linux" && architecture == here
    }
}

fn bounded(what: &'static str, count: usize) -> Result<(), DocumentError> {
    if count > CHILDREN { Err(DocumentError::TooMany { what, count }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::from_bytes([n; 32])
    }

    #[test]
    fn a_manifest_keeps_its_config_and_layers() {
        let text = format!(
            r#"{{"schemaVersion":2,"config":{{"digest":"{}","size":3,"extra":[]}},"layers":[{{"mediaType":"t","digest":"{}","size":9}}]}}"#,
            digest(1),
            digest(2)
        );
        let document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(
            document,
            Document::Manifest {
                config: Descriptor { media_type: String::new(), digest: digest(1), size: 3 },
                layers: vec![Descriptor { media_type: "t".into(), digest: digest(2), size: 9 }],
            }
        );
        assert_eq!(
            document.gc_labels(),
            Labels::from([
                ("containerd.io/gc.ref.content.config".into(), digest(1).to_string()),
                ("containerd.io/gc.ref.content.l.0".into(), digest(2).to_string()),
            ])
        );
    }

    #[test]
    fn an_index_keeps_its_manifests() {
        let text = format!(
            r#"{{"manifests":[{{"digest":"{}","size":1,"platform":{{"os":"linux","architecture":"s390x"}}}},{{"digest":"{}"}}]}}"#,
            digest(1),
            digest(2)
        );
        let document = Document::parse(text.as_bytes()).unwrap();
        assert_eq!(
            document.gc_labels(),
            Labels::from([
                ("containerd.io/gc.ref.content.m.0".into(), digest(1).to_string()),
                ("containerd.io/gc.ref.content.m.1".into(), digest(2).to_string()),
            ])
        );
        let Document::Index { manifests } = document else { panic!("{document:?}") };
        assert!(!manifests[0].platform.as_ref().unwrap().is_here());
    }

    #[test]
    fn a_document_that_is_both_is_neither() {
        let text = format!(r#"{{"manifests":[],"config":{{"digest":"{}"}}}}"#, digest(1));
        assert!(matches!(Document::parse(text.as_bytes()), Err(DocumentError::Neither)));
        assert!(matches!(Document::parse(b"{}"), Err(DocumentError::Neither)));
    }

    #[test]
    fn too_many_layers_are_refused() {
        let layer = format!(r#"{{"digest":"{}"}}"#, digest(2));
        let layers = vec![layer; CHILDREN + 1].join(",");
        let text = format!(r#"{{"config":{{"digest":"{}"}},"layers":[{layers}]}}"#, digest(1));
        assert!(matches!(Document::parse(text.as_bytes()), Err(DocumentError::TooMany { .. })));
    }

    #[test]
    fn the_chain_is_the_image_specs() {
        let config = Config::parse(
            format!(
                r#"{{"os":"linux","architecture":"amd64","rootfs":{{"diff_ids":["{}","{}"]}}}}"#,
                digest(1),
                digest(2)
            )
            .as_bytes(),
        )
        .unwrap();
        let second = Digest::of(format!("{} {}", digest(1), digest(2)).as_bytes());
        assert_eq!(config.chain(), [digest(1), second]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = Document::parse(&bytes);
            let _ = Config::parse(&bytes);
        }

        #[test]
        fn any_json_of_this_kind_is_parsed_or_refused(
            key in "(manifests|config|layers|rootfs|os)",
            value in r#"(\[\]|\{\}|null|[0-9]{1,25}|"[a-z:]{0,10}"|\[\{"digest":"sha256:[0-9a-f]{62,66}"\}\])"#,
        ) {
            let text = format!(r#"{{"{key}":{value}}}"#);
            let _ = Document::parse(text.as_bytes()).map(|document| document.gc_labels());
            let _ = Config::parse(text.as_bytes()).map(|config| config.chain());
        }
    }
}
