//! From a path to an [`Archive`].

use std::{
    fs::File,
    io::{BufReader, Read, Seek},
    path::Path,
};

use super::{
    Archive, ArchivedImage, FileIdentity, Form, Options,
    compression::{Compression, decoder, unsupported},
    contents::Contents,
    docker,
    error::{ArchiveError, ArchiveProblem, Fault},
    oci,
    walk::Walk,
};

/// Directories above the one with the index that are looked into: `images/` of a Zarf package is one.
const DEPTH: usize = 3;

/// Reads an archive once, from its first byte to its last. Memory is bounded by [`super::Limits`], whatever the
/// archive's size.
pub fn read(path: &Path, options: &Options) -> Result<Archive, ArchiveError> {
    let opened = open(path).and_then(|opened| read_opened(path, opened, options));
    opened.map_err(|fault| ArchiveError { path: path.into(), fault })
}

/// An archive file before its first byte was used.
pub(super) struct Opened {
    pub file: File,
    pub identity: FileIdentity,
    pub compression: Compression,
}

pub(super) fn open(path: &Path) -> Result<Opened, Fault> {
    let mut file = open_regular(path)?;
    let identity = FileIdentity::from(&file.metadata().map_err(Fault::Io)?);
    let mut head = Vec::with_capacity(16);
    Read::take(&mut file, 16).read_to_end(&mut head).map_err(Fault::Io)?;
    file.rewind().map_err(Fault::Io)?;
    if head.is_empty() {
        return Err(Fault::Empty);
    }
    if let Some(name) = unsupported(&head) {
        return Err(Fault::Compression(name));
    }
    Ok(Opened { file, identity, compression: Compression::of(&head) })
}

/// The names that containerd's and k3s' importers look for: such a file is expected to be an archive, and it is said when
/// it is none. Any other file counts when its first bytes say so.
const EXTENSIONS: [&str; 10] =
    [".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.lz4", ".tar.bz2", ".tbz", ".tar.xz", ".oci"];

/// Whether a file of a directory is to be read as an archive.
pub(super) fn looks_like_archive(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase()).unwrap_or_default();
    let mut head = Vec::with_capacity(512);
    let Ok(file) = open_regular(path) else { return false };
    if EXTENSIONS.iter().any(|extension| name.ends_with(extension)) {
        return true;
    }
    file.take(512).read_to_end(&mut head).is_ok()
        && (Compression::of(&head) != Compression::None || head.get(257..262) == Some(b"ustar"))
}

/// A pipe or a device of that name must not block or feed the agent.
fn open_regular(path: &Path) -> Result<File, Fault> {
    let metadata = std::fs::metadata(path).map_err(Fault::Io)?;
    if !metadata.is_file() {
        return Err(Fault::NotAFile);
    }
    use std::os::unix::fs::OpenOptionsExt;
    let nonblock = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = File::options().read(true).custom_flags(nonblock).open(path).map_err(Fault::Io)?;
    // It may have been replaced in between.
    if !file.metadata().map_err(Fault::Io)?.is_file() {
        return Err(Fault::NotAFile);
    }
    Ok(file)
}

fn read_opened(path: &Path, opened: Opened, options: &Options) -> Result<Archive, Fault> {
    let Opened { file, identity, compression } = opened;
    let input = BufReader::with_capacity(128 << 10, &file);
    let decoder = decoder(input, compression, options.limits.window_log).map_err(Fault::Io)?;
    let mut walk = Walk::new(decoder, compression, options.limits, options.stop.clone());
    let mut contents = Contents::read(&mut walk, options)?;
    let mut problems = std::mem::take(&mut contents.problems);
    let (form, images) = images(&contents, options, &mut problems)?;
    let kept = options.limits.problems;
    if problems.len() > kept {
        let more = problems.len() - kept;
        problems.truncate(kept);
        problems.push(ArchiveProblem::More { more });
    }
    Ok(Archive { path: path.into(), identity, form, compression, images, problems })
}

fn images(
    contents: &Contents,
    options: &Options,
    problems: &mut Vec<ArchiveProblem>,
) -> Result<(Form, Vec<ArchivedImage>), Fault> {
    let root = root(contents)?;
    let index = format!("{root}index.json");
    let saved = format!("{root}manifest.json");
    let has = |name: &str| contents.files.contains_key(name);
    if !has(&index) {
        let saved = docker::saved(contents, &saved, options)?;
        return docker::images(contents, &root, saved, options, problems)
            .map(|images| (Form::DockerArchive, images));
    }
    let layout = has(&format!("{root}oci-layout"));
    let names = match has(&saved) {
        // Damage of the one doesn't spoil the other.
        true => docker::names(contents, &root, &saved, options),
        false => Default::default(),
    };
    if layout || !has(&saved) {
        return oci::images(contents, &root, &index, names, oci::Names::Index, options, problems)
            .map(|images| (Form::OciLayout, images));
    }
    // index.json and manifest.json without oci-layout (hauler --containerd): containerd would take manifest.json and
    // its names, but the index has the digests of the registry.
    let mut found = Vec::new();
    match oci::images(contents, &root, &index, names, oci::Names::Saved, options, &mut found) {
        Ok(images) if !images.is_empty() && !found.iter().any(ArchiveProblem::is_damage) => {
            problems.append(&mut found);
            Ok((Form::OciLayout, images))
        }
        _ => {
            let saved = docker::saved(contents, &saved, options)?;
            docker::images(contents, &root, saved, options, problems)
                .map(|images| (Form::DockerArchive, images))
        }
    }
}

/// The directory that everything lies in, with its slash: empty, `bundle/`, or `images/` of a Zarf package.
fn root(contents: &Contents) -> Result<String, Fault> {
    let mut found: Option<&str> = None;
    for name in contents.files.keys() {
        let (directory, file) =
            name.rsplit_once('/').map_or(("", name.as_str()), |(directory, file)| (directory, file));
        if !matches!(file, "index.json" | "manifest.json") || directory.split('/').count() > DEPTH {
            continue;
        }
        match found {
            // The top wins.
            _ if directory.is_empty() => return Ok(String::new()),
            None => found = Some(directory),
            Some(before) if before == directory => {}
            Some(before) => return Err(Fault::Ambiguous { first: before.into(), second: directory.into() }),
        }
    }
    match found {
        Some(directory) => Ok(format!("{directory}/")),
        None => Err(Fault::Unrecognised { hint: hint(contents) }),
    }
}

fn hint(contents: &Contents) -> Option<&'static str> {
    if contents.files.is_empty() {
        Some("it holds no files")
    } else if contents.files.contains_key("repositories") {
        Some("it has repositories: docker before 1.10 wrote it; load and save it with a newer docker")
    } else {
        None
    }
}
