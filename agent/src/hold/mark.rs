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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{digest::Digest, inventory::image::Descriptor};

    fn applied(mut labels: Labels, changes: Labels) -> Labels {
        labels.extend(changes);
        labels.retain(|_, value| !value.is_empty());
        labels
    }

    fn record(labels: Labels) -> ImageRecord {
        let target = Descriptor { media_type: String::new(), digest: Digest::of(b"target"), size: 1 };
        ImageRecord { name: "registry.test/app:1".into(), target, labels }
    }

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_pin_of_somebody_elses_is_not_marked() {
        let k3s = labels(&[PINNED, ("io.cattle.k3s.pinned", "pinned")]);
        assert_eq!(pinning(&k3s), Labels::new());
        assert_eq!(unmarking(&k3s), Labels::new());
        let created = recreated(&record(k3s.clone()), true).labels;
        assert_eq!(created[PROTECTED], RECORD);
        assert_eq!(theirs(&created), applied(k3s, labels(&[MANAGED])));
    }

    #[test]
    fn a_record_that_was_created_says_what_is_imgwardens() {
        let created = recreated(&record(labels(&[MANAGED])), true).labels;
        assert_eq!(created, labels(&[MANAGED, PINNED, (PROTECTED, "record,pin")]));
        let unpinned = recreated(&record(labels(&[MANAGED])), false).labels;
        assert_eq!(unpinned, labels(&[MANAGED, (PROTECTED, "record")]));
        assert_eq!(applied(unpinned.clone(), pinning(&unpinned)), created);
    }

    #[test]
    fn an_old_pin_of_imgwardens_is_not_taken_for_somebody_elses() {
        let ours = applied(labels(&[MANAGED]), pinning(&labels(&[MANAGED])));
        assert_eq!(recreated(&record(ours.clone()), false).labels, labels(&[MANAGED, (PROTECTED, "record")]));
        assert_eq!(theirs(&ours), labels(&[MANAGED]));
    }

    proptest! {
        #[test]
        fn what_was_pinned_is_as_before_when_unmarked(
            before in proptest::collection::btree_map("[a-z./]{1,20}", "[a-z]{1,8}", 0..4),
            pinned in any::<bool>(),
        ) {
            let before = if pinned { applied(before, labels(&[PINNED])) } else { before };
            let held = applied(before.clone(), pinning(&before));
            prop_assert!(is_pinned(&held));
            prop_assert_eq!(pinning(&held), Labels::new());
            prop_assert_eq!(applied(held.clone(), unmarking(&held)), before);
        }

        #[test]
        fn any_mark_is_taken_away(mark in ".{1,40}", pinned in any::<bool>()) {
            let marked = labels(&[(PROTECTED, &mark), ("other", "x")]);
            let marked = if pinned { applied(marked, labels(&[PINNED])) } else { marked };
            let after = applied(marked.clone(), unmarking(&marked));
            prop_assert!(!after.contains_key(PROTECTED) && after.contains_key("other"));
        }
    }
}
