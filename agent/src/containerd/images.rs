//! Image records: containerd's Images service.
//!
//! Every function that writes takes a whole [`ImageRecord`]: containerd ≥ 1.7 dies of a Create or Update whose image has
//! no target (services/images/helpers.go: nil dereference), so a record without one can't be expressed. Deleting is
//! possible in imgwarden's own namespace only.

use std::time::Duration;

use containerd_client::{
    services::v1::{
        CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, ListImagesRequest,
        UpdateImageRequest, images_client::ImagesClient,
    },
    types,
};
use prost_types::FieldMask;

use super::{
    Client, ContainerdError,
    client::{CALL, SYNC, call, stub},
    error::found,
    namespaces::SHADOW,
};
use crate::inventory::image::{Descriptor, ImageRecord, Labels};

/// The CRI label of an image that CRI manages.
pub const MANAGED: (&str, &str) = ("io.cri-containerd.image", "managed");
/// The CRI label of an image that the kubelet's GC should not ask for.
pub const PINNED: (&str, &str) = ("io.cri-containerd.pinned", "pinned");

/// A list answer takes longer than a single one.
const LIST: Duration = Duration::from_secs(60);

/// Every record of the namespace. Records whose target can't be understood are left out and counted.
pub async fn list(client: &Client) -> Result<Listed, ContainerdError> {
    matching(client, Vec::new()).await
}

/// The records that point to `target`.
pub async fn list_target(client: &Client, target: &Descriptor) -> Result<Vec<ImageRecord>, ContainerdError> {
    Ok(matching(client, vec![format!("target.digest==\"{}\"", target.digest)]).await?.records)
}

/// What a list gave.
#[derive(Debug, Clone, Default)]
pub struct Listed {
    pub records: Vec<ImageRecord>,
    /// Records whose target has no sha256 digest.
    pub left_out: usize,
}

async fn matching(client: &Client, filters: Vec<String>) -> Result<Listed, ContainerdError> {
    let request = client.request(ListImagesRequest { filters });
    let answer = call("Images/List", client.namespace(), LIST, stub!(client, ImagesClient<_>).list(request))
        .await?
        .into_inner();
    let total = answer.images.len();
    let records: Vec<_> =
        answer.images.into_iter().filter_map(|image| record("Images/List", image).ok()).collect();
    Ok(Listed { left_out: total - records.len(), records })
}

pub async fn get(client: &Client, name: &str) -> Result<Option<ImageRecord>, ContainerdError> {
    const METHOD: &str = "Images/Get";
    let request = client.request(GetImageRequest { name: name.to_owned() });
    let answer = found(call(METHOD, name, CALL, stub!(client, ImagesClient<_>).get(request)).await)?;
    match answer {
        Some(answer) => answered(METHOD, name, answer.into_inner().image).map(Some),
        None => Ok(None),
    }
}

/// Creates the record as it is. The content is not looked at, neither here nor by containerd.
pub async fn create(client: &Client, record: &ImageRecord) -> Result<(), ContainerdError> {
    let request = CreateImageRequest { image: Some(image(record)), source_date_epoch: None };
    call("Images/Create", &record.name, CALL, stub!(client, ImagesClient<_>).create(client.request(request)))
        .await
        .map(drop)
}

/// Sets `changes` on the record's labels and leaves all others alone; an empty value takes a label away. `record` says
/// which name, and its target, which the mask keeps containerd from writing.
pub async fn set_labels(
    client: &Client,
    record: &ImageRecord,
    changes: &Labels,
) -> Result<ImageRecord, ContainerdError> {
    let paths = changes.keys().map(|key| format!("labels.{key}")).collect();
    let changed = ImageRecord { labels: changes.clone(), ..record.clone() };
    update(client, &changed, paths).await
}

/// Replaces the record's labels and target in one transaction: imgwarden's own records only.
pub async fn replace_own(client: &Client, record: &ImageRecord) -> Result<ImageRecord, ContainerdError> {
    own(client, "Images/Update", &record.name)?;
    update(client, record, vec!["target".to_owned(), "labels".to_owned()]).await
}

async fn update(
    client: &Client,
    record: &ImageRecord,
    paths: Vec<String>,
) -> Result<ImageRecord, ContainerdError> {
    const METHOD: &str = "Images/Update";
    if paths.is_empty() {
        // An empty mask would replace the whole record.
        return Ok(record.clone());
    }
    let request = UpdateImageRequest {
        image: Some(image(record)),
        update_mask: Some(FieldMask { paths }),
        source_date_epoch: None,
    };
    let answer =
        call(METHOD, &record.name, CALL, stub!(client, ImagesClient<_>).update(client.request(request)))
            .await?;
    answered(METHOD, &record.name, answer.into_inner().image)
}

/// Deletes a record of imgwarden's own namespace and waits for the GC; `false`: it was not there.
pub async fn delete_own(client: &Client, name: &str) -> Result<bool, ContainerdError> {
    const METHOD: &str = "Images/Delete";
    own(client, METHOD, name)?;
    let request = client.request(DeleteImageRequest { name: name.to_owned(), sync: true, target: None });
    let answer = call(METHOD, name, SYNC, stub!(client, ImagesClient<_>).delete(request)).await;
    Ok(found(answer)?.is_some())
}

fn own(client: &Client, method: &'static str, name: &str) -> Result<(), ContainerdError> {
    if client.namespace() == SHADOW {
        return Ok(());
    }
    Err(ContainerdError::Precondition {
        method,
        object: name.to_owned(),
        why: format!("imgwarden does this in namespace {SHADOW} only, not in {}", client.namespace()),
    })
}

fn image(record: &ImageRecord) -> Image {
    let ImageRecord { name, target, labels } = record;
    let Descriptor { media_type, digest, size } = target;
    Image {
        name: name.clone(),
        labels: labels.clone().into_iter().collect(),
        target: Some(types::Descriptor {
            media_type: media_type.clone(),
            digest: digest.to_string(),
            // A size of zero is refused by containerd, one beyond i64 can't be sent.
            size: i64::try_from(*size).unwrap_or(i64::MAX),
            annotations: Default::default(),
        }),
        created_at: None,
        updated_at: None,
    }
}

fn answered(method: &'static str, name: &str, image: Option<Image>) -> Result<ImageRecord, ContainerdError> {
    match image {
        Some(image) => record(method, image),
        None => Err(ContainerdError::Answer { method, object: name.to_owned(), what: "no image" }),
    }
}

fn record(method: &'static str, image: Image) -> Result<ImageRecord, ContainerdError> {
    let Image { name, labels, target, .. } = image;
    let Some(target) = target else {
        return Err(ContainerdError::Answer { method, object: name, what: "no target" });
    };
    let digest = match target.digest.parse() {
        Ok(digest) => digest,
        Err(source) => return Err(ContainerdError::AnswerDigest { method, object: name, source }),
    };
    Ok(ImageRecord {
        name,
        target: Descriptor {
            media_type: target.media_type,
            digest,
            size: u64::try_from(target.size).unwrap_or_default(),
        },
        labels: labels.into_iter().collect(),
    })
}
