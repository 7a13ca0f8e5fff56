//! The shadow: a record of the image, and the metadata of its blobs, in imgwarden's own namespace. containerd unlinks a
//! blob only when no namespace knows it, so nothing that is done in the watched namespace takes the bytes. The record's
//! labels remember what the image was ([`super::memory`]); no bytes are copied.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;

use super::{HoldError, State, Taken, Tools, all_kept, blobs, mark, memory, owner_labels};
use crate::{
    containerd::{
        Client, ContainerdError, content, images,
        leases::{self, Resource},
        namespaces::{self, SHADOW},
    },
    digest::Digest,
    inventory::image::{Blob, Content, Descriptor, Image, ImageRecord, Labels},
};

/// How long what a killed agent left half done is kept from containerd's GC.
const EXPIRES: Duration = Duration::from_secs(3600);
const EXPIRE: &str = "containerd.io/gc.expire";
const ISOLATED: &str = "containerd shares no content between namespaces (content_sharing_policy)";

/// An image as it was when it was last held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remembered {
    /// Its names with their labels (without imgwarden's), and its blobs with theirs.
    pub image: Image,
    pub snapshotter: String,
}

/// Everything that imgwarden's namespace remembers. Records there that are not of imgwarden's making are left out.
pub async fn remembered(client: &Client) -> Result<Vec<Remembered>, HoldError> {
    let shadow = client.in_namespace(SHADOW)?;
    let records = images::list(&shadow).await?.records;
    if records.is_empty() {
        return Ok(Vec::new());
    }
    let blobs: BTreeMap<Digest, Labels> =
        content::list(&shadow).await?.into_iter().map(|info| (info.digest, info.labels)).collect();
    Ok(records
        .iter()
        .filter_map(|record| memory::unpack(record, |digest| blobs.get(&digest).cloned().unwrap_or_default()))
        .map(|(image, snapshotter)| Remembered { image, snapshotter })
        .collect())
}

/// Adopts the blobs and writes the record. What was remembered of blobs that the watched namespace has lost stays.
pub(super) async fn take(tools: &Tools, image: &Image) -> Result<Taken, HoldError> {
    let shadow = tools.client.in_namespace(SHADOW)?;
    let mut changed = namespaces::create(&shadow, SHADOW, &owner_labels()).await?;
    let before = own_record(&shadow, &image.content.target).await?;
    let image = match &before {
        Some(record) => merged(image, &recall(&shadow, record).await?),
        None => merged(image, &[]),
    };
    let labels = blob_labels(tools, &image.content).await?;

    let mut known = Vec::new();
    let mut unknown = Vec::new();
    for blob in &image.content.blobs {
        if blobs::on_disk(tools, blob).await?.is_some() {
            continue;
        }
        let wanted = labels.get(&blob.digest).cloned().unwrap_or_default();
        match content::info(&shadow, blob.digest).await? {
            None => unknown.push((blob, wanted)),
            Some(info) => {
                changed |= relabel(&shadow, blob.digest, &info.labels, wanted.clone()).await?;
                known.push((blob, wanted));
            }
        }
    }
    let packed = memory::pack(&image, &tools.snapshotter);
    if !unknown.is_empty() || before.as_ref().is_none_or(|record| record.labels != packed) {
        changed = true;
        let lease = temporary_lease(&shadow, &image.content.target).await?;
        let to_write = ToWrite { image: &image, before: before.as_ref(), packed: &packed };
        let written = to_write.under(&shadow, &lease, &known, &unknown).await;
        // One that stays because containerd is gone is found by the next take or drop, or expires.
        let released = leases::delete(&shadow, &lease, written.is_err()).await;
        if matches!(written, Err(HoldError::Containerd(ContainerdError::NotShared { .. }))) {
            return not_shared(tools, &shadow, &unknown).await;
        }
        written?;
        released?;
    } else {
        // An agent that was killed between the record and the lease's deletion left the lease.
        let lease = temporary_lease_id(&image.content.target);
        if leases::resources(&shadow, &lease).await?.is_some() {
            changed |= leases::delete(&shadow, &lease, false).await?;
        }
    }
    let kept = known.iter().chain(&unknown);
    let bytes = kept.clone().map(|(blob, _)| blob.size).sum();
    Ok(Taken { changed, bytes, state: all_kept(kept.count(), image.content.blobs.len()) })
}

/// A shadow to be written.
struct ToWrite<'a> {
    image: &'a Image,
    /// The record that stands.
    before: Option<&'a ImageRecord>,
    /// The record's labels.
    packed: &'a Labels,
}

impl ToWrite<'_> {
    /// Adopts the blobs, then writes the record: from then on the record keeps them. Those that were known are put under
    /// the lease too, since what keeps them may be another image's shadow, about to be dropped.
    async fn under(
        &self,
        shadow: &Client,
        lease: &str,
        known: &[(&Blob, Labels)],
        unknown: &[(&Blob, Labels)],
    ) -> Result<(), HoldError> {
        let leased = shadow.under_lease(lease)?;
        for (blob, labels) in known {
            if !leases::add(shadow, lease, &Resource::Content(blob.digest)).await? {
                content::adopt(&leased, blob.digest, blob.size, labels).await?;
            }
        }
        for (blob, labels) in unknown {
            content::adopt(&leased, blob.digest, blob.size, labels).await?;
        }
        match self.before {
            Some(record) if record.labels == *self.packed => {}
            Some(record) => {
                let record = ImageRecord { labels: self.packed.clone(), ..record.clone() };
                images::replace_own(&leased, &record).await?;
            }
            None => create(&leased, self.image, self.packed).await?,
        }
        Ok(())
    }
}

/// Creates the record by a name that a person knows, unless another target's shadow has it: of a tag that moved, both
/// targets may be held.
async fn create(leased: &Client, image: &Image, packed: &Labels) -> Result<(), HoldError> {
    let target = &image.content.target;
    let name = readable_name(&image.records).unwrap_or(target.digest.to_string());
    let record = ImageRecord { name, target: target.clone(), labels: packed.clone() };
    match images::create(leased, &record).await {
        Err(error) if error.is_exists() => {
            let name = format!("{}@{}", record.name, target.digest);
            Ok(images::create(leased, &ImageRecord { name, ..record }).await?)
        }
        created => Ok(created?),
    }
}

/// A blob that is on disk could not be shared: either it went this moment, or sharing is off.
async fn not_shared(tools: &Tools, shadow: &Client, unknown: &[(&Blob, Labels)]) -> Result<Taken, HoldError> {
    namespaces::delete_own_if_empty(shadow).await?;
    for (blob, _) in unknown {
        if blobs::on_disk(tools, blob).await?.is_some() {
            let state = State::No { why: format!("{} went while it was taken", blob.digest) };
            return Ok(Taken { changed: true, bytes: 0, state });
        }
    }
    Ok(Taken { changed: false, bytes: 0, state: State::No { why: ISOLATED.to_owned() } })
}

pub(super) async fn check(tools: &Tools, image: &Image) -> Result<State, HoldError> {
    let shadow = tools.client.in_namespace(SHADOW)?;
    if own_record(&shadow, &image.content.target).await?.is_none() {
        return Ok(State::No { why: format!("namespace {SHADOW} has no record of it") });
    }
    let mut kept = 0;
    for blob in &image.content.blobs {
        if content::info(&shadow, blob.digest).await?.is_none() {
            return Ok(State::No { why: format!("namespace {SHADOW} doesn't know {}", blob.digest) });
        }
        kept += usize::from(blobs::on_disk(tools, blob).await?.is_none());
    }
    Ok(all_kept(kept, image.content.blobs.len()))
}

/// Deletes the record and waits for containerd's GC, which takes the metadata. The last one takes the namespace along.
pub(super) async fn drop(tools: &Tools, image: &Image) -> Result<bool, HoldError> {
    let shadow = tools.client.in_namespace(SHADOW)?;
    let target = &image.content.target;
    // Waits for the GC, since what a killed agent adopted without a record keeps the namespace.
    let mut changed = leases::delete(&shadow, &temporary_lease_id(target), true).await?;
    while let Some(record) = own_record(&shadow, target).await? {
        changed |= images::delete_own(&shadow, &record.name).await?;
    }
    changed |= namespaces::delete_own_if_empty(&shadow).await?;
    Ok(changed)
}

/// The shadow record of a target.
async fn own_record(shadow: &Client, target: &Descriptor) -> Result<Option<ImageRecord>, ContainerdError> {
    let records = images::list_target(shadow, target).await?;
    Ok(records.into_iter().find(memory::is_own))
}

/// What a record remembers, with the labels of its blobs: none or one.
async fn recall(shadow: &Client, record: &ImageRecord) -> Result<Vec<Image>, ContainerdError> {
    let mut labels = BTreeMap::new();
    let Some((image, _)) = memory::unpack(record, |_| Labels::new()) else { return Ok(Vec::new()) };
    for blob in &image.content.blobs {
        if let Some(info) = content::info(shadow, blob.digest).await? {
            labels.insert(blob.digest, info.labels);
        }
    }
    let recalled = memory::unpack(record, |digest| labels.get(&digest).cloned().unwrap_or_default());
    Ok(recalled.map(|(image, _)| image).into_iter().collect())
}

/// The image without imgwarden's own labels, and with what is remembered of it where it is damaged now.
fn merged(image: &Image, remembered: &[Image]) -> Image {
    let mut records: Vec<ImageRecord> = image
        .records
        .iter()
        .map(|record| ImageRecord { labels: mark::theirs(&record.labels), ..record.clone() })
        .collect();
    let mut content = Content::clone(&image.content);
    for Image { records: old_records, content: old } in remembered {
        if records.is_empty() {
            records.clone_from(old_records);
        }
        let lost =
            old.blobs.iter().filter(|old| !image.content.blobs.iter().any(|blob| blob.digest == old.digest));
        content.blobs.extend(lost.cloned());
        if content.id.is_none() {
            content.id = old.id;
            content.manifest.clone_from(&old.manifest);
            content.chain.clone_from(&old.chain);
        }
    }
    Image { records, content: Arc::new(content) }
}

async fn blob_labels(tools: &Tools, content: &Content) -> Result<BTreeMap<Digest, Labels>, HoldError> {
    let documents = blobs::documents(tools, content).await?;
    Ok(blobs::gc_labels(content, &documents, None)
        .into_iter()
        .map(|(digest, labels)| (digest, memory::shadowed(&labels)))
        .collect())
}

/// Sets what is wanted and not there.
async fn relabel(
    shadow: &Client,
    digest: Digest,
    labels: &Labels,
    mut wanted: Labels,
) -> Result<bool, ContainerdError> {
    wanted.retain(|key, value| labels.get(key) != Some(value));
    if wanted.is_empty() {
        return Ok(false);
    }
    content::set_labels(shadow, digest, &wanted).await?;
    Ok(true)
}

/// The lease under which a shadow is written.
fn temporary_lease_id(target: &Descriptor) -> String {
    let mut hex = target.digest.to_hex();
    hex.truncate(16);
    format!("imgwarden-take-{hex}")
}

/// A new one, in place of one that a killed agent left, which is about to expire.
async fn temporary_lease(shadow: &Client, target: &Descriptor) -> Result<String, ContainerdError> {
    let id = temporary_lease_id(target);
    let mut labels = owner_labels();
    labels.insert(EXPIRE.to_owned(), (Timestamp::now() + EXPIRES).to_string());
    if !leases::create(shadow, &id, &labels).await? {
        leases::delete(shadow, &id, false).await?;
        leases::create(shadow, &id, &labels).await?;
    }
    Ok(id)
}

/// A tag if there is one, else a name with a digest, else the ID.
fn readable_name(records: &[ImageRecord]) -> Option<String> {
    let rank = |name: &str| (name.starts_with("sha256:"), name.contains('@'));
    records.iter().map(|record| record.name.clone()).min_by_key(|name| (rank(name), name.clone()))
}
