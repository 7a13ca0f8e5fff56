//! Snapshots: what exists, and which directory of the snapshotter is which layer.
//!
//! A guard is a View of ours on an image's top layer. While it stands, containerd refuses to remove any layer below it,
//! and its mount options name the layers' directories, which nothing else tells (metadata.db is locked by containerd).

use containerd_client::{
    services::v1::snapshots::{
        Info, MountsRequest, RemoveSnapshotRequest, StatSnapshotRequest, ViewSnapshotRequest,
        snapshots_client::SnapshotsClient,
    },
    types::Mount,
};

use super::{
    Client, ContainerdError,
    client::{CALL, call, stub},
    error::found,
};
use crate::{digest::Digest, inventory::image::Labels};

/// A layer of an image and the number of its directory in the snapshotter's `snapshots`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Directory {
    pub chain_id: Digest,
    pub number: u64,
}

/// A snapshot, as containerd's metadata knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    pub key: String,
    /// Empty for a bottom layer.
    pub parent: String,
    pub labels: Labels,
}

pub async fn stat(
    client: &Client,
    snapshotter: &str,
    key: &str,
) -> Result<Option<Snapshot>, ContainerdError> {
    const METHOD: &str = "Snapshots/Stat";
    let message = StatSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.to_owned() };
    let answer =
        call(METHOD, key, CALL, stub!(client, SnapshotsClient<_>).stat(client.request(message))).await;
    match found(answer)?.map(|answer| answer.into_inner().info) {
        None => Ok(None),
        Some(Some(Info { name, parent, labels, .. })) => {
            Ok(Some(Snapshot { key: name, parent, labels: labels.into_iter().collect() }))
        }
        Some(None) => {
            Err(ContainerdError::Answer { method: METHOD, object: key.to_owned(), what: "no info" })
        }
    }
}

/// The key of the guard on this chain.
pub fn guard_key(top: Digest) -> String {
    format!("imgwarden-{}", top.to_hex())
}

/// Sets the guard on a chain (bottom first) if it is not there, under the client's lease, and reads the directories
/// from it. Empty when the chain is empty, not unpacked, or the snapshotter's mounts name no numbered directories.
pub async fn guard(
    client: &Client,
    snapshotter: &str,
    chain: &[Digest],
) -> Result<Vec<Directory>, ContainerdError> {
    let Some(top) = chain.last() else { return Ok(Vec::new()) };
    let key = guard_key(*top);
    let message = ViewSnapshotRequest {
        snapshotter: snapshotter.to_owned(),
        key: key.clone(),
        parent: top.to_string(),
        labels: Default::default(),
    };
    let answer =
        call("Snapshots/View", &key, CALL, stub!(client, SnapshotsClient<_>).view(client.request(message)))
            .await;
    match answer {
        Ok(answer) => Ok(directories(&answer.into_inner().mounts, chain)),
        Err(error) if error.is_exists() => learn(client, snapshotter, chain).await,
        Err(error) if error.is_not_found() => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// Reads the directories from a guard that stands; empty when it doesn't.
pub async fn learn(
    client: &Client,
    snapshotter: &str,
    chain: &[Digest],
) -> Result<Vec<Directory>, ContainerdError> {
    let Some(top) = chain.last() else { return Ok(Vec::new()) };
    let key = guard_key(*top);
    let message = MountsRequest { snapshotter: snapshotter.to_owned(), key: key.clone() };
    let answer = call(
        "Snapshots/Mounts",
        &key,
        CALL,
        stub!(client, SnapshotsClient<_>).mounts(client.request(message)),
    )
    .await;
    Ok(found(answer)?.map(|answer| directories(&answer.into_inner().mounts, chain)).unwrap_or_default())
}

/// Takes our guard away; `false`: it was not there.
pub async fn unguard(client: &Client, snapshotter: &str, top: Digest) -> Result<bool, ContainerdError> {
    let key = guard_key(top);
    let message = RemoveSnapshotRequest { snapshotter: snapshotter.to_owned(), key: key.clone() };
    let answer = call(
        "Snapshots/Remove",
        &key,
        CALL,
        stub!(client, SnapshotsClient<_>).remove(client.request(message)),
    )
    .await;
    Ok(found(answer)?.is_some())
}

/// overlayfs: one layer is a read-only bind of `…/snapshots/N/fs`, several are an overlay with the top layer first in
/// `lowerdir` (snapshots/overlay/overlay.go, `mounts`).
fn directories(mounts: &[Mount], chain: &[Digest]) -> Vec<Directory> {
    let [mount] = mounts else { return Vec::new() };
    let lower = mount.options.iter().find_map(|option| option.strip_prefix("lowerdir="));
    let numbers: Option<Vec<u64>> = match lower {
        Some(lower) => lower.split(':').rev().map(number).collect(),
        None => number(&mount.source).map(|number| vec![number]),
    };
    match numbers {
        Some(numbers) if numbers.len() == chain.len() => chain
            .iter()
            .zip(numbers)
            .map(|(chain_id, number)| Directory { chain_id: *chain_id, number })
            .collect(),
        _ => Vec::new(),
    }
}

fn number(path: &str) -> Option<u64> {
    let path = path.strip_suffix("/fs")?;
    let (above, number) = path.rsplit_once('/')?;
    above.ends_with("/snapshots").then(|| number.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn mount(source: &str, options: &[&str]) -> Vec<Mount> {
        vec![Mount {
            r#type: String::new(),
            source: source.to_owned(),
            target: String::new(),
            options: options.iter().map(|&o| o.to_owned()).collect(),
        }]
    }

    fn chain(n: u8) -> Vec<Digest> {
        (0..n).map(|i| Digest::of(&[i])).collect()
    }

    #[test]
    fn an_overlays_lower_directories_are_the_chain_from_the_top() {
        let mounts = mount("overlay", &["index=off", "lowerdir=/r/snapshots/9/fs:/r/snapshots/4/fs"]);
        let chain = chain(2);
        assert_eq!(
            directories(&mounts, &chain),
            [Directory { chain_id: chain[0], number: 4 }, Directory { chain_id: chain[1], number: 9 }]
        );
    }

    #[test]
    fn a_single_layer_is_a_bind() {
        let chain = chain(1);
        assert_eq!(
            directories(&mount("/r/snapshots/7/fs", &["ro", "rbind"]), &chain),
            [Directory { chain_id: chain[0], number: 7 }]
        );
    }

    #[test]
    fn what_does_not_fit_the_chain_names_nothing() {
        for (source, options) in [
            ("/r/snapshots/7/fs", vec!["ro"]),
            ("overlay", vec!["lowerdir=/r/snapshots/9/fs"]),
            ("overlay", vec!["lowerdir=/r/snapshots/x/fs:/r/snapshots/4/fs"]),
            ("overlay", vec!["lowerdir=/r/elsewhere/9/fs:/r/snapshots/4/fs"]),
        ] {
            assert_eq!(directories(&mount(source, &options), &chain(2)), [], "{source} {options:?}");
        }
    }

    proptest! {
        #[test]
        fn any_mount_is_read_or_refused(source in ".{0,60}", option in ".{0,60}", layers in 0u8..5) {
            let chain = chain(layers);
            let found = directories(&mount(&source, &[&format!("lowerdir={option}")]), &chain);
            prop_assert!(found.is_empty() || found.len() == chain.len());
        }
    }
}
