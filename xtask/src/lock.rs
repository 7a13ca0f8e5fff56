//! One test run or demo of a checkout at a time: they share the built agent and count what is left over.

use std::{
    fs::{self, File, TryLockError},
    io::{Read as _, Write as _},
};

use anyhow::{Context as _, Result};

use crate::paths;

/// Held until it is dropped, or the process ends.
#[derive(Debug)]
pub(crate) struct Lock {
    _file: File,
}

/// Takes the lock; waits for another run of this checkout, and says so.
pub(crate) fn take() -> Result<Lock> {
    let target = paths::target()?;
    fs::create_dir_all(&target).with_context(|| format!("creating {}", target.display()))?;
    let path = target.join("xtask-test.lock");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)
        .with_context(|| format!("opening {}", path.display()))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let _ = file.read_to_string(&mut pid);
            println!("waiting for another test run of this checkout (pid {})", pid.trim());
            file.lock().with_context(|| format!("locking {}", path.display()))?;
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("locking {}", path.display()));
        }
    }
    file.set_len(0)
        .and_then(|()| File::create(&path))
        .and_then(|mut named| named.write_all(std::process::id().to_string().as_bytes()))
        .with_context(|| format!("writing {}", path.display()))?;
    Ok(Lock { _file: file })
}
