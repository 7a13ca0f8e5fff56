//! imgwarden: says who deleted a node's image, and why, and makes the deletion harmless.
//!
//! # Layout
//! Data flows one way: [`probe`] (kernel records) → [`wire`] (requests) → [`incident`] (who, what, why) →
//! [`keeper`] (what is done about it, through [`hold`]) → [`audit`] (the journal and its sinks). Beside the stream stand
//! [`inventory`] (what was there before), [`archive`] (what the tarballs hold) and [`containerd`] (everything that is
//! said to containerd and CRI). [`cli`] starts it; [`config`] says what it should do; [`serve`] lets a person ask the
//! running agent. [`digest`] and [`name`] are the two words that all of them share.

pub mod archive;
pub mod audit;
pub mod cli;
pub mod config;
pub mod containerd;
pub mod digest;
pub mod hold;
pub mod incident;
pub mod inventory;
pub mod keeper;
pub mod name;
pub mod probe;
pub mod serve;
pub mod wire;
