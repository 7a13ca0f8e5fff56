//! Whether an image is whole: what CRI says of it (which alone proves nothing), every blob by stat and size, manifest and
//! config by their hashes, every layer's snapshot. Reads only.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{HoldError, State, Tools, blobs, mark, pin, records};
use crate::{
    containerd::{cri::ImageStatus, snapshots},
    digest::Digest,
    inventory::{
        document::GC_SNAPSHOT,
        image::{Content, Image},
    },
};

/// How long CRI may take to learn of a record: it hears of it by an event.
const LEARNS: Duration = Duration::from_secs(1);
/// How often CRI is asked meanwhile.
const EVERY: Duration = Duration::from_millis(25);
/// The most problems that are told.
const PROBLEMS: usize = 32;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// CRI answers with the right image ID.
    pub image_status: bool,
    /// What CRI says of the pin; `None`: CRI doesn't know the image. A missing pin is no problem here.
    pub pinned: Option<bool>,
    /// Blobs that are on disk in their size and known to the namespace.
    pub blobs: u64,
    pub blobs_expected: u64,
    /// Manifest and config can be read and have the right hash.
    pub readable: bool,
    /// Layers whose snapshot exists; `None`: the image was never unpacked.
    pub snapshots: Option<u64>,
    pub snapshots_expected: Option<u64>,
    /// What is wrong, for a person; at most 32.
    pub problems: Vec<String>,
}

impl Verified {
    pub fn whole(&self) -> bool {
        self.problems.is_empty()
    }
}

/// Looks at everything that the image should have. Waits up to a second for CRI.
pub async fn verify(tools: &Tools, image: &Image) -> Result<Verified, HoldError> {
    let content = &*image.content;
    let mut problems = Vec::new();

    let faults = blobs::faults(tools, content).await?;
    problems.extend(faults.iter().map(|(blob, fault)| format!("blob {}: {fault}", blob.digest)));
    let readable = readable(tools, content, &mut problems).await?;
    let (snapshots, snapshots_expected) = layers(tools, content, &mut problems).await?;
    let (image_status, pinned) = cri(tools, image, &mut problems).await?;

    problems.truncate(PROBLEMS);
    Ok(Verified {
        image_status,
        pinned,
        blobs: (content.blobs.len() - faults.len()) as u64,
        blobs_expected: content.blobs.len() as u64,
        readable,
        snapshots,
        snapshots_expected,
        problems,
    })
}

async fn cri(
    tools: &Tools,
    image: &Image,
    problems: &mut Vec<String>,
) -> Result<(bool, Option<bool>), HoldError> {
    let Some(id) = image.content.id else { return Ok((false, None)) };
    let status = status_when(tools, id, LEARNS, |status| status.id == id.to_string()).await?;
    let Some(status) = status else {
        problems.push(format!("CRI doesn't know the image {id}"));
        return Ok((false, None));
    };
    let right = status.id == id.to_string();
    if !right {
        problems.push(format!("CRI says {} of the image {id}", status.id));
    }
    let standing = records::standing(tools, &image.records).await?;
    let labelled = !standing.is_empty() && standing.iter().all(|record| mark::is_pinned(&record.labels));
    let pinned = if labelled { pin::reported(tools, id).await? == State::Yes } else { status.pinned };
    Ok((right, Some(pinned)))
}

/// Reads manifest and config whole.
async fn readable(tools: &Tools, content: &Content, problems: &mut Vec<String>) -> Result<bool, HoldError> {
    let (Some(manifest), Some(config)) = (&content.manifest, content.id) else {
        problems.push(format!("{}: no readable manifest and config are known", content.target.digest));
        return Ok(false);
    };
    let mut right = true;
    let index = (content.target.digest != manifest.digest).then_some(content.target.digest);
    for digest in index.into_iter().chain([manifest.digest, config]) {
        if blobs::readable(&tools.client, digest).await?.is_none() {
            problems.push(format!("{digest}: can't be read, or has another hash"));
            right = false;
        }
    }
    Ok(right)
}

/// The layers whose snapshot exists, and how many should. An image was unpacked if its top layer is there, or if its
/// config says so.
async fn layers(
    tools: &Tools,
    content: &Content,
    problems: &mut Vec<String>,
) -> Result<(Option<u64>, Option<u64>), HoldError> {
    let Some(top) = content.chain.last() else { return Ok((None, None)) };
    let key = format!("{GC_SNAPSHOT}{}", tools.snapshotter);
    let config = content.blobs.iter().find(|blob| Some(blob.digest) == content.id);
    let was_unpacked = config.is_some_and(|config| config.labels.contains_key(&key));
    if !was_unpacked && snapshots::stat(&tools.client, &tools.snapshotter, &top.to_string()).await?.is_none()
    {
        return Ok((None, None));
    }
    let mut found = 0;
    for chain_id in &content.chain {
        match snapshots::stat(&tools.client, &tools.snapshotter, &chain_id.to_string()).await? {
            Some(_) => found += 1,
            None => problems.push(format!("layer {chain_id}: its snapshot is gone")),
        }
    }
    Ok((Some(found), Some(content.chain.len() as u64)))
}

/// Asks CRI until the answer is as wanted, at most `limit`. Gives the last answer.
pub(super) async fn status_when(
    tools: &Tools,
    id: Digest,
    limit: Duration,
    wanted: impl Fn(&ImageStatus) -> bool,
) -> Result<Option<ImageStatus>, HoldError> {
    let reference = id.to_string();
    let until = Instant::now() + limit;
    loop {
        let status = tools.cri.image_status(&reference).await?;
        if status.as_ref().is_some_and(&wanted) || Instant::now() >= until {
            return Ok(status);
        }
        sleep(EVERY).await;
    }
}
