//! The labels that blobs need in containerd: without the GC references the next collection eats the layers.
//!
//! The keys are those of containerd's `images.ChildGCLabels` (core/images/mediatypes.go).

use std::collections::BTreeMap;

use crate::{digest::Digest, inventory::image::Labels};

use super::document::{self, Pointer};

const GC_REF: &str = "containerd.io/gc.ref.content.";
const SOURCE: &str = "containerd.io/distribution.source.";
/// On a compressed layer: what it unpacks to. containerd's importer and its snapshotters look layers up by it.
pub const UNCOMPRESSED: &str = "containerd.io/uncompressed";
/// containerd refuses labels whose key and value are longer together.
const LONGEST: usize = 4096;

/// Of a manifest: its config and its layers.
pub(super) fn manifest(config: Digest, layers: &[Digest]) -> Labels {
    let layers = layers.iter().enumerate().map(|(i, layer)| (format!("{GC_REF}l.{i}"), layer.to_string()));
    std::iter::once((format!("{GC_REF}config"), config.to_string())).chain(layers).collect()
}

/// Of an index: all its children, present or not, as a pull sets them. A reference to what isn't there does nothing.
pub(super) fn index(children: &[Pointer]) -> Labels {
    let mut labels = Labels::new();
    let (mut manifests, mut others) = (0, 0);
    for child in children {
        // A digest that is none of ours can't be in the store.
        if child.digest.parse::<Digest>().is_err() {
            continue;
        }
        let key = if matches!(child.media_type.as_str(), document::OCI_MANIFEST | document::DOCKER_MANIFEST) {
            manifests += 1;
            format!("{GC_REF}m.{}", manifests - 1)
        } else {
            others += 1;
            format!("{GC_REF}{}", others - 1)
        };
        labels.insert(key, child.digest.clone());
    }
    labels
}

/// The sources among a descriptor's annotations: containerd's exporter writes them there.
pub(super) fn sources(annotations: &BTreeMap<String, String>) -> Labels {
    let fits = |key: &str, value: &str| key.starts_with(SOURCE) && key.len() + value.len() <= LONGEST;
    annotations
        .iter()
        .filter(|(key, value)| fits(key, value))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// The source that a normalised name (`registry/path:tag`) means: what k3s sets on imported content, so that a registry
/// mirror on the node may serve it. Only for digests that a registry knows ([`super::ArchivedImage::genuine`]).
pub fn distribution_source(normalised: &str) -> Option<(String, String)> {
    let (registry, rest) = normalised.split_once('/')?;
    let rest = rest.split_once('@').map_or(rest, |(repository, _)| repository);
    // The registry with its port is gone, so a colon can only start a tag.
    let repository = rest.split_once(':').map_or(rest, |(repository, _)| repository);
    let key = format!("{SOURCE}{registry}");
    let fits = !registry.is_empty() && !repository.is_empty() && key.len() + repository.len() <= LONGEST;
    fits.then(|| (key, repository.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_holds_its_config_and_layers() {
        let (config, layer) = (Digest::of(b"config"), Digest::of(b"layer"));
        let labels = manifest(config, &[layer, layer]);
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [
                ("containerd.io/gc.ref.content.config".to_owned(), config.to_string()),
                ("containerd.io/gc.ref.content.l.0".to_owned(), layer.to_string()),
                ("containerd.io/gc.ref.content.l.1".to_owned(), layer.to_string()),
            ]
        );
    }

    #[test]
    fn an_index_counts_manifests_and_nested_indexes_apart() {
        let child = |media_type: &str, text: &[u8]| Pointer {
            media_type: media_type.into(),
            digest: Digest::of(text).to_string(),
            size: 1,
            annotations: BTreeMap::new(),
            platform: None,
        };
        let labels = index(&[
            child(document::OCI_MANIFEST, b"a"),
            child(document::OCI_INDEX, b"b"),
            child(document::DOCKER_MANIFEST, b"c"),
        ]);
        assert_eq!(
            labels.into_iter().collect::<Vec<_>>(),
            [
                ("containerd.io/gc.ref.content.0".to_owned(), Digest::of(b"b").to_string()),
                ("containerd.io/gc.ref.content.m.0".to_owned(), Digest::of(b"a").to_string()),
                ("containerd.io/gc.ref.content.m.1".to_owned(), Digest::of(b"c").to_string()),
            ]
        );
    }

    #[test]
    fn a_source_is_a_registry_and_a_path() {
        let of = |name| distribution_source(name);
        let pair = |key: &str, value: &str| Some((format!("{SOURCE}{key}"), value.to_owned()));
        assert_eq!(of("docker.io/rancher/pause:3.6"), pair("docker.io", "rancher/pause"));
        assert_eq!(of("reg.local:5000/a/b@sha256:00"), pair("reg.local:5000", "a/b"));
        assert_eq!(of("localhost/a:1@sha256:00"), pair("localhost", "a"));
        assert_eq!(of("pause"), None);
        assert_eq!(of("/pause"), None);
    }
}
