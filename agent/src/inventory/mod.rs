//! What was there before: every image of the namespace, with names, blobs and chain IDs, so that a deletion can be
//! explained and undone.
//!
//! [`read`] asks containerd, [`Inventory`] remembers and never asks; [`relist`] compares the two and refuses a list that
//! can't be true. Nothing here writes to containerd.

pub mod document;
pub mod image;
mod memory;
pub mod orphans;
pub mod read;
pub mod relist;
pub mod resolve;

pub use memory::{Change, Gone, Inventory, Limits};
pub use orphans::Orphaned;
pub use read::{Listing, content, listing, record, stands};
pub use relist::{InventoryError, Relisted};
pub use resolve::Resolution;
