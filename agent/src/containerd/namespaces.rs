//! Namespaces: containerd's Namespaces service.

use containerd_client::services::v1::{
    CreateNamespaceRequest, DeleteNamespaceRequest, ListNamespacesRequest, Namespace,
    namespaces_client::NamespacesClient,
};

use super::{
    Client, ContainerdError,
    client::{CALL, call, stub},
    error::found,
};
use crate::inventory::image::Labels;

/// The namespace that the shadow hold keeps its records in.
pub const SHADOW: &str = "imgwarden";

pub async fn list(client: &Client) -> Result<Vec<(String, Labels)>, ContainerdError> {
    let request = client.request(ListNamespacesRequest { filter: String::new() });
    let answer = call("Namespaces/List", "", CALL, stub!(client, NamespacesClient<_>).list(request)).await?;
    Ok(answer
        .into_inner()
        .namespaces
        .into_iter()
        .map(|Namespace { name, labels }| (name, labels.into_iter().collect()))
        .collect())
}

/// Creates the namespace; `false`: it was there.
pub async fn create(client: &Client, name: &str, labels: &Labels) -> Result<bool, ContainerdError> {
    let namespace = Namespace { name: name.to_owned(), labels: labels.clone().into_iter().collect() };
    let request = client.request(CreateNamespaceRequest { namespace: Some(namespace) });
    match call("Namespaces/Create", name, CALL, stub!(client, NamespacesClient<_>).create(request)).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_exists() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Deletes imgwarden's own namespace if it is empty; `false`: it was not there, or not empty.
pub async fn delete_own_if_empty(client: &Client) -> Result<bool, ContainerdError> {
    let request = client.request(DeleteNamespaceRequest { name: SHADOW.to_owned() });
    let answer =
        call("Namespaces/Delete", SHADOW, CALL, stub!(client, NamespacesClient<_>).delete(request)).await;
    match found(answer) {
        Ok(answer) => Ok(answer.is_some()),
        Err(ContainerdError::Precondition { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
