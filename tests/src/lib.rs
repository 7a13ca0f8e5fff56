//! What the end-to-end tests and the demo share: a real containerd of their own, real images, the real agent.
//!
//! # Layout
//! [`scratch`] gives a test its private directories and leaves nothing behind; [`process`] starts what it must end.
//! On these stand [`containerd`] (with [`cri`] and [`state`]), [`image`] (tarballs), [`agent`], [`client`] (callers on a
//! connection of their own) and [`runc`] (a container without a network). [`node`] puts them together, [`golden`]
//! compares events.
//!
//! Everything here blocks and is driven from plain `#[test]` functions, so that a test reads as a scenario from top to
//! bottom; each part brings the small runtime that its gRPC needs. Whatever goes wrong panics: in a test that is the
//! report.

#![expect(clippy::expect_used, clippy::panic, reason = "the harness of a test reports by panicking")]

pub mod agent;
pub mod client;
pub mod containerd;
pub mod cri;
pub mod golden;
pub mod image;
pub mod node;
pub mod process;
pub mod runc;
pub mod scratch;
pub mod state;
