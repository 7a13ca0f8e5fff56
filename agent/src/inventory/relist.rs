//! Compares a fresh list with what was known, after a reconnect or now and then.
//!
//! An empty list has two meanings: everything was deleted, or this is not the store that was known (a wrong socket, another
//! root). It is believed only when the store proves to be the same.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{
    Inventory,
    image::{Content, ImageRecord},
    memory::{Change, Gone},
    read::{self, Listing},
};
use crate::{
    containerd::{Client, ContainerdError, Store, content, namespaces},
    probe::record::Boottime,
};

/// Why a list is not taken.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
    /// No image is listed, none of the known blobs is in any namespace, yet their files lie in the store's directory: the
    /// socket belongs to another containerd, or this one is collecting its garbage. Worth asking again.
    #[error(
        "containerd at {address} lists no image, but {files} of {known} known blobs lie in {content}: is it another containerd?"
    )]
    Suspicious { address: String, content: String, files: usize, known: usize },
}

/// What a list showed that events did not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relisted {
    pub appeared: Vec<(ImageRecord, Arc<Content>)>,
    /// Labels or target: before and after.
    pub changed: Vec<(ImageRecord, ImageRecord)>,
    pub vanished: Vec<Gone>,
}

impl Inventory {
    /// Lists the namespace again and takes the list, unless it can't be true. `at` is now.
    pub async fn relist(
        &mut self,
        client: &Client,
        store: Option<&Store>,
        at: Boottime,
    ) -> Result<Relisted, InventoryError> {
        let listing = read::listing(client).await?;
        if listing.records.is_empty() && self.records().next().is_some() {
            self.doubt(client, store).await?;
        }
        Ok(self.reconcile(listing, at))
    }

    /// Takes a list that is known to be true.
    pub fn reconcile(&mut self, listing: Listing, at: Boottime) -> Relisted {
        let Listing { records, contents, left_out } = listing;
        let mut relisted = Relisted::default();
        let listed: BTreeMap<String, ImageRecord> =
            records.into_iter().map(|record| (record.name.clone(), record)).collect();
        let vanished: Vec<String> =
            self.records.keys().filter(|name| !listed.contains_key(*name)).cloned().collect();
        for name in vanished {
            if let Change::Deleted(gone) = self.remove(&name, at) {
                relisted.vanished.push(gone);
            }
        }
        self.set_left_out(left_out);
        for record in listed.into_values() {
            let Some(content) = contents.get(&record.target.digest) else { continue };
            match self.put(record, Arc::clone(content), at) {
                Change::Created { record, content } => relisted.appeared.push((record, content)),
                Change::Updated { before, after } if before != after => {
                    relisted.changed.push((before, after));
                }
                Change::Moved { before, after, .. } => relisted.changed.push((before.record, after)),
                Change::Updated { .. } | Change::Deleted(_) | Change::None => {}
            }
        }
        relisted
    }

    /// The list is empty and was not: is this the same store?
    async fn doubt(&self, client: &Client, store: Option<&Store>) -> Result<(), InventoryError> {
        let known: BTreeSet<_> = self
            .records()
            .filter_map(|r| self.content(r.target.digest))
            .flat_map(|c| &c.blobs)
            .map(|b| b.digest)
            .collect();
        // A blob of ours in its metadata: held by a lease or the shadow, it survives its images.
        for (namespace, _) in namespaces::list(client).await? {
            let there = content::list(&client.in_namespace(&namespace)?).await?;
            if there.iter().any(|blob| known.contains(&blob.digest)) {
                return Ok(());
            }
        }
        let Some(store) = store else { return Ok(()) };
        let files = known.iter().filter(|digest| store.blob(**digest).exists()).count();
        if files == 0 {
            return Ok(());
        }
        Err(InventoryError::Suspicious {
            address: client.address().display().to_string(),
            content: store.content.display().to_string(),
            files,
            known: known.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{super::memory::tests::*, *};
    use crate::inventory::image::Labels;

    #[test]
    fn a_list_is_compared_name_by_name() {
        let (app, new) = (content("app", &["base"]), content("new", &["base"]));
        let mut inventory =
            with(&[("same:1", &app), ("gone:1", &app), ("moved:1", &app), ("unpinned:1", &app)]);
        let relabelled =
            ImageRecord { labels: Labels::from([("k".into(), "v".into())]), ..record("unpinned:1", &app) };
        let listing = Listing {
            records: vec![
                record("same:1", &app),
                record("moved:1", &new),
                relabelled.clone(),
                record("new:1", &new),
            ],
            contents: [(app.target.digest, Arc::clone(&app)), (new.target.digest, Arc::clone(&new))].into(),
            left_out: 2,
        };
        let relisted = inventory.reconcile(listing, Boottime(9));
        assert_eq!(
            relisted,
            Relisted {
                appeared: vec![(record("new:1", &new), Arc::clone(&new))],
                changed: vec![
                    (record("moved:1", &app), record("moved:1", &new)),
                    (record("unpinned:1", &app), relabelled),
                ],
                vanished: vec![Gone { at: Boottime(9), record: record("gone:1", &app), content: app }],
            }
        );
        assert_eq!(inventory.left_out(), 2);
    }
}
