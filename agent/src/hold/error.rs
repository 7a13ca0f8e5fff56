//! What can go wrong in a hold.

use std::{io, path::PathBuf};

use crate::containerd::ContainerdError;

/// A hold that could not be taken, checked or dropped.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    #[error(transparent)]
    Containerd(#[from] ContainerdError),
    #[error("{}: can't be looked at", path.display())]
    Stat { path: PathBuf, source: io::Error },
}
