//! Which entry of which watched directory a removed path was.
//!
//! The kernel side gives a path as it was typed, and the watched directory that it starts in if it knows one. Everything
//! else is a candidate: it counts when its parent is a watched directory (through the process's own root while it lives)
//! and the file is absent now; or, when the parent is gone as well, when its text is the watched path.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

use imgwarden_ebpf::{AWAY, BLOBS, FileKey, OVER, RemovalHead, SNAPSHOTS};

use super::{
    process::start,
    record::{Entry, How, ProcessKey},
    ring::until_zero,
    watch::{Dir, Watch, file_key},
};
use crate::digest::Digest;

/// What was removed; none when it is nothing of ours. `chain` is the process and its parents.
pub(super) fn resolve(
    watch: &Watch,
    head: &RemovalHead,
    path: &[u8],
    chain: &[ProcessKey],
) -> Option<(Entry, How)> {
    let how = match head.how {
        AWAY => How::RenamedAway,
        OVER => How::Replaced,
        _ => How::Unlinked,
    };
    if how == How::Replaced && arrival(until_zero(&head.other)) {
        return None;
    }
    let path = Path::new(OsStr::from_bytes(path));
    let entry = match watch.dir(head.base) {
        Some(base) if path.is_relative() => from_base(watch, base, path),
        _ => candidate(watch, path, how, head.from_descriptor == 1, chain),
    }?;
    // Snapshot directories are made under another name and renamed into place: nothing is replaced.
    (how != How::Replaced || matches!(entry, Entry::Blob(_))).then_some((entry, how))
}

/// Whether a rename's old path is where containerd writes a blob before it gives it its name.
fn arrival(old: &[u8]) -> bool {
    old.ends_with(b"/data") && old.windows(8).any(|part| part == b"/ingest/")
}

fn from_base(watch: &Watch, base: &Dir, path: &Path) -> Option<Entry> {
    let whole = lexical(&base.path.join(path));
    by_text(watch, &whole).or_else(|| {
        let parent = whole.parent()?;
        leaf_of(watch, file_key(parent, &mounts())?).and_then(|dir| entry(dir, &whole))
    })
}

fn candidate(
    watch: &Watch,
    path: &Path,
    how: How,
    from_descriptor: bool,
    chain: &[ProcessKey],
) -> Option<Entry> {
    let (parent, name) = (path.parent()?, path.file_name()?);
    let mut seen = false;
    for place in parents(parent, from_descriptor, chain) {
        let Ok(found) = fs::metadata(&place) else { continue };
        seen = true;
        // Other programs remove files with such names too: the inode alone rules nearly all of them out.
        if !watch.dirs().any(|dir| dir.key.is_some_and(|key| key.ino == found.ino())) {
            continue;
        }
        let key = file_key(&place, &mounts());
        for dir in watch.dirs().filter(|dir| dir.key.is_some() && dir.key == key) {
            if let Some(entry) = gone(dir, path, how) {
                return Some(entry);
            }
            let whole = dir.path.join(name);
            if watch.dirs().any(|dir| dir.path == whole) {
                return Some(Entry::Directory);
            }
        }
    }
    if seen && path.is_absolute() {
        return None;
    }
    let text = lexical(path);
    if path.is_absolute() {
        return by_text(watch, &text);
    }
    // The process is gone, and with it where it stood: the end of a watched path must do.
    let parent = text.parent().filter(|parent| parent.components().count() > 1)?;
    let dir = watch.dirs().find(|dir| dir.kinds & (BLOBS | SNAPSHOTS) != 0 && dir.path.ends_with(parent))?;
    gone(dir, path, how)
}

/// Where a candidate's parent may be found.
fn parents(parent: &Path, from_descriptor: bool, chain: &[ProcessKey]) -> Vec<PathBuf> {
    let alive = chain.iter().filter(|key| start(key.pid) == Some(key.start));
    if parent.is_absolute() {
        let below = parent.strip_prefix("/").unwrap_or(parent);
        let mut places: Vec<PathBuf> =
            alive.map(|key| PathBuf::from(format!("/proc/{}/root", key.pid)).join(below)).collect();
        places.push(parent.to_owned());
        places
    } else if from_descriptor {
        Vec::new()
    } else {
        // A child starts where its parent stood.
        alive.map(|key| PathBuf::from(format!("/proc/{}/cwd", key.pid)).join(parent)).collect()
    }
}

/// The entry, if nothing stands there any more. What was replaced is there, as something else.
fn gone(dir: &Dir, path: &Path, how: How) -> Option<Entry> {
    let entry = entry(dir, path)?;
    let absent = || fs::symlink_metadata(dir.path.join(path.file_name().unwrap_or_default())).is_err();
    (how == How::Replaced || absent()).then_some(entry)
}

fn leaf_of(watch: &Watch, key: FileKey) -> Option<&Dir> {
    watch.dirs().find(|dir| dir.kinds & (BLOBS | SNAPSHOTS) != 0 && dir.key == Some(key))
}

/// The entry by a path of our own namespace, compared as text.
fn by_text(watch: &Watch, path: &Path) -> Option<Entry> {
    if watch.dirs().any(|dir| dir.path == path) {
        return Some(Entry::Directory);
    }
    let parent = path.parent()?;
    watch.dirs().find(|dir| dir.path == parent).and_then(|dir| entry(dir, path))
}

/// What an entry of a watched directory is, by its name.
fn entry(dir: &Dir, path: &Path) -> Option<Entry> {
    let name = path.file_name()?.to_str()?;
    if dir.kinds & BLOBS != 0 {
        return Digest::from_hex(name).ok().map(Entry::Blob);
    }
    if dir.kinds & SNAPSHOTS != 0 && name.bytes().all(|byte| byte.is_ascii_digit()) {
        return name.parse().ok().map(Entry::Snapshot);
    }
    None
}

/// The path without `.` and `..`, as text: what a symbolic link would make of `..` is not asked.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                clean.pop();
            }
            other => clean.push(other),
        }
    }
    clean
}

fn mounts() -> String {
    fs::read_to_string("/proc/self/mountinfo").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_blobs_arrival_is_no_replacement() {
        assert!(arrival(b"/var/lib/containerd/io.containerd.content.v1.content/ingest/0a/data"));
        assert!(!arrival(b"/home/me/evil"));
    }

    #[test]
    fn paths_are_cleaned_as_text() {
        assert_eq!(lexical(Path::new("/a/./b/../c/")), Path::new("/a/c"));
        assert_eq!(
            lexical(Path::new("/../a")),
            Path::new("a").strip_prefix("").map(|_| Path::new("/a")).unwrap()
        );
    }

    proptest! {
        #[test]
        fn any_path_has_a_clean_form(path in proptest::collection::vec(any::<u8>(), 0..300)) {
            let clean = lexical(Path::new(OsStr::from_bytes(&path)));
            prop_assert!(clean.components().all(|part| !matches!(part, Component::CurDir | Component::ParentDir)));
        }
    }
}
