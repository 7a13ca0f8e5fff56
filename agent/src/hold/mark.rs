//! The label `io.imgwarden.protected`: what imgwarden added to a record of the watched namespace, so that it can take
//! away exactly that.

use crate::{
    containerd::images::{MANAGED, PINNED},
    inventory::image::{ImageRecord, Labels},
};

/// A comma list of [`PIN`] and [`RECORD`].
pub(super) const PROTECTED: &str = "io.imgwarden.protected";
/// The CRI pin is imgwarden's.
const PIN: &str = "pin";
/// The record was deleted, and imgwarden created it again.
const RECORD: &str = "record";

pub(super) fn is_pinned(labels: &Labels) -> bool {
    labels.get(PINNED.0).is_some_and(|value| value == PINNED.1)
}

fn has(labels: &Labels, word: &str) -> bool {
    labels.get(PROTECTED).is_some_and(|mark| mark.split(',').any(|part| part == word))
}

/// The labels to set on a record that stands, for it to be pinned. Empty if it is.
pub(super) fn pinning(labels: &Labels) -> Labels {
    if is_pinned(labels) {
        return Labels::new();
    }
    let mark = if has(labels, RECORD) { format!("{RECORD},{PIN}") } else { PIN.to_owned() };
    Labels::from([(PINNED.0.to_owned(), PINNED.1.to_owned()), (PROTECTED.to_owned(), mark)])
}

/// The labels to set (empty ones go) on a record that stands, for everything of imgwarden's to be gone from it. Empty if
/// there is nothing.
pub(super) fn unmarking(labels: &Labels) -> Labels {
    let mut changes = Labels::new();
    if labels.contains_key(PROTECTED) {
        changes.insert(PROTECTED.to_owned(), String::new());
        if has(labels, PIN) {
            changes.insert(PINNED.0.to_owned(), String::new());
        }
    }
    changes
}

/// The labels as they would be without imgwarden.
pub(super) fn theirs(labels: &Labels) -> Labels {
    let gone = unmarking(labels);
    labels.iter().filter(|(key, _)| !gone.contains_key(*key)).map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The record as imgwarden creates it again.
pub(super) fn recreated(record: &ImageRecord, pin: bool) -> ImageRecord {
    let mut labels = theirs(&record.labels);
    labels.insert(MANAGED.0.to_owned(), MANAGED.1.to_owned());
    labels.insert(PROTECTED.to_owned(), RECORD.to_owned());
    if pin {
        labels.extend(pinning(&labels));
    }
    ImageRecord { labels, ..record.clone() }
}
