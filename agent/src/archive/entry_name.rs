//! Names of tar entries: cleaned as containerd cleans them, and never out of the archive.

/// Why a name can't be one of the archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unclean {
    Absolute,
    Outside,
}

/// `./a//b/../c` is `a/c`.
pub(super) fn clean(name: &str) -> Result<String, Unclean> {
    if name.starts_with('/') {
        return Err(Unclean::Absolute);
    }
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop().ok_or(Unclean::Outside)?;
            }
            part => parts.push(part),
        }
    }
    Ok(parts.join("/"))
}

/// What a symbolic link at `name` to `target` means. A link out of the archive means nothing.
pub(super) fn beside(name: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let directory = name.trim_end_matches('/').rsplit_once('/').map_or("", |(directory, _)| directory);
    clean(&format!("{}/{target}", if directory.is_empty() { "." } else { directory })).ok()
}

/// A field of a header: what comes before the first NUL.
pub(super) fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A name in a message: at most 200 characters.
pub(super) fn shorten(name: &str) -> String {
    name.chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_cleaned_as_the_field_does() {
        assert_eq!(clean("./blobs//sha256/./aa").unwrap(), "blobs/sha256/aa");
        assert_eq!(clean("a/../b").unwrap(), "b");
        assert_eq!(clean("/etc/passwd"), Err(Unclean::Absolute));
        assert_eq!(clean("a/../../b"), Err(Unclean::Outside));
    }

    #[test]
    fn links_are_relative_to_their_own_directory() {
        assert_eq!(beside("abc/layer.tar", "../def.tar").as_deref(), Some("def.tar"));
        assert_eq!(beside("./abc/layer.tar", "../def.tar").as_deref(), Some("def.tar"));
        assert_eq!(beside("layer.tar", "def.tar").as_deref(), Some("def.tar"));
        assert_eq!(beside("a", "../../etc/passwd"), None);
        assert_eq!(beside("a", "/etc/passwd"), None);
    }
}
