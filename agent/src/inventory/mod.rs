//! What was there before.
pub mod image;
