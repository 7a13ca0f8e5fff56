//! Tarballs that must be refused: cut, with wrong bytes, not a tarball at all.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
};

use super::Archive;

/// Bytes per tar record.
const RECORD: u64 = 512;

/// Cuts the tarball to `keep` of its bytes.
pub fn truncate(archive: &Archive, keep: u64) {
    let file = File::options().write(true).open(&archive.path);
    file.and_then(|file| file.set_len(keep))
        .unwrap_or_else(|error| panic!("{}: {error}", archive.path.display()));
}

/// Flips one byte in the middle of the last layer of the first image; size and names stay. Plain tarballs only.
pub fn corrupt_last_layer(archive: &Archive) {
    let layer = archive.image().layers.last().expect("an image has layers");
    let path = &archive.path;
    let file = File::options().read(true).write(true).open(path);
    let file = file.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut tar = tar::Archive::new(&file);
    let hash = layer.digest.trim_start_matches("sha256:");
    let start = tar
        .entries()
        .expect("a tarball of this module is a tar")
        .map(|entry| entry.expect("a tarball of this module is whole"))
        .find(|entry| entry.path().is_ok_and(|path| path.to_string_lossy().contains(hash)))
        .map(|entry| entry.raw_file_position())
        .expect("the layer is in the tarball");
    // Past the layer's own first header, so that it still looks like a tar.
    let at = start + (RECORD + 8).min(layer.bytes - 1);
    let mut byte = [0];
    file.read_exact_at(&mut byte, at)
        .and_then(|()| file.write_all_at(&[!byte[0]], at))
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

/// Replaces the tarball by text, as an error page that was saved under its name.
pub fn replace_by_text(path: &Path) {
    fs::write(path, "<html>404 Not Found</html>\n")
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}
