//! One image, put right: what is missing comes back by the cheapest means, is held, and is verified.
//!
//! Level-triggered and idempotent: it looks at what is there, whatever it was started for, so that a repair which was
//! killed half way is simply done again. Content first, under a lease; records last, and only when all content that
//! they need was verified.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::copy::{self, CopyError, Shelf};
use crate::{
    config::{Hold, HoldSet},
    containerd::{ContainerdError, content, leases},
    digest::Digest,
    hold::{self, HoldError, State, Taken, Verified, blobs, records},
    inventory::image::{Blob, Image, Labels},
    probe::record::Boottime,
};

/// What a repair works with.
#[derive(Debug, Clone)]
pub struct Tools {
    pub hold: hold::Tools,
    pub shelf: Shelf,
}

/// One image to be put right.
#[derive(Debug, Clone)]
pub struct Job {
    /// As it should be: all names with their labels, all blobs.
    pub image: Image,
    /// Whether what is missing may be put back; otherwise only what is there is held.
    pub repair: bool,
    /// Whether tarballs may be read.
    pub copies: bool,
    pub holds: HoldSet,
    /// What an earlier job put back and could not verify.
    pub unverified: Option<Put>,
    /// Nobody wants the image any more: its holds go instead.
    pub let_go: bool,
}

/// How it went.
#[derive(Debug)]
pub struct Done {
    pub target: Digest,
    /// What each hold is now. A hold that could not be looked at is missing.
    pub holds: Vec<(Hold, Taken)>,
    /// Whether it was allowed to put things back.
    pub repair: bool,
    /// Blobs that are not as they should be and were left so, with their sizes; names of the image stand.
    pub faults: BTreeMap<Digest, u64>,
    /// What was put back and could not be verified.
    pub unverified: Option<Put>,
    /// Whether the holds were to go.
    pub let_go: bool,
    /// Holds that were let go.
    pub dropped: Vec<Hold>,
    /// Why a hold could not be looked at, or let go; the repair may have gone well all the same.
    pub unheld: Option<HoldError>,
    pub result: Result<Option<Repaired>, RepairError>,
    pub took: Duration,
    /// When it was over.
    pub at: Boottime,
}

/// Something was missing and is back.
#[derive(Debug, Clone)]
pub struct Repaired {
    pub method: Method,
    pub bytes_moved: u64,
    pub source: Option<PathBuf>,
    /// Names that were created.
    pub names: Vec<String>,
    pub verified: Verified,
}

/// The dearest step that was needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Method {
    Records,
    Shadow,
    Archive,
}

/// Why an image is not back.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    #[error(transparent)]
    Hold(#[from] HoldError),
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
    #[error(transparent)]
    Copy(#[from] CopyError),
    #[error("{path}: {source}")]
    Unlink { path: PathBuf, source: std::io::Error },
    /// Blobs are gone and no tarball has them.
    #[error("{count} blobs are gone ({first} is the first), and no archive has them{}", listed(unreadable))]
    NoArchive { first: Digest, count: usize, unreadable: Vec<String> },
    /// Tarballs were read too often lately.
    #[error(
        "{count} blobs are gone, and archives were read for this image as often as `repair.copies` allows"
    )]
    NoCopies { count: usize },
    #[error("it is back, but not whole: {}", problems.join("; "))]
    NotWhole { problems: Vec<String> },
}

impl RepairError {
    /// The tarball that was tried.
    pub fn source_path(&self) -> Option<PathBuf> {
        match self {
            Self::Copy(error) => error.path(),
            _ => None,
        }
    }

    /// Whether containerd could not be reached: nothing is wrong with the image.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Containerd(error) if error.is_unreachable())
            || matches!(self, Self::Hold(HoldError::Containerd(error)) if error.is_unreachable())
    }
}

/// Puts one image right.
pub(super) async fn settle(tools: &Tools, job: Job) -> Done {
    let started = Instant::now();
    let mut done = Done {
        target: job.image.content.target.digest,
        holds: Vec::new(),
        repair: job.repair,
        faults: BTreeMap::new(),
        unverified: job.unverified.clone(),
        let_go: job.let_go,
        dropped: Vec::new(),
        unheld: None,
        result: Ok(None),
        took: Duration::ZERO,
        at: Boottime::default(),
    };
    if job.let_go {
        let_go(tools, &job, &mut done).await;
    } else {
        match put_back(tools, &job, &mut done).await {
            Ok(()) => {
                hold(tools, &job, &mut done).await;
                if done.unheld.is_none() {
                    done.unheld = leftovers(tools, &job).await.err().map(HoldError::from);
                }
                if let Some(put) = done.unverified.take() {
                    done.result = finish(tools, &job, &put).await.map(Some);
                    if done.result.is_err() {
                        done.unverified = Some(put);
                    }
                }
            }
            Err(error) => done.result = Err(error),
        }
    }
    Done { took: started.elapsed(), at: crate::probe::now(), ..done }
}

/// Takes the holds. Leases before everything that creates; the pin last, since it is only advice.
async fn hold(tools: &Tools, job: &Job, done: &mut Done) {
    for kind in [Hold::Lease, Hold::Shadow, Hold::Pin] {
        if !job.holds.contains(kind) {
            continue;
        }
        match hold::take(kind, &tools.hold, &job.image).await {
            Ok(taken) => done.holds.push((kind, taken)),
            Err(error) => done.unheld = Some(error),
        }
    }
}

/// What an agent left that was killed in the middle of a repair: by now the image's own lease holds the content.
async fn leftovers(tools: &Tools, job: &Job) -> Result<(), ContainerdError> {
    let lease = repair_lease(job.image.content.target.digest);
    if leases::resources(&tools.hold.client, &lease).await?.is_some() {
        leases::delete(&tools.hold.client, &lease, false).await?;
    }
    Ok(())
}

/// Lets the holds go: the pin first, so that the kubelet may ask; the memory last, so that a killed agent finds what
/// is left.
async fn let_go(tools: &Tools, job: &Job, done: &mut Done) {
    for kind in [Hold::Pin, Hold::Lease, Hold::Shadow] {
        match hold::drop(kind, &tools.hold, &job.image).await {
            Ok(true) => done.dropped.push(kind),
            Ok(false) => {}
            Err(error) => {
                done.unheld = Some(error);
                return;
            }
        }
    }
}

/// What was put back.
#[derive(Debug, Clone)]
pub struct Put {
    method: Method,
    bytes_moved: u64,
    source: Option<PathBuf>,
    names: Vec<String>,
}

async fn put_back(tools: &Tools, job: &Job, done: &mut Done) -> Result<(), RepairError> {
    let content = &job.image.content;
    let faults = blobs::faults(&tools.hold, content).await?;
    let missing = records::missing(&tools.hold, &job.image.records).await?;
    if !job.repair {
        if missing.len() < job.image.records.len() {
            done.faults = faults.into_iter().map(|(blob, _)| (blob.digest, blob.size)).collect();
        }
        return Ok(());
    }
    if faults.is_empty() && missing.is_empty() {
        return Ok(());
    }
    let lease = repair_lease(content.target.digest);
    let mut put = Put { method: Method::Records, bytes_moved: 0, source: None, names: Vec::new() };
    if !faults.is_empty() {
        leases::create(&tools.hold.client, &lease, &owner()).await?;
        if let Err(error) = put_content_back(tools, job, &lease, faults, &mut put).await {
            leases::delete(&tools.hold.client, &lease, false).await?;
            return Err(error);
        }
        put.names = records::recreate(&tools.hold, &missing, job.holds.contains(Hold::Pin)).await?;
        // CRI forgets an image whose manifest it could not read: it looks again when a record is touched.
        records::touch(&tools.hold, &job.image.records).await?;
        hold::take(Hold::Lease, &tools.hold, &job.image).await?;
        leases::delete(&tools.hold.client, &lease, false).await?;
    } else {
        put.names = records::recreate(&tools.hold, &missing, job.holds.contains(Hold::Pin)).await?;
    }
    done.unverified = Some(put);
    Ok(())
}

/// The lease under which content is put back.
fn repair_lease(target: Digest) -> String {
    let mut hex = target.to_hex();
    hex.truncate(16);
    format!("imgwarden-repair-{hex}")
}

fn owner() -> Labels {
    Labels::from([(hold::OWNER.0.to_owned(), hold::OWNER.1.to_owned())])
}

async fn put_content_back(
    tools: &Tools,
    job: &Job,
    lease: &str,
    faults: Vec<(Blob, blobs::Fault)>,
    put: &mut Put,
) -> Result<(), RepairError> {
    let leased = tools.hold.client.under_lease(lease)?;
    let (unknown, gone): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|(_, fault)| matches!(fault, blobs::Fault::NoMetadata));
    for (blob, fault) in &gone {
        if let blobs::Fault::WrongSize { .. } = fault {
            // containerd never overwrites a file: what is wrong has to go first.
            let path = tools.hold.store.blob(blob.digest);
            std::fs::remove_file(&path).map_err(|source| RepairError::Unlink { path, source })?;
        }
    }
    if !gone.is_empty() {
        let wanted: Vec<Blob> = gone.into_iter().map(|(blob, _)| blob).collect();
        let first = wanted.first().map_or(job.image.content.target.digest, |blob| blob.digest);
        tools.shelf.rescan().await;
        let Some(found) = tools.shelf.find(job.image.content.id, &wanted) else {
            let unreadable = tools.shelf.unreadable();
            return Err(RepairError::NoArchive { first, count: wanted.len(), unreadable });
        };
        if !job.copies {
            return Err(RepairError::NoCopies { count: wanted.len() });
        }
        put.method = Method::Archive;
        put.source = Some(found.path.clone());
        put.bytes_moved = copy::copy(&leased, found, wanted).await?;
    }
    for (blob, _) in unknown {
        content::adopt(&leased, blob.digest, blob.size, &blob.labels).await?;
        put.method = put.method.max(Method::Shadow);
    }
    Ok(())
}

async fn finish(tools: &Tools, job: &Job, put: &Put) -> Result<Repaired, RepairError> {
    let verified = hold::verify(&tools.hold, &job.image).await?;
    if !verified.whole() {
        return Err(RepairError::NotWhole { problems: verified.problems });
    }
    let Put { method, bytes_moved, source, names } = put.clone();
    Ok(Repaired { method, bytes_moved, source, names, verified })
}

/// Whether a hold stands.
pub(super) fn stands(taken: &Taken) -> bool {
    matches!(taken.state, State::Yes)
}

fn listed(unreadable: &[String]) -> String {
    if unreadable.is_empty() { String::new() } else { format!("; unusable: {}", unreadable.join("; ")) }
}
