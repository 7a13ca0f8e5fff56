//! Holds: the reasons why a protected image survives. Takes an image as the inventory knows it, and makes containerd keep
//! it (pin, lease, shadow), says whether it does, and takes away again exactly what was added.
//!
//! [`records`] and [`blobs`] put back what went in spite of it, [`verify`] says whether the image is whole. Everything is
//! idempotent: killed at any instruction and called again, it ends in the same state, since nothing is created that no
//! lease, record or mark of imgwarden's own names. Nothing here deletes content, snapshots or records outside imgwarden's
//! own namespace.

pub mod blobs;
mod error;
pub mod lease;
mod mark;
mod memory;
mod pin;
pub mod records;
mod release;
pub mod shadow;
mod verify;

pub use error::HoldError;
pub use release::{Dropped, drop_everything};
pub use verify::{Verified, verify};

pub use crate::config::Hold as Kind;
use crate::{
    containerd::{Client, Cri, Store},
    inventory::image::{Image, Labels},
};

/// The label on everything of imgwarden's own: leases and its namespace.
pub const OWNER: (&str, &str) = ("io.imgwarden.owner", "imgwarden");

/// What a hold works with.
#[derive(Debug, Clone)]
pub struct Tools {
    /// The watched namespace.
    pub client: Client,
    pub cri: Cri,
    pub store: Store,
    /// The snapshotter that CRI unpacks images with.
    pub snapshotter: String,
}

/// Whether a hold holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    Yes,
    No {
        why: String,
    },
    /// It is set, and containerd makes nothing of it.
    Ineffective {
        why: String,
    },
}

/// What taking a hold did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taken {
    /// Whether anything had to be done.
    pub changed: bool,
    /// The bytes of the blobs that it keeps; zero for a pin, which keeps none.
    pub bytes: u64,
    pub state: State,
}

/// Takes the hold, or what is missing of it.
pub async fn take(kind: Kind, tools: &Tools, image: &Image) -> Result<Taken, HoldError> {
    match kind {
        Kind::Pin => pin::take(tools, image).await,
        Kind::Lease => lease::take(tools, image).await,
        Kind::Shadow => shadow::take(tools, image).await,
        Kind::Link | Kind::Archive => Ok(Taken { changed: false, bytes: 0, state: not_containerds(kind) }),
    }
}

/// Whether the hold stands. Changes nothing.
pub async fn check(kind: Kind, tools: &Tools, image: &Image) -> Result<State, HoldError> {
    match kind {
        Kind::Pin => pin::check(tools, image).await,
        Kind::Lease => lease::check(tools, image).await,
        Kind::Shadow => shadow::check(tools, image).await,
        Kind::Link | Kind::Archive => Ok(not_containerds(kind)),
    }
}

/// Takes away exactly what imgwarden added; `false`: there was nothing.
pub async fn drop(kind: Kind, tools: &Tools, image: &Image) -> Result<bool, HoldError> {
    match kind {
        Kind::Pin => pin::drop(tools, image).await,
        Kind::Lease => lease::drop(tools, image).await,
        Kind::Shadow => shadow::drop(tools, image).await,
        Kind::Link | Kind::Archive => Ok(false),
    }
}

fn not_containerds(kind: Kind) -> State {
    State::No { why: format!("a {kind} hold is not taken through containerd") }
}

fn owner_labels() -> Labels {
    Labels::from([(OWNER.0.to_owned(), OWNER.1.to_owned())])
}

/// `Yes` if all are kept, else how many are not.
fn all_kept(kept: usize, wanted: usize) -> State {
    match wanted {
        0 => State::No { why: "none of the image's blobs is known".to_owned() },
        _ if kept == wanted => State::Yes,
        _ => State::No { why: format!("{} of {wanted} blobs are not there to be held", wanted - kept) },
    }
}
