//! Everything that is said to containerd and CRI, over its unix socket.
//!
//! [`client`] opens the channel and names errors; one file a service; [`restore`] puts records and metadata back. Every
//! call has a time limit, every answer a size limit. Nothing here sends an image record without its target, deletes an
//! image record outside imgwarden's own namespace, or deletes content.

pub mod client;
pub mod content;
pub mod cri;
pub mod error;
pub mod events;
pub mod images;
pub mod introspect;
pub mod leases;
pub mod namespaces;

pub mod snapshots;
pub mod store;

pub use client::Client;
pub use cri::Cri;
pub use error::ContainerdError;
pub use store::Store;
