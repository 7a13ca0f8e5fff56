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
