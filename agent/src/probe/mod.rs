//! What the kernel saw.
pub mod record;
