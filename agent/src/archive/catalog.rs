//! The images in directories of archives, kept current by rescans. A file that is the same as before isn't read again.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    io,
    path::{Path, PathBuf},
};

use crate::digest::Digest;

use super::{
    Archive, ArchiveError, ArchivedImage, FileIdentity, Options,
    error::Fault,
    read::{looks_like_archive, read},
};

/// Directories in directories that are looked into.
const DEPTH: usize = 8;

/// Archives by path, images by ID and by name. Names are found by their normalised form.
#[derive(Debug)]
pub struct Catalog {
    options: Options,
    normalise: fn(&str) -> Option<String>,
    files: BTreeMap<PathBuf, Known>,
    by_id: HashMap<Digest, Vec<(PathBuf, usize)>>,
    by_name: HashMap<String, Vec<(PathBuf, usize)>>,
}

/// What the last read of a file gave.
#[derive(Debug)]
struct Known {
    /// Absent when the file could not even be looked at.
    identity: Option<FileIdentity>,
    result: Result<Archive, ArchiveError>,
}

/// An image and the archive that it lies in.
#[derive(Debug, Clone, Copy)]
pub struct Listed<'a> {
    pub archive: &'a Archive,
    pub image: &'a ArchivedImage,
}

/// What a rescan found different.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A file that was not there before, or is another one now, was read.
    Read(PathBuf),
    /// Such a file could not be read: [`Catalog::failures`] says why.
    Failed(PathBuf),
    /// A file is gone.
    Gone(PathBuf),
}

impl Catalog {
    /// `normalise` makes of a name the form that containerd's CRI looks it up by, or `None` of what is no name.
    pub fn new(options: Options, normalise: fn(&str) -> Option<String>) -> Self {
        Self { options, normalise, files: BTreeMap::new(), by_id: HashMap::new(), by_name: HashMap::new() }
    }

    /// Looks at all `files`, and at what looks like an archive in `dirs` and below. Blocks as long as it takes to read
    /// what changed; [`super::Stop`] ends it early, and the next rescan goes on from there.
    pub fn rescan(&mut self, dirs: &[PathBuf], files: &[PathBuf]) -> Vec<Change> {
        let mut paths: BTreeMap<PathBuf, bool> = files.iter().map(|path| (path.clone(), true)).collect();
        for directory in dirs {
            // A directory that isn't there yet has no archives.
            for path in archives_in(directory, self.options.limits.archives).unwrap_or_default() {
                paths.entry(path).or_insert(false);
            }
        }
        let mut changes = Vec::new();
        for gone in self.files.extract_if(.., |path, _| !paths.contains_key(path)) {
            changes.push(Change::Gone(gone.0));
        }
        for (path, named) in paths.into_iter().take(self.options.limits.archives) {
            if self.options.stop.is_set() {
                break;
            }
            if let Some(change) = self.look(path, named) {
                changes.push(change);
            }
        }
        if !changes.is_empty() {
            self.index();
        }
        changes
    }

    fn look(&mut self, path: PathBuf, named: bool) -> Option<Change> {
        let identity = std::fs::metadata(&path).ok().map(|metadata| FileIdentity::from(&metadata));
        if identity.is_none() && !named {
            return self.files.remove(&path).map(|_| Change::Gone(path));
        }
        if self.files.get(&path).is_some_and(|known| known.identity == identity) {
            return None;
        }
        let result = read(&path, &self.options);
        if matches!(&result, Err(error) if matches!(error.fault, Fault::Stopped)) {
            return None;
        }
        // The file that was read: it may have changed since the look at it, and the next rescan must see that.
        let identity = result.as_ref().map_or(identity, |archive| Some(archive.identity));
        let change = match &result {
            Ok(_) => Change::Read(path.clone()),
            Err(_) => Change::Failed(path.clone()),
        };
        self.files.insert(path, Known { identity, result });
        Some(change)
    }

    fn index(&mut self) {
        let Self { options: _, normalise, files, by_id, by_name } = self;
        by_id.clear();
        by_name.clear();
        for (path, known) in files {
            for (i, image) in known.result.iter().flat_map(|archive| archive.images.iter().enumerate()) {
                by_id.entry(image.id).or_default().push((path.clone(), i));
                let names: BTreeSet<_> = image.names.iter().filter_map(|name| normalise(name)).collect();
                for name in names {
                    by_name.entry(name).or_default().push((path.clone(), i));
                }
            }
        }
    }

    /// The images with this ID, by path.
    pub fn by_id(&self, id: &Digest) -> Vec<Listed<'_>> {
        self.listed(self.by_id.get(id))
    }

    /// The images of this normalised name, by path.
    pub fn by_name(&self, normalised: &str) -> Vec<Listed<'_>> {
        self.listed(self.by_name.get(normalised))
    }

    fn listed(&self, places: Option<&Vec<(PathBuf, usize)>>) -> Vec<Listed<'_>> {
        let at = |(path, i): &(PathBuf, usize)| {
            let archive = self.files.get(path)?.result.as_ref().ok()?;
            Some(Listed { archive, image: archive.images.get(*i)? })
        };
        places.into_iter().flatten().filter_map(at).collect()
    }

    /// All images of all archives.
    pub fn images(&self) -> impl Iterator<Item = Listed<'_>> {
        self.archives().flat_map(|archive| archive.images.iter().map(move |image| Listed { archive, image }))
    }

    /// The archives that could be read, by path.
    pub fn archives(&self) -> impl Iterator<Item = &Archive> {
        self.files.values().filter_map(|known| known.result.as_ref().ok())
    }

    /// Why the others could not.
    pub fn failures(&self) -> impl Iterator<Item = &ArchiveError> {
        self.files.values().filter_map(|known| known.result.as_ref().err())
    }
}

/// What looks like an archive in a directory and below. A directory below that can't be read has none.
pub fn archives_in(directory: &Path, limit: usize) -> io::Result<Vec<PathBuf>> {
    std::fs::read_dir(directory)?;
    let mut found = Vec::new();
    let mut ahead = vec![(directory.to_owned(), 0)];
    let mut seen = 0;
    while let Some((directory, depth)) = ahead.pop() {
        let Ok(entries) = std::fs::read_dir(&directory) else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).take(limit * 4).collect();
        paths.sort();
        for path in paths {
            seen += 1;
            if seen > limit * 16 || found.len() == limit {
                return Ok(found);
            }
            // Links to files are followed, as the importers do; links to directories are not, so that there is no loop.
            let Ok(kind) = std::fs::symlink_metadata(&path) else { continue };
            if kind.is_dir() && depth < DEPTH {
                ahead.push((path, depth + 1));
            } else if looks_like_archive(&path) {
                found.push(path);
            }
        }
    }
    Ok(found)
}
