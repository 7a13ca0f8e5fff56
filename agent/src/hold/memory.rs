//! What a shadow record's labels say: an image's names with their labels, its ID, chain, and blobs. Packs them into
//! containerd's labels and reads them back; talks to nobody.
//!
//! A label's key and value may have 4,096 bytes together. What doesn't fit is left out: a record's label that is within
//! some 30 bytes of that limit itself, or a name that long.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    digest::Digest,
    inventory::image::{Blob, Content, Descriptor, Image, ImageRecord, Labels},
};

/// The most bytes of a label's key and value in containerd (labels/validate.go).
pub(super) const LABEL: usize = 4096;
/// The most names, and the most labels of a name, that are remembered.
const NAMES: usize = 256;
/// The most blobs that are read back: as many as the inventory reads.
const BLOBS: usize = 4096;
/// The most layers that are read back.
const LAYERS: usize = 512;

const SNAPSHOTTER: &str = "io.imgwarden/snapshotter";
const ID: &str = "io.imgwarden/id";
const MANIFEST: &str = "io.imgwarden/manifest";
const NAME: &str = "io.imgwarden/name.";
const RECORD_LABEL: &str = "io.imgwarden/label.";
const CHAIN: &str = "io.imgwarden/chain.";
const BLOB: &str = "io.imgwarden/blob.";
/// Before a label of a blob that means something to containerd's GC and must not in imgwarden's namespace.
const KEPT: &str = "io.imgwarden/kept.";

/// The labels of the shadow record of an image. The records' labels should be those of others alone.
pub(super) fn pack(image: &Image, snapshotter: &str) -> Labels {
    let Image { records, content } = image;
    let Content { target: _, id, manifest, blobs, chain } = &**content;
    let mut labels = Packed::default();
    labels.put(SNAPSHOTTER.to_owned(), snapshotter);
    if let Some(id) = id {
        labels.put(ID.to_owned(), &id.to_string());
    }
    if let Some(Descriptor { media_type, digest, size }) = manifest {
        labels.put(MANIFEST.to_owned(), &format!("{digest} {size} {media_type}"));
    }
    for (n, record) in records.iter().take(NAMES).enumerate() {
        labels.put(format!("{NAME}{n}"), &record.name);
        for (key, value) in record.labels.iter().take(NAMES) {
            labels.put(format!("{RECORD_LABEL}{n}.{key}"), value);
        }
    }
    for (n, chain_id) in chain.iter().enumerate() {
        labels.put(format!("{CHAIN}{n}"), &chain_id.to_string());
    }
    for (n, Blob { digest, size, media_type, labels: _ }) in blobs.iter().enumerate() {
        labels.put(format!("{BLOB}{n}"), &format!("{digest} {size} {media_type}"));
    }
    labels.0
}

/// Whether imgwarden made the record.
pub(super) fn is_own(record: &ImageRecord) -> bool {
    record.labels.contains_key(SNAPSHOTTER)
}

/// What [`pack`] packed, with the labels of the shadow's blobs; `None`: not a record of imgwarden's making.
pub(super) fn unpack(
    record: &ImageRecord,
    blob_labels: impl Fn(Digest) -> Labels,
) -> Option<(Image, String)> {
    let ImageRecord { name: _, target, labels } = record;
    let snapshotter = labels.get(SNAPSHOTTER)?.clone();
    let mut names: BTreeMap<usize, ImageRecord> = numbered(labels, NAME, NAMES)
        .into_iter()
        .map(|(n, name)| {
            (n, ImageRecord { name: name.to_owned(), target: target.clone(), labels: Labels::new() })
        })
        .collect();
    for (key, value) in labels {
        let Some((n, key)) = key.strip_prefix(RECORD_LABEL).and_then(|rest| rest.split_once('.')) else {
            continue;
        };
        if let Some(record) = n.parse().ok().and_then(|n: usize| names.get_mut(&n)) {
            record.labels.insert(key.to_owned(), value.clone());
        }
    }
    let content = Content {
        target: target.clone(),
        id: labels.get(ID).and_then(|id| id.parse().ok()),
        manifest: labels.get(MANIFEST).and_then(|text| descriptor(text)),
        blobs: numbered(labels, BLOB, BLOBS)
            .into_values()
            .filter_map(descriptor)
            .map(|Descriptor { media_type, digest, size }| Blob {
                digest,
                size,
                media_type,
                labels: original(&blob_labels(digest)),
            })
            .collect(),
        chain: numbered(labels, CHAIN, LAYERS).into_values().filter_map(|text| text.parse().ok()).collect(),
    };
    Some((Image { records: names.into_values().collect(), content: Arc::new(content) }, snapshotter))
}

/// A blob's labels for imgwarden's namespace, where no snapshots are and nothing must be kept for its own sake: those
/// that mean so are put aside, references to other blobs stay.
pub(super) fn shadowed(labels: &Labels) -> Labels {
    let mut packed = Packed::default();
    for (key, value) in labels {
        let aside =
            key.starts_with("containerd.io/gc.") && !key.starts_with(crate::inventory::document::GC_CONTENT);
        packed.put(if aside { format!("{KEPT}{key}") } else { key.clone() }, value);
    }
    packed.0
}

/// The labels that [`shadowed`] was given.
fn original(labels: &Labels) -> Labels {
    labels
        .iter()
        .map(|(key, value)| (key.strip_prefix(KEPT).unwrap_or(key).to_owned(), value.clone()))
        .collect()
}

#[derive(Default)]
struct Packed(Labels);

impl Packed {
    fn put(&mut self, key: String, value: &str) {
        // An empty value takes a label away in an update; such a label says nothing anyway.
        if !value.is_empty() && key.len() + value.len() <= LABEL {
            self.0.insert(key, value.to_owned());
        }
    }
}

/// The labels `<prefix><n>`, by `n`, below `limit`.
fn numbered<'a>(labels: &'a Labels, prefix: &str, limit: usize) -> BTreeMap<usize, &'a str> {
    labels
        .iter()
        .filter_map(|(key, value)| Some((key.strip_prefix(prefix)?.parse().ok()?, value.as_str())))
        .filter(|(n, _)| *n < limit)
        .collect()
}

/// `<digest> <size> <media type>`; the type may be empty.
fn descriptor(text: &str) -> Option<Descriptor> {
    let mut parts = text.splitn(3, ' ');
    Some(Descriptor {
        digest: parts.next()?.parse().ok()?,
        size: parts.next()?.parse().ok()?,
        media_type: parts.next().unwrap_or_default().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::from_bytes([n; 32])
    }

    fn target() -> Descriptor {
        Descriptor {
            media_type: "application/vnd.oci.image.manifest.v1+json".into(),
            digest: digest(1),
            size: 7,
        }
    }

    fn record(name: &str, labels: Labels) -> ImageRecord {
        ImageRecord { name: name.to_owned(), target: target(), labels }
    }

    fn image(records: Vec<ImageRecord>, blobs: Vec<Blob>) -> Image {
        let content = Content {
            target: target(),
            id: Some(digest(2)),
            manifest: Some(target()),
            blobs,
            chain: (0..12).map(digest).collect(),
        };
        Image { records, content: Arc::new(content) }
    }

    /// What becomes of an image through a shadow record and the shadow's blobs.
    fn through_containerd(image: &Image) -> Option<(Image, String)> {
        let labels = pack(image, "overlayfs");
        for (key, value) in &labels {
            assert!(key.len() + value.len() <= LABEL && !value.is_empty(), "{key}={value}");
        }
        let blobs: BTreeMap<Digest, Labels> =
            image.content.blobs.iter().map(|blob| (blob.digest, shadowed(&blob.labels))).collect();
        unpack(&record("any", labels), |digest| blobs.get(&digest).cloned().unwrap_or_default())
    }

    #[test]
    fn names_stay_in_order_and_keep_their_labels() {
        let records = (0..20)
            .map(|n| {
                let labels = Labels::from([
                    ("io.cri-containerd.image".into(), "managed".into()),
                    ("n".into(), n.to_string()),
                ]);
                record(&format!("registry.test/app:{n}"), labels)
            })
            .collect();
        let blobs = vec![Blob {
            digest: digest(2),
            size: u64::MAX,
            media_type: String::new(),
            labels: Labels::from([
                ("containerd.io/gc.ref.snapshot.overlayfs".into(), digest(3).to_string()),
                ("containerd.io/distribution.source.registry.test".into(), "app".into()),
            ]),
        }];
        let image = image(records, blobs);
        assert_eq!(through_containerd(&image), Some((image, "overlayfs".to_owned())));
    }

    #[test]
    fn nothing_in_the_shadow_is_kept_for_its_own_sake() {
        let labels = Labels::from([
            ("containerd.io/gc.root".into(), "now".into()),
            ("containerd.io/gc.ref.snapshot.overlayfs".into(), digest(3).to_string()),
            ("containerd.io/gc.ref.content.l.0".into(), digest(4).to_string()),
        ]);
        let kept: Vec<_> =
            shadowed(&labels).into_keys().filter(|key| key.starts_with("containerd.io/")).collect();
        assert_eq!(kept, ["containerd.io/gc.ref.content.l.0"]);
        assert_eq!(original(&shadowed(&labels)), labels);
    }

    #[test]
    fn a_label_that_does_not_fit_is_left_out_alone() {
        let key = "k".to_owned();
        let labels =
            |value: usize| Labels::from([(key.clone(), "v".repeat(value)), ("other".into(), "x".into())]);
        let most = LABEL - format!("{RECORD_LABEL}0.k").len();
        let fits = image(vec![record("a", labels(most))], Vec::new());
        assert_eq!(through_containerd(&fits).unwrap().0, fits);
        let too_long = image(vec![record("a", labels(most + 1))], Vec::new());
        let found = through_containerd(&too_long).unwrap().0;
        assert_eq!(found.records[0].labels, Labels::from([("other".into(), "x".into())]));
    }

    #[test]
    fn a_record_of_somebody_elses_is_no_memory() {
        let labels = Labels::from([("io.cri-containerd.image".into(), "managed".into())]);
        assert_eq!(unpack(&record("a", labels), |_| Labels::new()), None);
    }

    fn some_labels() -> impl Strategy<Value = Labels> {
        proptest::collection::btree_map("[a-z0-9./=-]{1,30}", "[ -~]{1,40}", 0..4)
    }

    proptest! {
        #[test]
        fn an_image_comes_back_as_it_was(
            names in vec((".{1,60}", some_labels()), 0..6),
            blobs in vec((any::<[u8; 32]>(), any::<u64>(), "[ -~]{0,40}", some_labels()), 0..6),
        ) {
            let records = names.into_iter().map(|(name, labels)| record(&name, labels)).collect();
            let blobs = blobs
                .into_iter()
                .map(|(hash, size, media_type, labels)| {
                    Blob { digest: Digest::from_bytes(hash), size, media_type, labels }
                })
                .collect();
            let image = image(records, blobs);
            prop_assert_eq!(through_containerd(&image), Some((image, "overlayfs".to_owned())));
        }

        #[test]
        fn any_labels_are_unpacked_or_refused(
            parts in vec((0usize..7, "[0-9.a-z]{0,25}", "(sha256:[0-9a-f]{64})?[ -~]{0,60}"), 0..12),
        ) {
            let prefixes = [SNAPSHOTTER, ID, MANIFEST, NAME, RECORD_LABEL, CHAIN, BLOB];
            let labels: Labels = parts
                .into_iter()
                .flat_map(|(kind, rest, value)| {
                    [(prefixes[kind].to_owned(), value.clone()), (format!("{}{rest}", prefixes[kind]), value)]
                })
                .collect();
            let own = labels.contains_key(SNAPSHOTTER);
            prop_assert_eq!(unpack(&record("a", labels), |_| Labels::new()).is_some(), own);
        }
    }
}
