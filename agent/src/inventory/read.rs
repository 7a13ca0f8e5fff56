//! Reads images from containerd: records, and what their targets reference on this node.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use futures::{StreamExt, TryStreamExt, stream};

use super::{
    document::{Child, Config, Document},
    image::{Blob, Content, Descriptor, ImageRecord},
};
use crate::{
    containerd::{
        Client, ContainerdError,
        content::{self, BlobInfo, DOCUMENT},
        images,
    },
    digest::Digest,
};

/// How many contents are read at once at the start.
const AT_ONCE: usize = 8;
/// The most blobs of one content, over all platforms.
const BLOBS: usize = 4096;

/// The namespace as a list showed it.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    pub records: Vec<ImageRecord>,
    /// By target digest.
    pub contents: BTreeMap<Digest, Arc<Content>>,
    /// Records that are not understood.
    pub left_out: usize,
}

/// Lists the namespace and reads every content.
pub async fn listing(client: &Client) -> Result<Listing, ContainerdError> {
    let images::Listed { records, left_out } = images::list(client).await?;
    if records.is_empty() {
        return Ok(Listing { left_out, ..Default::default() });
    }
    let known: HashMap<Digest, BlobInfo> =
        content::list(client).await?.into_iter().map(|info| (info.digest, info)).collect();
    let targets: BTreeMap<Digest, &Descriptor> =
        records.iter().map(|record| (record.target.digest, &record.target)).collect();
    let contents = stream::iter(targets.into_values())
        .map(|target| async {
            let content = Walk::new(client, Some(&known)).content(target).await?;
            Ok::<_, ContainerdError>((target.digest, Arc::new(content)))
        })
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    Ok(Listing { records, contents, left_out })
}

/// One record with its content; `None`: there is no such record.
pub async fn record(
    client: &Client,
    name: &str,
) -> Result<Option<(ImageRecord, Arc<Content>)>, ContainerdError> {
    let Some(record) = images::get(client, name).await? else { return Ok(None) };
    let content = content(client, &record.target).await?;
    Ok(Some((record, Arc::new(content))))
}

/// Whether the record is there, with the same target. What containerd doesn't answer is taken as no.
pub async fn stands(client: &Client, record: &ImageRecord) -> bool {
    let now = images::get(client, &record.name).await.ok().flatten();
    now.is_some_and(|now| now.target.digest == record.target.digest)
}

/// What a target references now, with the blobs' labels as they are now.
pub async fn content(client: &Client, target: &Descriptor) -> Result<Content, ContainerdError> {
    Walk::new(client, None).content(target).await
}

/// One walk from a target down.
struct Walk<'a> {
    client: &'a Client,
    /// All blobs of the namespace, where they were listed.
    known: Option<&'a HashMap<Digest, BlobInfo>>,
    blobs: Vec<Blob>,
    seen: BTreeSet<Digest>,
}

impl<'a> Walk<'a> {
    fn new(client: &'a Client, known: Option<&'a HashMap<Digest, BlobInfo>>) -> Self {
        Self { client, known, blobs: Vec::new(), seen: BTreeSet::new() }
    }

    async fn content(mut self, target: &Descriptor) -> Result<Content, ContainerdError> {
        let mut ours = None;
        let mut others = Vec::new();
        match self.document(target).await? {
            Some(Document::Index { manifests }) => {
                let (mine, rest) = self.choose(manifests).await?;
                ours = mine;
                others = rest;
            }
            Some(Document::Manifest { .. }) => ours = Some(target.clone()),
            None => {}
        }
        let mut id = None;
        let mut chain = Vec::new();
        if let Some(manifest) = &ours
            && let Some((config_digest, config)) = self.manifest(manifest).await?
        {
            id = Some(config_digest);
            chain = config.chain();
        }
        // Other platforms' blobs are the image's too where they were imported: they go with it.
        for other in others {
            self.manifest(&other).await?;
        }
        let Self { blobs, .. } = self;
        Ok(Content { target: target.clone(), id, manifest: ours, blobs, chain })
    }

    /// This node's manifest of an index, and the others that are present.
    async fn choose(
        &mut self,
        manifests: Vec<Child>,
    ) -> Result<(Option<Descriptor>, Vec<Descriptor>), ContainerdError> {
        let mut ours = None;
        let mut others = Vec::new();
        for Child { descriptor, platform } in manifests {
            if self.info(descriptor.digest).await?.is_none() {
                continue;
            }
            let here = match platform {
                Some(platform) => platform.is_here(),
                None => self.is_here(&descriptor).await?,
            };
            if here && ours.is_none() {
                ours = Some(descriptor);
            } else {
                others.push(descriptor);
            }
        }
        Ok((ours, others))
    }

    /// For an index that names no platforms: what the manifest's config says.
    async fn is_here(&self, manifest: &Descriptor) -> Result<bool, ContainerdError> {
        let Some(Document::Manifest { config, .. }) =
            self.read(manifest.digest).await?.and_then(|b| Document::parse(&b).ok())
        else {
            return Ok(false);
        };
        Ok(self
            .read(config.digest)
            .await?
            .and_then(|bytes| Config::parse(&bytes).ok())
            .is_some_and(|config| config.platform.is_here()))
    }

    /// Notes a manifest, its config and its layers; gives the config if both are readable.
    async fn manifest(&mut self, manifest: &Descriptor) -> Result<Option<(Digest, Config)>, ContainerdError> {
        let Some(Document::Manifest { config, layers }) = self.document(manifest).await? else {
            return Ok(None);
        };
        self.note(&config).await?;
        for layer in &layers {
            self.note(layer).await?;
        }
        let parsed = self.read(config.digest).await?.and_then(|bytes| Config::parse(&bytes).ok());
        Ok(parsed.map(|parsed| (config.digest, parsed)))
    }

    /// Notes a document's blob and reads it; `None`: it is not there, or not understood.
    async fn document(&mut self, descriptor: &Descriptor) -> Result<Option<Document>, ContainerdError> {
        if !self.note(descriptor).await? {
            return Ok(None);
        }
        let Some(bytes) = self.read(descriptor.digest).await? else { return Ok(None) };
        match Document::parse(&bytes) {
            Ok(document) => Ok(Some(document)),
            Err(error) => {
                tracing::debug!(digest = %descriptor.digest, %error, "a target is no manifest or index");
                Ok(None)
            }
        }
    }

    /// Notes a blob if containerd's metadata has it.
    async fn note(&mut self, descriptor: &Descriptor) -> Result<bool, ContainerdError> {
        let Some(info) = self.info(descriptor.digest).await? else { return Ok(false) };
        if self.blobs.len() < BLOBS && self.seen.insert(descriptor.digest) {
            let BlobInfo { digest, size, labels } = info;
            self.blobs.push(Blob { digest, size, media_type: descriptor.media_type.clone(), labels });
        }
        Ok(true)
    }

    async fn info(&self, digest: Digest) -> Result<Option<BlobInfo>, ContainerdError> {
        match self.known {
            Some(known) => Ok(known.get(&digest).cloned()),
            None => content::info(self.client, digest).await,
        }
    }

    /// A document's bytes; `None` too when they are damaged: such an image has no ID, it is no reason to fail.
    async fn read(&self, digest: Digest) -> Result<Option<Vec<u8>>, ContainerdError> {
        match content::read(self.client, digest, DOCUMENT).await {
            Err(error @ (ContainerdError::Mismatch { .. } | ContainerdError::TooLarge { .. })) => {
                tracing::debug!(%digest, %error, "unreadable");
                Ok(None)
            }
            read => read,
        }
    }
}
