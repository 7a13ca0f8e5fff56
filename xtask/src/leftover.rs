//! What test programs that have ended left behind: processes, mounts, directories.
//!
//! A test's directories carry the pid of its program. Whatever names such a directory is left over once that program is
//! gone; what belongs to a running program (another checkout's tests) is never touched.

use std::{
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use rustix::{
    mount::{UnmountFlags, unmount},
    process::{Pid, Signal, kill_process},
};

use crate::paths;

/// Where all tests of the machine have their sockets.
const RUN: &str = "/run/imgwarden-e2e";

/// What is left.
#[derive(Debug, Default)]
pub(crate) struct Leftover {
    /// Pid and command line.
    processes: Vec<(i32, String)>,
    /// The innermost first.
    mounts: Vec<PathBuf>,
    directories: Vec<PathBuf>,
}

impl Leftover {
    /// Looks for it.
    pub(crate) fn find() -> Result<Self> {
        let parents = [paths::target()?.join("e2e"), PathBuf::from(RUN)];
        let directories: Vec<PathBuf> = parents
            .iter()
            .flat_map(|parent| fs::read_dir(parent).into_iter().flatten().flatten())
            .map(|entry| entry.path())
            .filter(|path| owner(path).is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists()))
            .collect();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
        let mut mounts: Vec<PathBuf> = mountinfo
            .lines()
            .filter_map(|line| line.split(' ').nth(4).map(PathBuf::from))
            .filter(|point| directories.iter().any(|directory| point.starts_with(directory)))
            .collect();
        mounts.reverse();
        let processes = fs::read_dir("/proc")
            .context("listing /proc")?
            .flatten()
            .filter_map(|entry| {
                let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
                let bytes = fs::read(entry.path().join("cmdline")).ok()?;
                let line = String::from_utf8_lossy(&bytes).replace('\0', " ");
                // A directory's whole path: `…-12-1` is not a part of `…-12-10`.
                let names = |directory: &PathBuf| {
                    let directory = directory.to_string_lossy();
                    line.match_indices(&*directory).any(|(at, _)| {
                        !line[at + directory.len()..].starts_with(|c: char| c.is_ascii_digit())
                    })
                };
                directories.iter().any(names).then_some((pid, line))
            })
            .collect();
        Ok(Self { processes, mounts, directories })
    }

    pub(crate) fn is_empty(&self) -> bool {
        let Self { processes, mounts, directories } = self;
        processes.is_empty() && mounts.is_empty() && directories.is_empty()
    }

    /// Ends and removes all of it.
    pub(crate) fn remove(&self) {
        let Self { processes, mounts, directories } = self;
        for (pid, _) in processes {
            if let Some(pid) = Pid::from_raw(*pid) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        for mount in mounts {
            let _ = unmount(mount, UnmountFlags::DETACH);
        }
        for directory in directories {
            if let Err(error) = fs::remove_dir_all(directory) {
                eprintln!("removing {}: {error}", directory.display());
            }
        }
    }
}

impl fmt::Display for Leftover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processes, mounts, directories } = self;
        for (pid, line) in processes {
            writeln!(f, "  process {pid}: {line}")?;
        }
        for mount in mounts {
            writeln!(f, "  mount {}", mount.display())?;
        }
        for directory in directories {
            writeln!(f, "  directory {}", directory.display())?;
        }
        Ok(())
    }
}

/// The pid in `…-PID-NUMBER` or `PID-NUMBER`.
fn owner(path: &Path) -> Option<u32> {
    let name = path.file_name()?.to_str()?;
    let (rest, number) = name.rsplit_once('-')?;
    let _: u32 = number.parse().ok()?;
    rest.rsplit('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_names_its_program() {
        assert_eq!(owner(Path::new("/x/harness-running-17812-0")), Some(17812));
        assert_eq!(owner(Path::new("/run/imgwarden-e2e/17812-3")), Some(17812));
        assert_eq!(owner(Path::new("/x/client")), None);
        assert_eq!(owner(Path::new("/x/go-cache")), None);
    }
}
