//! One agent at a time: a lock on the state directory.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use anyhow::{Context as _, bail};
use rustix::fs::{FlockOperation, flock};

/// Makes the directory (0700) and locks it; the lock goes with the process, however it ends.
pub(super) fn take(state_dir: &Path) -> anyhow::Result<File> {
    let named = || format!("run: state_dir {}", state_dir.display());
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir).with_context(named)?;
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(state_dir.join("lock"))
        .with_context(named)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("run: {}: another agent is running with this state_dir", state_dir.display())
        }
        Err(error) => Err(error).with_context(named),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_agent_is_refused_until_the_first_has_gone() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let first = take(&state).unwrap();
        let refused = take(&state).unwrap_err().to_string();
        assert!(refused.ends_with("another agent is running with this state_dir"), "{refused}");
        drop(first);
        take(&state).unwrap();
    }
}
