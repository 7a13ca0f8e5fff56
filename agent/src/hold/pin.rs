//! The pin: CRI's label on every name of an image, which makes the kubelet's GC pass it over. Advice only: whoever asks
//! CRI to remove the image is obeyed, so nothing is kept by it.

use std::time::Duration;

use super::{HoldError, State, Taken, Tools, mark, records, verify::status_when};
use crate::{
    containerd::{ContainerdError, images},
    digest::Digest,
    inventory::image::Image,
};

/// How long CRI may take to learn of a label: it hears of it by an event.
pub(super) const LEARNS: Duration = Duration::from_millis(500);

/// Pins every name that still points to the image. A pin of somebody else's is left as it is, and never taken away.
pub(super) async fn take(tools: &Tools, image: &Image) -> Result<Taken, HoldError> {
    let mut changed = false;
    for record in records::standing(tools, &image.records).await? {
        let changes = mark::pinning(&record.labels);
        if !changes.is_empty() {
            changed |= records::relabel(&tools.client, &record, &changes).await?;
        }
    }
    Ok(Taken { changed, bytes: 0, state: check(tools, image).await? })
}

pub(super) async fn check(tools: &Tools, image: &Image) -> Result<State, HoldError> {
    let standing = records::standing(tools, &image.records).await?;
    if standing.len() < image.records.len() || standing.is_empty() {
        let why =
            format!("{} of {} names are gone", image.records.len() - standing.len(), image.records.len());
        return Ok(State::No { why });
    }
    if let Some(record) = standing.iter().find(|record| !mark::is_pinned(&record.labels)) {
        return Ok(State::No { why: format!("{} is not pinned", record.name) });
    }
    match image.content.id {
        Some(id) => reported(tools, id).await,
        None => Ok(State::No { why: "the image has no readable config, so CRI doesn't know it".to_owned() }),
    }
}

/// Takes the pins of imgwarden's away, and its marks, from every record that points to the image.
pub(super) async fn drop(tools: &Tools, image: &Image) -> Result<bool, HoldError> {
    let mut changed = false;
    for record in images::list_target(&tools.client, &image.content.target).await? {
        let changes = mark::unmarking(&record.labels);
        if !changes.is_empty() {
            changed |= records::relabel(&tools.client, &record, &changes).await?;
        }
    }
    Ok(changed)
}

/// Whether CRI reports an image as pinned, all names of which carry the label.
pub(super) async fn reported(tools: &Tools, id: Digest) -> Result<State, HoldError> {
    let status = tools.cri.image_status(&id.to_string()).await?;
    if status.is_some_and(|status| status.pinned) {
        return Ok(State::Yes);
    }
    let version = version(tools).await?;
    if is_too_old(&version) {
        return Ok(State::Ineffective { why: format!("containerd {version} is too old to report pins") });
    }
    match status_when(tools, id, LEARNS, |status| status.pinned).await? {
        Some(status) if status.pinned => Ok(State::Yes),
        Some(_) => {
            Ok(State::Ineffective { why: format!("CRI of containerd {version} does not report the pin") })
        }
        None => Ok(State::No { why: "CRI doesn't know the image".to_owned() }),
    }
}

/// `1.6.20` of `1.6.20~ds1`, `v1.6.20-k3s1`.
async fn version(tools: &Tools) -> Result<String, ContainerdError> {
    let text = tools.cri.version().await?.version;
    let text = text.trim_start_matches('v');
    Ok(text.chars().take(32).take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}

/// Pins came with 1.6.22 and 1.7.3. A version that is not understood is believed to know them.
fn is_too_old(version: &str) -> bool {
    let mut parts = version.split('.').map(|part| part.parse::<u32>().ok());
    match (parts.next().flatten(), parts.next().flatten(), parts.next().flatten()) {
        (Some(1), Some(minor), patch) => match minor {
            0..6 => true,
            6 => patch.is_some_and(|patch| patch < 22),
            7 => patch.is_some_and(|patch| patch < 3),
            _ => false,
        },
        (major, _, _) => major == Some(0),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pins_came_with_1_6_22_and_1_7_3() {
        for old in ["1.5.18", "1.6.20", "1.6.21", "1.7.0", "1.7.2", "0.9"] {
            assert!(is_too_old(old), "{old}");
        }
        for new in ["1.6.22", "1.6.36", "1.7.3", "1.7.24", "2.0.0", "2", "", "1", "1.7"] {
            assert!(!is_too_old(new), "{new}");
        }
    }

    proptest! {
        #[test]
        fn any_version_is_taken(version in ".{0,40}") {
            let _ = is_too_old(&version);
        }
    }
}
