//! Everything of imgwarden's out of a containerd at once, found by its labels alone: no inventory, no memory and no
//! running agent is needed.

use super::{HoldError, OWNER, mark, memory, records};
use crate::{
    containerd::{
        Client, images, leases,
        namespaces::{self, SHADOW},
    },
    inventory::image::Labels,
};

/// What was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// Records of the watched namespace that carried imgwarden's mark.
    pub records: u64,
    pub leases: u64,
    pub shadows: u64,
}

/// Takes imgwarden's pins and marks off the records of the watched namespace, deletes its leases, its shadows and their
/// namespace. Pins of others stay, and so do records that imgwarden created again.
pub async fn drop_everything(client: &Client) -> Result<Dropped, HoldError> {
    let shadow = client.in_namespace(SHADOW)?;
    let mut dropped = Dropped::default();
    for record in images::list(client).await?.records {
        dropped.records +=
            u64::from(records::relabel(client, &record, &mark::unmarking(&record.labels)).await?);
    }
    for record in images::list(&shadow).await?.records.iter().filter(|record| memory::is_own(record)) {
        dropped.shadows += u64::from(images::delete_own(&shadow, &record.name).await?);
    }
    for client in [client, &shadow] {
        for (id, _) in leases::list(client).await?.into_iter().filter(|(_, labels)| is_own(labels)) {
            dropped.leases += u64::from(leases::delete(client, &id, true).await?);
        }
    }
    namespaces::delete_own_if_empty(&shadow).await?;
    Ok(dropped)
}

fn is_own(labels: &Labels) -> bool {
    labels.get(OWNER.0).is_some_and(|owner| owner == OWNER.1)
}
