//! Which directories and sockets the kernel side watches, kept right while they come and go.
//!
//! Takes the paths that the agent cares for, which need not exist yet, and keeps the kernel's maps of identities equal
//! to what stands at these paths. inotify tells when one of them or a directory above changes; what it can't tell
//! (something was mounted over it) a stat finds at the latest after [`INTERVAL`].

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    mem::MaybeUninit,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    time::Duration,
};

use aya::maps::MapData;
use imgwarden_ebpf::{ABOVE, BLOBS, FileKey, NAME, SNAPSHOTS, SOCKETS};
use rustix::fs::{
    AtFlags, CWD, StatxFlags,
    inotify::{self, WatchFlags},
    statx,
};
use tokio::io::unix::AsyncFd;

use super::{ProbeError, ring};

/// How long a change that inotify can't tell may stay unnoticed.
pub(super) const INTERVAL: Duration = Duration::from_secs(30);
/// A directory may change again while it is looked at; then this often at once, and again with the next change.
const ATTEMPTS: usize = 4;

/// What to watch. Nothing of it need exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watches {
    /// `…/io.containerd.content.v1.content`.
    pub content_dirs: Vec<PathBuf>,
    /// `…/io.containerd.snapshotter.v1.X/snapshots`.
    pub snapshot_dirs: Vec<PathBuf>,
    /// containerd's sockets.
    pub sockets: Vec<PathBuf>,
}

/// A directory that is watched if it is there.
#[derive(Debug, Clone)]
pub(super) struct Dir {
    pub path: PathBuf,
    /// `BLOBS`, `SNAPSHOTS`, `ABOVE`, `SOCKETS`.
    pub kinds: u32,
    pub key: Option<FileKey>,
}

/// The kernel's maps and what they should hold.
#[derive(Debug)]
pub(super) struct Watch {
    watched: aya::maps::HashMap<MapData, [u8; 16], [u8; 8]>,
    sockets: aya::maps::HashMap<MapData, [u8; 80], [u8; 4]>,
    /// A directory's number is its place here plus 1: never given to another.
    dirs: Vec<Dir>,
    socket_paths: Vec<(PathBuf, [u8; NAME])>,
    in_kernel: HashMap<[u8; 16], [u8; 8]>,
    sockets_in_kernel: Vec<[u8; 80]>,
    changes: Option<AsyncFd<OwnedFd>>,
}

impl Watch {
    pub(super) fn new(
        watched: aya::maps::HashMap<MapData, [u8; 16], [u8; 8]>,
        sockets: aya::maps::HashMap<MapData, [u8; 80], [u8; 4]>,
    ) -> Self {
        Self {
            watched,
            sockets,
            dirs: Vec::new(),
            socket_paths: Vec::new(),
            in_kernel: HashMap::new(),
            sockets_in_kernel: Vec::new(),
            changes: None,
        }
    }

    /// Replaces what is watched.
    pub(super) fn set(&mut self, watches: &Watches) -> Result<(), ProbeError> {
        self.dirs.iter_mut().for_each(|dir| dir.kinds = 0);
        for content in &watches.content_dirs {
            let blobs = content.join("blobs");
            self.add(&blobs.join("sha256"), BLOBS);
            self.add(&blobs, ABOVE);
            self.add(content, ABOVE);
            content.parent().into_iter().for_each(|root| self.add(root, ABOVE));
        }
        for snapshots in &watches.snapshot_dirs {
            self.add(snapshots, SNAPSHOTS);
            snapshots.ancestors().skip(1).take(2).for_each(|above| self.add(above, ABOVE));
        }
        self.socket_paths.clear();
        for socket in &watches.sockets {
            let (Some(dir), Some(last)) = (socket.parent(), socket.file_name()) else {
                return Err(ProbeError::Socket { path: socket.clone() });
            };
            let last = last.as_encoded_bytes();
            let mut name = [0; NAME];
            match name.get_mut(..last.len()) {
                // The last byte stays zero: the kernel side compares names ended by one.
                Some(start) if last.len() < NAME => start.copy_from_slice(last),
                _ => return Err(ProbeError::Socket { path: socket.clone() }),
            }
            self.add(dir, SOCKETS);
            self.socket_paths.push((dir.to_owned(), name));
        }
        let changes = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
            .map_err(|error| ProbeError::Changes(error.into()))?;
        self.changes = Some(ring::readable(changes).map_err(ProbeError::Changes)?);
        self.refresh()
    }

    fn add(&mut self, path: &Path, kind: u32) {
        match self.dirs.iter_mut().find(|dir| dir.path == path) {
            Some(dir) => dir.kinds |= kind,
            None => self.dirs.push(Dir { path: path.to_owned(), kinds: kind, key: None }),
        }
    }

    /// The directory with a number of the kernel side.
    pub(super) fn dir(&self, id: u32) -> Option<&Dir> {
        self.dirs.get(usize::try_from(id).ok()?.checked_sub(1)?).filter(|dir| dir.kinds != 0)
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Dir> {
        self.dirs.iter().filter(|dir| dir.kinds != 0)
    }

    /// Waits until something changed at or above a watched path.
    pub(super) async fn changed(&self) -> Result<(), ProbeError> {
        let Some(changes) = &self.changes else { return std::future::pending().await };
        loop {
            let mut ready = changes.readable().await.map_err(ProbeError::Changes)?;
            let mut buffer = [MaybeUninit::uninit(); 4096];
            let mut reader = inotify::Reader::new(ready.get_inner(), &mut buffer);
            let mut matters = false;
            while let Ok(event) = reader.next() {
                // Which one it was does not matter, all are looked at; but of /run's entries most are others'.
                matters |=
                    event.file_name().is_none_or(|name| self.names(OsStr::from_bytes(name.to_bytes())));
            }
            ready.clear_ready();
            if matters {
                return Ok(());
            }
        }
    }

    /// Whether `name` is a component of a watched path.
    fn names(&self, name: &OsStr) -> bool {
        self.dirs().any(|dir| dir.path.iter().any(|part| part == name))
    }

    /// Makes the kernel's maps equal to what stands at the paths now.
    pub(super) fn refresh(&mut self) -> Result<(), ProbeError> {
        for _ in 0..ATTEMPTS {
            // Arm first: what changes after the stat is then told.
            self.arm();
            let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
            let mut changed = false;
            for dir in self.dirs.iter_mut().filter(|dir| dir.kinds != 0) {
                let key = file_key(&dir.path, &mounts);
                changed |= key != dir.key;
                dir.key = key;
            }
            self.write()?;
            if !changed {
                break;
            }
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), ProbeError> {
        let map_error = |name| move |source| ProbeError::Map { name, source };
        let mut wanted: HashMap<[u8; 16], [u8; 8]> = HashMap::new();
        for (n, dir) in self.dirs.iter().enumerate() {
            let Some(key) = dir.key.filter(|_| dir.kinds != 0) else { continue };
            let id = u32::try_from(n + 1).unwrap_or(u32::MAX);
            // Two paths of one directory: the first number counts, all kinds do.
            let value = wanted.entry(dir_bytes(key)).or_insert_with(|| watched_bytes(0, id));
            let kinds = u32::from_ne_bytes([value[0], value[1], value[2], value[3]]) | dir.kinds;
            value[..4].copy_from_slice(&kinds.to_ne_bytes());
        }
        let sockets: Vec<[u8; 80]> = self
            .socket_paths
            .iter()
            .filter_map(|(dir, name)| {
                let key = self.dirs.iter().find(|known| known.path == *dir)?.key?;
                let mut bytes = [0; 80];
                bytes[..16].copy_from_slice(&dir_bytes(key));
                bytes[16..].copy_from_slice(name);
                Some(bytes)
            })
            .collect();
        for (n, key) in sockets.iter().enumerate().filter(|(_, key)| !self.sockets_in_kernel.contains(key)) {
            let id = u32::try_from(n + 1).unwrap_or(u32::MAX);
            self.sockets.insert(key, id.to_ne_bytes(), 0).map_err(map_error("WATCHED_SOCKETS"))?;
        }
        for (key, value) in wanted.iter().filter(|(key, value)| self.in_kernel.get(*key) != Some(value)) {
            self.watched.insert(key, value, 0).map_err(map_error("WATCHED"))?;
        }
        for key in self.in_kernel.keys().filter(|key| !wanted.contains_key(*key)) {
            self.watched.remove(key).map_err(map_error("WATCHED"))?;
        }
        for key in self.sockets_in_kernel.iter().filter(|key| !sockets.contains(key)) {
            self.sockets.remove(key).map_err(map_error("WATCHED_SOCKETS"))?;
        }
        self.in_kernel = wanted;
        self.sockets_in_kernel = sockets;
        Ok(())
    }

    /// Asks inotify for the watched directories and for those that they appear in.
    ///
    /// A leaf only tells that it went: its entries come and go all the time, and the probe sees them. That a directory
    /// went is told when its last user let go of it (a socket's clients pin its directory), that its name was given to
    /// another one at once: so the one above is asked as well.
    fn arm(&self) {
        let Some(changes) = &self.changes else { return };
        let itself =
            WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR | WatchFlags::MASK_ADD;
        let entries = WatchFlags::CREATE | WatchFlags::MOVED_TO | itself;
        let add = |path: &Path, flags| inotify::add_watch(changes.get_ref(), path, flags).is_ok();
        let leaf =
            |path: &Path| self.dirs().any(|dir| dir.kinds & (BLOBS | SNAPSHOTS) != 0 && dir.path == path);
        for dir in self.dirs() {
            add(&dir.path, itself);
            dir.path.ancestors().skip(1).filter(|above| !leaf(above)).find(|above| add(above, entries));
        }
    }
}

/// A directory's identity as the kernel side sees it.
///
/// `st_dev` would be wrong on btrfs, where each subvolume shows a number of its own; mountinfo shows the superblock's.
pub(super) fn file_key(path: &Path, mounts: &str) -> Option<FileKey> {
    let found = statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS | StatxFlags::MNT_ID).ok()?;
    if rustix::fs::FileType::from_raw_mode(u32::from(found.stx_mode)) != rustix::fs::FileType::Directory {
        return None;
    }
    let device =
        if found.stx_mask & StatxFlags::MNT_ID.bits() != 0 { device(found.stx_mnt_id, mounts) } else { None };
    let (major, minor) = device.unwrap_or((found.stx_dev_major, found.stx_dev_minor));
    Some(FileKey { dev: (major << 20) | (minor & 0xf_ffff), zero: 0, ino: found.stx_ino })
}

/// The superblock's device number of a mount.
fn device(mount: u64, mounts: &str) -> Option<(u32, u32)> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ');
        if fields.next()?.parse::<u64>().ok()? != mount {
            return None;
        }
        let (major, minor) = fields.nth(1)?.split_once(':')?;
        Some((major.parse().ok()?, minor.parse().ok()?))
    })
}

fn dir_bytes(key: FileKey) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&key.dev.to_ne_bytes());
    bytes[8..].copy_from_slice(&key.ino.to_ne_bytes());
    bytes
}

fn watched_bytes(kinds: u32, id: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&kinds.to_ne_bytes());
    bytes[4..].copy_from_slice(&id.to_ne_bytes());
    bytes
}

impl From<rustix::io::Errno> for ProbeError {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Changes(io::Error::from(error))
    }
}
