//! Blobs: what is wrong with them on disk and in containerd's metadata, the metadata back without bytes, and the labels
//! by which containerd's GC finds one from another.

use std::{collections::BTreeMap, io};

use super::{HoldError, Tools};
use crate::{
    containerd::{
        Client, ContainerdError,
        content::{self, DOCUMENT, Written},
        namespaces::SHADOW,
    },
    digest::Digest,
    inventory::{
        document::{Document, GC_CONTENT, GC_SNAPSHOT},
        image::{Blob, Content, Labels},
    },
};

/// What is wrong with a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// There is no file, whatever the metadata says.
    #[error("its file is gone")]
    Missing,
    /// The file's size in bytes is not the blob's.
    #[error("its file has {found} bytes")]
    WrongSize { found: u64 },
    /// The file is there, and the namespace doesn't know it: the next GC may take it.
    #[error("containerd's metadata doesn't know it")]
    NoMetadata,
}

/// Every blob that is not as it should be, by stat and size as containerd itself looks at it. The bytes are not read.
pub async fn faults(tools: &Tools, content: &Content) -> Result<Vec<(Blob, Fault)>, HoldError> {
    let mut faults = Vec::new();
    for blob in &content.blobs {
        if let Some(fault) = fault(tools, blob).await? {
            faults.push((blob.clone(), fault));
        }
    }
    Ok(faults)
}

/// What is wrong with this one; `None`: nothing.
pub async fn fault(tools: &Tools, blob: &Blob) -> Result<Option<Fault>, HoldError> {
    Ok(match on_disk(tools, blob).await? {
        Some(fault) => Some(fault),
        None => match content::info(&tools.client, blob.digest).await? {
            Some(_) => None,
            None => Some(Fault::NoMetadata),
        },
    })
}

pub(super) async fn on_disk(tools: &Tools, blob: &Blob) -> Result<Option<Fault>, HoldError> {
    let path = tools.store.blob(blob.digest);
    match tokio::fs::symlink_metadata(&path).await {
        Ok(found) if !found.is_file() => Ok(Some(Fault::Missing)),
        Ok(found) if found.len() != blob.size => Ok(Some(Fault::WrongSize { found: found.len() })),
        Ok(_) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Some(Fault::Missing))
        }
        Err(source) => Err(HoldError::Stat { path, source }),
    }
}

/// Makes a file that containerd has known to the watched namespace again: no bytes move. Under a lease if the tools'
/// client has one ([`super::lease::tools_under`]): else nothing keeps the blob until something refers to it.
pub async fn adopt(tools: &Tools, blob: &Blob, labels: &Labels) -> Result<Written, HoldError> {
    Ok(content::adopt(&tools.client, blob.digest, blob.size, labels).await?)
}

/// The bytes of the content's indexes and manifests that can be read, from the watched namespace or imgwarden's own.
pub async fn documents(tools: &Tools, content: &Content) -> Result<BTreeMap<Digest, Vec<u8>>, HoldError> {
    let shadow = tools.client.in_namespace(SHADOW)?;
    let mut documents = BTreeMap::new();
    for blob in content.blobs.iter().filter(|blob| is_document(content, blob)) {
        for client in [&tools.client, &shadow] {
            if let Some(bytes) = readable(client, blob.digest).await? {
                documents.insert(blob.digest, bytes);
                break;
            }
        }
    }
    Ok(documents)
}

/// The blob with the right hash; `None`: not there, or damaged.
pub(super) async fn readable(client: &Client, digest: Digest) -> Result<Option<Vec<u8>>, ContainerdError> {
    match content::read(client, digest, DOCUMENT).await {
        Err(ContainerdError::Mismatch { .. } | ContainerdError::TooLarge { .. }) => Ok(None),
        read => read,
    }
}

fn is_document(content: &Content, blob: &Blob) -> bool {
    let named = [Some(&content.target), content.manifest.as_ref()];
    named.into_iter().flatten().any(|descriptor| descriptor.digest == blob.digest)
        || blob.media_type.contains("manifest")
        || blob.media_type.contains("image.index")
}

/// The labels that each blob must carry so that containerd's GC reaches the whole content from its target: the blob's
/// own, and references to children that these lack. `top` is the snapshotter and the top layer's chain ID, if the
/// snapshot exists.
pub fn gc_labels(
    content: &Content,
    documents: &BTreeMap<Digest, Vec<u8>>,
    top: Option<(&str, Digest)>,
) -> BTreeMap<Digest, Labels> {
    let present = |digest: &str| content.blobs.iter().any(|blob| blob.digest.to_string() == digest);
    content
        .blobs
        .iter()
        .map(|blob| {
            let mut labels = blob.labels.clone();
            let children = documents
                .get(&blob.digest)
                .and_then(|bytes| Document::parse(bytes).ok())
                .map(|document| document.gc_labels())
                .unwrap_or_default();
            for (key, child) in children {
                let refers =
                    |(key, value): (&String, &String)| key.starts_with(GC_CONTENT) && *value == child;
                if present(&child) && !blob.labels.iter().any(refers) {
                    labels.insert(key, child);
                }
            }
            if let Some((snapshotter, chain_id)) = top.filter(|_| content.id == Some(blob.digest)) {
                labels.insert(format!("{GC_SNAPSHOT}{snapshotter}"), chain_id.to_string());
            }
            (blob.digest, labels)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::image::Descriptor;

    fn blob(digest: Digest, labels: Labels) -> Blob {
        Blob { digest, size: 1, media_type: String::new(), labels }
    }

    /// A manifest with a config and two layers, the second of which is not on this node.
    fn content(manifest_labels: Labels) -> (Content, BTreeMap<Digest, Vec<u8>>) {
        let [config, here, elsewhere] =
            ["config", "here", "elsewhere"].map(|text| Digest::of(text.as_bytes()));
        let bytes = format!(
            r#"{{"config":{{"digest":"{config}"}},"layers":[{{"digest":"{elsewhere}"}},{{"digest":"{here}"}}]}}"#
        )
        .into_bytes();
        let target = Descriptor { media_type: String::new(), digest: Digest::of(&bytes), size: 1 };
        let content = Content {
            id: Some(config),
            manifest: Some(target.clone()),
            blobs: vec![
                blob(target.digest, manifest_labels),
                blob(config, Labels::new()),
                blob(here, Labels::new()),
            ],
            chain: vec![Digest::of(b"chain")],
            target,
        };
        let documents = BTreeMap::from([(content.target.digest, bytes)]);
        (content, documents)
    }

    #[test]
    fn stripped_references_are_made_again_for_what_is_there() {
        let (content, documents) = content(Labels::from([("mine".into(), "x".into())]));
        let config = Digest::of(b"config");
        let labels = gc_labels(&content, &documents, Some(("overlayfs", content.chain[0])));
        assert_eq!(
            labels[&content.target.digest],
            Labels::from([
                ("mine".into(), "x".into()),
                ("containerd.io/gc.ref.content.config".into(), config.to_string()),
                ("containerd.io/gc.ref.content.l.1".into(), Digest::of(b"here").to_string()),
            ])
        );
        assert_eq!(
            labels[&config],
            Labels::from([("containerd.io/gc.ref.snapshot.overlayfs".into(), content.chain[0].to_string())])
        );
        assert_eq!(gc_labels(&content, &documents, None)[&config], Labels::new());
    }

    #[test]
    fn a_child_that_is_referred_to_by_another_key_needs_no_second() {
        let old = Labels::from([
            ("containerd.io/gc.ref.content.0".into(), Digest::of(b"config").to_string()),
            ("containerd.io/gc.ref.content.1".into(), Digest::of(b"here").to_string()),
        ]);
        let (content, documents) = content(old.clone());
        assert_eq!(gc_labels(&content, &documents, None)[&content.target.digest], old);
    }

    #[test]
    fn without_documents_the_labels_stay() {
        let (content, _) = content(Labels::new());
        assert!(gc_labels(&content, &BTreeMap::new(), None).values().all(Labels::is_empty));
    }
}
