//! Image records of the watched namespace: which are gone, and putting them back. Never overwrites or deletes one: a
//! name that points elsewhere by now is somebody's decision.

use super::{HoldError, Tools, mark};
use crate::{
    containerd::{
        Client,
        images::{self, MANAGED},
    },
    inventory::image::{ImageRecord, Labels},
};

/// Those that are not there. A name that points to another target is there.
pub async fn missing(tools: &Tools, records: &[ImageRecord]) -> Result<Vec<ImageRecord>, HoldError> {
    let mut missing = Vec::new();
    for record in records {
        if images::get(&tools.client, &record.name).await?.is_none() {
            missing.push(record.clone());
        }
    }
    Ok(missing)
}

/// Those that are there with the same target, as they are now.
pub(super) async fn standing(tools: &Tools, records: &[ImageRecord]) -> Result<Vec<ImageRecord>, HoldError> {
    let mut standing = Vec::new();
    for record in records {
        let now = images::get(&tools.client, &record.name).await?;
        standing.extend(now.filter(|now| now.target.digest == record.target.digest));
    }
    Ok(standing)
}

/// Creates those that are missing, with the labels that others had given them, CRI's managed label, with `pin` the CRI
/// pin, and the mark that says so. Those that are there with the same target are pinned with `pin`; others are left
/// alone. The content is not looked at: hold it first. Gives the names that were created.
pub async fn recreate(tools: &Tools, records: &[ImageRecord], pin: bool) -> Result<Vec<String>, HoldError> {
    let mut created = Vec::new();
    for record in records {
        match images::create(&tools.client, &mark::recreated(record, pin)).await {
            Ok(()) => created.push(record.name.clone()),
            Err(error) if error.is_exists() => {
                if pin {
                    for now in standing(tools, std::slice::from_ref(record)).await? {
                        relabel(&tools.client, &now, &mark::pinning(&now.labels)).await?;
                    }
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(created)
}

/// Writes a label of each record as it is: CRI then loads an image that it had dropped. Gives how many stood.
pub async fn touch(tools: &Tools, records: &[ImageRecord]) -> Result<usize, HoldError> {
    let mut touched = 0;
    for record in standing(tools, records).await? {
        let value = record.labels.get(MANAGED.0).cloned().unwrap_or_default();
        let same = Labels::from([(MANAGED.0.to_owned(), value)]);
        touched += usize::from(write_labels(&tools.client, &record, &same).await?);
    }
    Ok(touched)
}

/// Sets the labels; `false`: nothing to set, or the record has gone meanwhile.
pub(super) async fn relabel(
    client: &Client,
    record: &ImageRecord,
    changes: &Labels,
) -> Result<bool, HoldError> {
    if changes.is_empty() { Ok(false) } else { write_labels(client, record, changes).await }
}

async fn write_labels(client: &Client, record: &ImageRecord, changes: &Labels) -> Result<bool, HoldError> {
    match images::set_labels(client, record, changes).await {
        Ok(_) => Ok(true),
        Err(error) if error.is_not_found() => Ok(false),
        Err(error) => Err(error.into()),
    }
}
