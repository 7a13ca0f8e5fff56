//! The inventory itself: names, contents, and for a while the names that went.
//!
//! A request may be understood only after the deletion that it asked for: so names that went or moved are remembered
//! for [`Limits::memory`], with the content that they had.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{
    image::{Content, Image, ImageRecord},
    read::{self, Listing},
};
use crate::{
    containerd::{
        Client, ContainerdError,
        events::{Event, Kind},
    },
    digest::Digest,
    probe::record::Boottime,
};

/// What the inventory keeps at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Names. More are left out and counted.
    pub records: usize,
    /// Names that went or moved.
    pub gone: usize,
    /// How long names that went or moved are remembered.
    pub memory: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { records: 20_000, gone: 512, memory: Duration::from_secs(120) }
    }
}

/// Every image of the namespace.
#[derive(Debug, Clone, Default)]
pub struct Inventory {
    limits: Limits,
    pub(super) records: BTreeMap<String, ImageRecord>,
    /// By target digest; those that a record or a name that went points to.
    pub(super) contents: HashMap<Digest, Arc<Content>>,
    /// Which targets reference a blob.
    holders: HashMap<Digest, BTreeSet<Digest>>,
    /// Oldest first.
    pub(super) gone: VecDeque<Gone>,
    left_out: usize,
}

/// A name that went, or that points elsewhere now, as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    pub at: Boottime,
    pub record: ImageRecord,
    pub content: Arc<Content>,
}

/// What an event or a list meant for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Nothing that the inventory keeps.
    None,
    Created {
        record: ImageRecord,
        content: Arc<Content>,
    },
    /// The same target; labels may differ.
    Updated {
        before: ImageRecord,
        after: ImageRecord,
    },
    /// Another target.
    Moved {
        before: Gone,
        after: ImageRecord,
        content: Arc<Content>,
    },
    Deleted(Gone),
}

impl Inventory {
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Reads the namespace. Subscribe to events first: what happens meanwhile is then an event.
    pub async fn load(client: &Client, limits: Limits) -> Result<Self, ContainerdError> {
        let mut inventory = Self::new(limits);
        let Listing { records, contents, left_out } = read::listing(client).await?;
        inventory.left_out = left_out;
        for record in records {
            if let Some(content) = contents.get(&record.target.digest) {
                inventory.put(record, Arc::clone(content), Boottime::default());
            }
        }
        Ok(inventory)
    }

    /// Takes an event of the namespace; `at` is when it came. Asks containerd what a created or updated name is now.
    pub async fn apply(
        &mut self,
        client: &Client,
        event: &Event,
        at: Boottime,
    ) -> Result<Change, ContainerdError> {
        if event.namespace != client.namespace() {
            return Ok(Change::None);
        }
        match &event.kind {
            Kind::ImageDeleted { name } => Ok(self.remove(name, at)),
            Kind::ImageCreated { name, .. } | Kind::ImageUpdated { name, .. } => {
                match read::record(client, name).await? {
                    Some((record, content)) => Ok(self.put(record, content, at)),
                    // Deleted again meanwhile: that event is on its way, and says when.
                    None => Ok(Change::None),
                }
            }
            _ => Ok(Change::None),
        }
    }

    /// Takes a record as it is now.
    pub fn put(&mut self, record: ImageRecord, content: Arc<Content>, at: Boottime) -> Change {
        let before = self.records.get(&record.name).cloned();
        if before.is_none() && self.records.len() >= self.limits.records {
            self.left_out += 1;
            return Change::None;
        }
        let before = before.map(|record| {
            let content = self.content_of(&record);
            (record, content)
        });
        self.records.insert(record.name.clone(), record.clone());
        self.keep(&content);
        match before {
            None => Change::Created { record, content },
            Some((before, _)) if before.target.digest == record.target.digest => {
                Change::Updated { before, after: record }
            }
            Some((before, had)) => {
                let before = self.went(before, had, at);
                Change::Moved { before, after: record, content }
            }
        }
    }

    /// Takes a name away, and remembers it.
    pub fn remove(&mut self, name: &str, at: Boottime) -> Change {
        match self.records.remove(name) {
            None => Change::None,
            Some(record) => {
                let content = self.content_of(&record);
                Change::Deleted(self.went(record, content, at))
            }
        }
    }

    /// Forgets names that went longer ago than they are remembered.
    pub fn expire(&mut self, now: Boottime) {
        let memory = u64::try_from(self.limits.memory.as_nanos()).unwrap_or(u64::MAX);
        let before = self.gone.len();
        while self.gone.front().is_some_and(|gone| now.0.saturating_sub(gone.at.0) > memory) {
            self.gone.pop_front();
        }
        if self.gone.len() != before {
            self.drop_unreferenced();
        }
    }

    pub fn record(&self, name: &str) -> Option<&ImageRecord> {
        self.records.get(name)
    }

    pub fn records(&self) -> impl Iterator<Item = &ImageRecord> {
        self.records.values()
    }

    /// Names that went or moved and are still remembered, the newest first.
    pub fn gone(&self) -> impl Iterator<Item = &Gone> {
        self.gone.iter().rev()
    }

    pub fn content(&self, target: Digest) -> Option<&Arc<Content>> {
        self.contents.get(&target)
    }

    /// Names that are not kept: beyond the limit, or not understood.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// The image that a name belongs to now: all names with its target.
    pub fn image_of(&self, name: &str) -> Option<Image> {
        let target = self.records.get(name)?.target.digest;
        let content = Arc::clone(self.contents.get(&target)?);
        let records =
            self.records.values().filter(|record| record.target.digest == target).cloned().collect();
        Some(Image { records, content })
    }

    /// The images with this ID: one a target.
    pub fn images(&self, id: Digest) -> Vec<Image> {
        self.all().into_iter().filter(|image| image.content.id == Some(id)).collect()
    }

    /// Every image, by target.
    pub fn all(&self) -> Vec<Image> {
        let mut by_target: BTreeMap<Digest, Vec<ImageRecord>> = BTreeMap::new();
        for record in self.records.values() {
            by_target.entry(record.target.digest).or_default().push(record.clone());
        }
        by_target
            .into_iter()
            .filter_map(|(target, records)| {
                Some(Image { records, content: Arc::clone(self.contents.get(&target)?) })
            })
            .collect()
    }

    /// The names that share an image ID now.
    pub fn names_of(&self, id: Digest) -> BTreeSet<String> {
        self.records
            .values()
            .filter(|record| self.id_of(record) == Some(id))
            .map(|record| record.name.clone())
            .collect()
    }

    /// The images (one a target) that reference a blob, or did until their names went lately.
    pub fn owners_of_blob(&self, digest: Digest) -> Vec<Arc<Content>> {
        self.holders
            .get(&digest)
            .into_iter()
            .flatten()
            .filter_map(|target| self.contents.get(target).cloned())
            .collect()
    }

    pub(super) fn id_of(&self, record: &ImageRecord) -> Option<Digest> {
        self.contents.get(&record.target.digest)?.id
    }

    pub(super) fn set_left_out(&mut self, left_out: usize) {
        self.left_out = left_out;
    }

    /// Names outlive their contents nowhere; an empty content stands in if one ever does.
    fn content_of(&self, record: &ImageRecord) -> Arc<Content> {
        self.contents.get(&record.target.digest).cloned().unwrap_or_else(|| {
            Arc::new(Content {
                target: record.target.clone(),
                id: None,
                manifest: None,
                blobs: Vec::new(),
                chain: Vec::new(),
            })
        })
    }

    fn went(&mut self, record: ImageRecord, content: Arc<Content>, at: Boottime) -> Gone {
        let gone = Gone { at, record, content };
        self.gone.push_back(gone.clone());
        if self.gone.len() > self.limits.gone {
            self.gone.pop_front();
            self.drop_unreferenced();
        }
        gone
    }

    /// Keeps a content, unless what is known is whole and the new reading isn't: while an image is being taken apart, what
    /// it was is what matters.
    fn keep(&mut self, content: &Arc<Content>) {
        let target = content.target.digest;
        if let Some(known) = self.contents.get(&target)
            && known.id.is_some()
            && (content.id.is_none() || content.blobs.len() < known.blobs.len())
        {
            return;
        }
        for blob in &content.blobs {
            self.holders.entry(blob.digest).or_default().insert(target);
        }
        self.contents.insert(target, Arc::clone(content));
    }

    fn drop_unreferenced(&mut self) {
        let Self { limits: _, records, contents, holders, gone, left_out: _ } = self;
        let wanted: BTreeSet<Digest> = records
            .values()
            .map(|record| record.target.digest)
            .chain(gone.iter().map(|gone| gone.record.target.digest))
            .collect();
        contents.retain(|target, content| {
            let keep = wanted.contains(target);
            if !keep {
                for blob in &content.blobs {
                    if let Some(targets) = holders.get_mut(&blob.digest) {
                        targets.remove(target);
                        if targets.is_empty() {
                            holders.remove(&blob.digest);
                        }
                    }
                }
            }
            keep
        });
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::inventory::image::{Blob, Descriptor, Labels};

    pub(crate) fn digest(text: &str) -> Digest {
        Digest::of(text.as_bytes())
    }

    /// An image `id` with a manifest of its own and these layers, 10 bytes each blob.
    pub(crate) fn content(id: &str, layers: &[&str]) -> Arc<Content> {
        let blob = |text: &str| Blob {
            digest: digest(text),
            size: 10,
            media_type: String::new(),
            labels: Labels::new(),
        };
        let manifest = format!("manifest of {id}");
        let target = Descriptor { media_type: String::new(), digest: digest(&manifest), size: 10 };
        let mut blobs = vec![blob(&manifest), blob(id)];
        blobs.extend(layers.iter().map(|layer| blob(layer)));
        Arc::new(Content {
            manifest: Some(target.clone()),
            target,
            id: Some(digest(id)),
            blobs,
            chain: layers.iter().map(|layer| digest(&format!("chain {layer}"))).collect(),
        })
    }

    pub(crate) fn record(name: &str, content: &Content) -> ImageRecord {
        ImageRecord { name: name.into(), target: content.target.clone(), labels: Labels::new() }
    }

    pub(crate) fn with(names: &[(&str, &Arc<Content>)]) -> Inventory {
        let mut inventory = Inventory::new(Limits::default());
        for (name, content) in names {
            inventory.put(record(name, content), Arc::clone(content), Boottime(0));
        }
        inventory
    }

    #[test]
    fn a_deleted_name_is_remembered_for_a_while() {
        let app = content("app", &["base", "top"]);
        let mut inventory = with(&[("app:1", &app)]);
        let Change::Deleted(gone) = inventory.remove("app:1", Boottime(5)) else { panic!() };
        assert_eq!((gone.record.name.as_str(), &gone.content), ("app:1", &app));
        assert_eq!(inventory.remove("app:1", Boottime(6)), Change::None);

        inventory.expire(Boottime(5 + 120_000_000_000));
        assert_eq!(inventory.owners_of_blob(digest("top")), [Arc::clone(&app)]);
        inventory.expire(Boottime(6 + 120_000_000_000));
        assert_eq!(inventory.owners_of_blob(digest("top")), []);
        assert!(inventory.contents.is_empty() && inventory.holders.is_empty());
    }

    #[test]
    fn the_memory_of_names_that_went_is_bounded() {
        let mut inventory = Inventory::new(Limits { gone: 3, ..Limits::default() });
        for n in 0..10u64 {
            let content = content(&format!("app {n}"), &["base"]);
            let name = format!("app:{n}");
            inventory.put(record(&name, &content), content, Boottime(n));
            inventory.remove(&name, Boottime(n));
        }
        assert_eq!(
            inventory.gone().map(|g| g.record.name.as_str()).collect::<Vec<_>>(),
            ["app:9", "app:8", "app:7"]
        );
        assert_eq!(inventory.contents.len(), 3);
        assert_eq!(inventory.owners_of_blob(digest("base")).len(), 3);
    }

    #[test]
    fn names_beyond_the_limit_are_counted() {
        let app = content("app", &[]);
        let mut inventory = Inventory::new(Limits { records: 1, ..Limits::default() });
        inventory.put(record("a:1", &app), Arc::clone(&app), Boottime(0));
        assert_eq!(inventory.put(record("a:2", &app), Arc::clone(&app), Boottime(0)), Change::None);
        assert_eq!((inventory.records().count(), inventory.left_out()), (1, 1));
        let relabelled =
            ImageRecord { labels: Labels::from([("k".into(), "v".into())]), ..record("a:1", &app) };
        assert!(matches!(inventory.put(relabelled, app, Boottime(0)), Change::Updated { .. }));
    }

    #[test]
    fn a_moved_name_leaves_its_old_image_behind() {
        let (old, new) = (content("old", &["base"]), content("new", &["base"]));
        let mut inventory = with(&[("app:1", &old), ("other:1", &old)]);
        let Change::Moved { before, after, .. } =
            inventory.put(record("app:1", &new), Arc::clone(&new), Boottime(1))
        else {
            panic!()
        };
        assert_eq!((before.record.target, after.target), (old.target.clone(), new.target.clone()));
        assert_eq!(inventory.names_of(digest("old")), ["other:1".to_owned()].into());
        assert_eq!(inventory.images(digest("new"))[0].records[0].name, "app:1");
    }

    #[test]
    fn a_reading_of_an_image_in_pieces_does_not_replace_the_whole() {
        let whole = content("app", &["base", "top"]);
        let mut inventory = with(&[("app:1", &whole)]);
        let pieces =
            Content { id: None, blobs: whole.blobs[..1].to_vec(), chain: vec![], ..(*whole).clone() };
        inventory.put(record("app:1", &whole), Arc::new(pieces), Boottime(1));
        assert_eq!(inventory.content(whole.target.digest), Some(&whole));
    }
}
