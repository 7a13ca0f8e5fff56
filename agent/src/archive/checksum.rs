//! The list of SHA-256 sums that distributions publish beside a bundle: `sha256sum*.txt`, as `sha256sum` writes it.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::Digest as _;

use crate::digest::Digest;

use super::Stop;

/// Largest list that is looked into.
const LIST: u64 = 1 << 20;
/// Directory entries that are looked at.
const ENTRIES: usize = 10_000;

/// What a list says of a file, and what the file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// The list that names the file.
    pub list: PathBuf,
    pub expected: Digest,
    pub found: Digest,
}

/// Compares a file to the list beside it. `None` when no list names it.
pub fn checksum(path: &Path, stop: &Stop) -> io::Result<Option<Checksum>> {
    let Some((list, expected)) = listed(path)? else { return Ok(None) };
    let mut file = File::open(path)?;
    let mut sha256 = sha2::Sha256::new();
    let mut buffer = vec![0; 128 << 10];
    loop {
        if stop.is_set() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        match file.read(&mut buffer)? {
            0 => break,
            read => sha256.update(&buffer[..read]),
        }
    }
    Ok(Some(Checksum { list, expected, found: Digest::from_bytes(sha256.finalize().into()) }))
}

/// The first list, by name, that has the file.
fn listed(path: &Path) -> io::Result<Option<(PathBuf, Digest)>> {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return Ok(None) };
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut lists = Vec::new();
    for entry in std::fs::read_dir(directory)?.take(ENTRIES) {
        let entry = entry?;
        let is_list = |name: &str| name.starts_with("sha256sum") && name.ends_with(".txt");
        if entry.file_name().to_str().is_some_and(is_list) && entry.metadata()?.is_file() {
            lists.push(entry.path());
        }
    }
    lists.sort();
    for list in lists {
        let mut text = Vec::new();
        File::open(&list)?.take(LIST).read_to_end(&mut text)?;
        if let Some(digest) = entry_of(&String::from_utf8_lossy(&text), name) {
            return Ok(Some((list, digest)));
        }
    }
    Ok(None)
}

/// `<hex>  name`, `<hex> *name`; the name may have directories before it.
fn entry_of(list: &str, name: &str) -> Option<Digest> {
    list.lines().find_map(|line| {
        let (hex, file) = line.split_once(' ')?;
        let file = file.trim_start_matches([' ', '*']).trim_end();
        let file = file.rsplit_once('/').map_or(file, |(_, file)| file);
        (file == name).then(|| Digest::from_hex(&hex.to_ascii_lowercase()).ok()).flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_bundle_differs_from_its_list() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = directory.path().join("rke2-images.linux-amd64.tar.zst");
        std::fs::write(&bundle, b"whole").unwrap();
        let list = directory.path().join("sha256sum-amd64.txt");
        let good = Digest::of(b"whole");
        std::fs::write(
            &list,
            format!("{}  other.tar\n{} *./rke2-images.linux-amd64.tar.zst\n", "00".repeat(32), good.to_hex()),
        )
        .unwrap();
        let check = || checksum(&bundle, &Stop::default()).unwrap();
        assert_eq!(check(), Some(Checksum { list: list.clone(), expected: good, found: good }));
        std::fs::write(&bundle, b"hole").unwrap();
        assert_eq!(
            check(),
            Some(Checksum { list: list.clone(), expected: good, found: Digest::of(b"hole") })
        );
        std::fs::write(&list, "no sums\n").unwrap();
        assert_eq!(check(), None);
    }
}
