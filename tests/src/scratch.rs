//! A test's private directories: a big one under `target/e2e`, and a short one under `/run` for sockets.
//!
//! Dropping it ends what is left in there: mounts first (else a removal would go through them), then the files.
//! It never touches anything outside the two directories.

use std::{
    fs,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::mount::{UnmountFlags, unmount};

/// Tells apart the scratches of one process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Where a test may write.
#[derive(Debug)]
pub struct Scratch {
    /// For what is big: containerd's root, tarballs, logs, the journal. A real disk, never tmpfs.
    pub dir: PathBuf,
    /// For sockets and containerd's state: a unix socket's path holds 107 bytes.
    pub run: PathBuf,
}

impl Scratch {
    /// Makes both directories; `test` is for the reader of a path only.
    #[must_use]
    pub fn new(test: &str) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let own = format!("{}-{number}", process::id());
        let dir = e2e_dir().join(format!("{test}-{own}"));
        let run = Path::new(RUN).join(own);
        for directory in [&dir, &run] {
            fs::create_dir_all(directory)
                .unwrap_or_else(|error| panic!("{}: {error}; the tests run as root", directory.display()));
        }
        Self { dir, run }
    }

    /// A file in the big directory, for a log: printed by [`Drop`] when the test fails.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.dir.join(format!("{name}.log"))
    }

    /// The ends of all logs, which is what the reader of a failed test wants first.
    fn print_logs(&self) {
        let Ok(entries) = fs::read_dir(&self.dir) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            if path.extension().is_some_and(|extension| extension == "log") {
                let bytes = fs::read(&path).unwrap_or_default();
                let text = String::from_utf8_lossy(&bytes);
                let lines: Vec<&str> = text.lines().collect();
                eprintln!("--- the end of {} ---", path.display());
                for line in &lines[lines.len().saturating_sub(LOG_LINES)..] {
                    eprintln!("{line}");
                }
            }
        }
    }
}

/// Lines of each log that a failed test shows.
const LOG_LINES: usize = 40;

/// The directory of all short directories.
pub const RUN: &str = "/run/imgwarden-e2e";

/// The directory of all big directories.
#[must_use]
pub fn e2e_dir() -> PathBuf {
    workspace().join("target/e2e")
}

/// The workspace's root.
#[must_use]
pub fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf)
}

/// Where `cargo xtask setup` puts what no package manager brings.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let from =
        |variable: &str| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("IMGWARDEN_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("imgwarden")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/imgwarden")))
        .expect("one of IMGWARDEN_CACHE, XDG_CACHE_HOME and HOME is set")
}

/// Every mount point at or below `dir`, the innermost first.
#[must_use]
pub fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").expect("/proc/self/mountinfo is readable");
    let mut points: Vec<PathBuf> = mountinfo
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(dir))
        .collect();
    points.reverse();
    points
}

/// Unmounts everything at or below `dir`.
pub fn unmount_below(dir: &Path) {
    for point in mounts_below(dir) {
        if let Err(error) = unmount(&point, UnmountFlags::DETACH) {
            eprintln!("unmounting {}: {error}", point.display());
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if thread::panicking() {
            self.print_logs();
        }
        for dir in [&self.run, &self.dir] {
            unmount_below(dir);
            if let Err(error) = fs::remove_dir_all(dir) {
                eprintln!("removing {}: {error}", dir.display());
            }
        }
        // Succeeds for whoever is the last.
        let _ = fs::remove_dir(RUN);
    }
}
