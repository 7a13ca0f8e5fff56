//! The lease: one of imgwarden's own in the watched namespace, on every blob of an image and its top layer. containerd's
//! GC then collects none of them when the names go. It stops no explicit deletion.

use std::collections::BTreeSet;

use super::{HoldError, State, Taken, Tools, all_kept, blobs, owner_labels};
use crate::{
    containerd::{
        leases::{self, Resource},
        snapshots,
    },
    digest::Digest,
    inventory::image::{Content, Image},
};

/// The label with the digest that the lease is for.
pub const TARGET: &str = "io.imgwarden.target";

/// The lease's ID for a target.
pub fn id(target: Digest) -> String {
    let mut hex = target.to_hex();
    hex.truncate(16);
    format!("imgwarden-{hex}")
}

/// The same tools; what they create belongs to the image's lease, which must exist.
pub fn tools_under(tools: &Tools, image: &Image) -> Result<Tools, HoldError> {
    Ok(Tools { client: tools.client.under_lease(&id(image.content.target.digest))?, ..tools.clone() })
}

/// Creates the lease and adds what it lacks. Also right after somebody deleted the lease or emptied it.
pub(super) async fn take(tools: &Tools, image: &Image) -> Result<Taken, HoldError> {
    let content = &image.content;
    let lease = id(content.target.digest);
    let mut labels = owner_labels();
    labels.insert(TARGET.to_owned(), content.target.digest.to_string());
    let mut changed = leases::create(&tools.client, &lease, &labels).await?;
    let has: BTreeSet<Resource> =
        leases::resources(&tools.client, &lease).await?.unwrap_or_default().into_iter().collect();
    let mut bytes = 0;
    let mut kept = 0;
    for blob in &content.blobs {
        if blobs::fault(tools, blob).await?.is_some() {
            continue;
        }
        let resource = Resource::Content(blob.digest);
        let exists = if has.contains(&resource) {
            true
        } else {
            changed = true;
            leases::add(&tools.client, &lease, &resource).await?
        };
        if exists {
            kept += 1;
            bytes += blob.size;
        }
    }
    if let Some(resource) = top(tools, content).await?.filter(|resource| !has.contains(resource)) {
        changed = true;
        leases::add(&tools.client, &lease, &resource).await?;
    }
    Ok(Taken { changed, bytes, state: all_kept(kept, content.blobs.len()) })
}

pub(super) async fn check(tools: &Tools, image: &Image) -> Result<State, HoldError> {
    let content = &image.content;
    let lease = id(content.target.digest);
    let Some(has) = leases::resources(&tools.client, &lease).await? else {
        return Ok(State::No { why: format!("there is no lease {lease}") });
    };
    let mut kept = 0;
    for blob in &content.blobs {
        if !has.contains(&Resource::Content(blob.digest)) {
            return Ok(State::No { why: format!("lease {lease} doesn't hold {}", blob.digest) });
        }
        kept += usize::from(blobs::fault(tools, blob).await?.is_none());
    }
    if top(tools, content).await?.is_some_and(|resource| !has.contains(&resource)) {
        return Ok(State::No { why: format!("lease {lease} doesn't hold the top layer's snapshot") });
    }
    Ok(all_kept(kept, content.blobs.len()))
}

/// Deletes the lease and waits for containerd's GC.
pub(super) async fn drop(tools: &Tools, image: &Image) -> Result<bool, HoldError> {
    Ok(leases::delete(&tools.client, &id(image.content.target.digest), true).await?)
}

/// The top layer, if it is unpacked. Its parents follow it.
async fn top(tools: &Tools, content: &Content) -> Result<Option<Resource>, HoldError> {
    let Some(chain_id) = content.chain.last() else { return Ok(None) };
    let key = chain_id.to_string();
    let exists = snapshots::stat(&tools.client, &tools.snapshotter, &key).await?.is_some();
    Ok(exists.then(|| Resource::Snapshot { snapshotter: tools.snapshotter.clone(), key }))
}
