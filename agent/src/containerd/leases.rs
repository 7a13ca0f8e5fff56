//! Leases and their resources: containerd's Leases service. A lease keeps content and snapshots from the GC, not from
//! deletion, and no record.

use containerd_client::services::v1::{
    AddResourceRequest, CreateRequest, DeleteRequest, ListRequest, ListResourcesRequest, Resource as Wire,
    leases_client::LeasesClient,
};

use super::{
    Client, ContainerdError,
    client::{CALL, SYNC, call, stub},
    content,
    error::found,
    snapshots,
};
use crate::{digest::Digest, inventory::image::Labels};

/// What a lease can hold on every containerd.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    Content(Digest),
    /// A snapshot by its key: of an image's layer, the chain ID.
    Snapshot {
        snapshotter: String,
        key: String,
    },
    /// Of a kind that imgwarden never adds.
    Other {
        kind: String,
        id: String,
    },
}

impl Resource {
    fn from_wire(Wire { id, r#type: kind }: Wire) -> Self {
        match (kind.as_str(), kind.strip_prefix("snapshots/"), id.parse()) {
            ("content", _, Ok(digest)) => Self::Content(digest),
            (_, Some(snapshotter), _) => Self::Snapshot { snapshotter: snapshotter.to_owned(), key: id },
            _ => Self::Other { kind, id },
        }
    }

    fn to_wire(&self) -> Wire {
        match self {
            Self::Content(digest) => Wire { id: digest.to_string(), r#type: "content".to_owned() },
            Self::Snapshot { snapshotter, key } => {
                Wire { id: key.clone(), r#type: format!("snapshots/{snapshotter}") }
            }
            Self::Other { kind, id } => Wire { id: id.clone(), r#type: kind.clone() },
        }
    }
}

/// Creates the lease; `false`: it was there (its labels are left alone).
pub async fn create(client: &Client, id: &str, labels: &Labels) -> Result<bool, ContainerdError> {
    let message = CreateRequest { id: id.to_owned(), labels: labels.clone().into_iter().collect() };
    let answer =
        call("Leases/Create", id, CALL, stub!(client, LeasesClient<_>).create(client.request(message))).await;
    match answer {
        Ok(_) => Ok(true),
        Err(error) if error.is_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Every lease of the namespace: id and labels.
pub async fn list(client: &Client) -> Result<Vec<(String, Labels)>, ContainerdError> {
    let request = client.request(ListRequest { filters: Vec::new() });
    let answer =
        call("Leases/List", client.namespace(), CALL, stub!(client, LeasesClient<_>).list(request)).await?;
    Ok(answer
        .into_inner()
        .leases
        .into_iter()
        .map(|lease| (lease.id, lease.labels.into_iter().collect()))
        .collect())
}

/// What the lease names directly; `None`: there is no such lease.
pub async fn resources(client: &Client, id: &str) -> Result<Option<Vec<Resource>>, ContainerdError> {
    let request = client.request(ListResourcesRequest { id: id.to_owned() });
    let answer =
        call("Leases/ListResources", id, CALL, stub!(client, LeasesClient<_>).list_resources(request)).await;
    Ok(found(answer)?
        .map(|answer| answer.into_inner().resources.into_iter().map(Resource::from_wire).collect()))
}

/// Adds the resource, then asks whether it exists: containerd takes any digest. `false`: containerd has no such thing.
pub async fn add(client: &Client, id: &str, resource: &Resource) -> Result<bool, ContainerdError> {
    let request = AddResourceRequest { id: id.to_owned(), resource: Some(resource.to_wire()) };
    call(
        "Leases/AddResource",
        id,
        CALL,
        stub!(client, LeasesClient<_>).add_resource(client.request(request)),
    )
    .await?;
    match resource {
        Resource::Content(digest) => Ok(content::info(client, *digest).await?.is_some()),
        Resource::Snapshot { snapshotter, key } => {
            Ok(snapshots::stat(client, snapshotter, key).await?.is_some())
        }
        Resource::Other { .. } => Ok(true),
    }
}

/// Deletes the lease; with `sync` waits for the GC. `false`: it was not there.
pub async fn delete(client: &Client, id: &str, sync: bool) -> Result<bool, ContainerdError> {
    let request = client.request(DeleteRequest { id: id.to_owned(), sync });
    let answer = call("Leases/Delete", id, SYNC, stub!(client, LeasesClient<_>).delete(request)).await;
    Ok(found(answer)?.is_some())
}
