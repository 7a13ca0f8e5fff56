//! One pass over an archive: what each file hashes to, and the JSON documents among them.
//!
//! Documents may come before or after what they describe, and their names may say nothing, so every small file that
//! begins like JSON is kept until the images are known.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
};

use sha2::Digest as _;

use crate::digest::Digest;

use super::{
    Depth, Options,
    compression::{Compression, decoder},
    error::{ArchiveProblem, Fault},
    walk::{End, Entry, Kind, UnpacksTooMuch, Walk, clean},
};

/// Hops of a chain of links; more is a loop.
const LINKS: usize = 16;
/// Documents may be parsed again for each image that shares them, but not without end.
const PARSED: u64 = 1 << 30;

/// A file of the archive.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    /// Of its header in the uncompressed tar.
    pub offset: u64,
    pub size: u64,
    pub digest: Digest,
    /// Gzip, zstd, or none: what containerd would see in a layer.
    pub compression: Compression,
    /// What it unpacks to, as far as that was looked at.
    pub unpacked: Unpacked,
    pub sparse: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Unpacked {
    To(Digest),
    Fails(String),
    NotTried,
}

/// Everything that one pass keeps.
#[derive(Debug, Default)]
pub(super) struct Contents {
    pub files: BTreeMap<String, Stored>,
    links: BTreeMap<String, String>,
    by_digest: HashMap<Digest, String>,
    documents: HashMap<Digest, Vec<u8>>,
    kept: u64,
    /// Notes on the tar itself.
    pub problems: Vec<ArchiveProblem>,
    parsed: std::cell::Cell<u64>,
}

impl Contents {
    /// Reads the walk to its end.
    pub(super) fn read(walk: &mut Walk<'_>, options: &Options) -> Result<Self, Fault> {
        let mut contents = Self::default();
        let mut unpacked = 0;
        while let Some(entry) = walk.next()? {
            match entry.kind {
                Kind::Link(target) => {
                    contents.forget(&entry.name);
                    contents.links.insert(entry.name, target);
                }
                Kind::File | Kind::Sparse => contents.file(walk, entry, options, &mut unpacked)?,
            }
        }
        if walk.end() == Some(End::Unmarked) {
            contents.note(ArchiveProblem::NoEnd, options);
        } else if let Some((offset, what)) = walk.after_end() {
            contents.note(ArchiveProblem::Trailing { offset, what }, options);
        }
        Ok(contents)
    }

    fn note(&mut self, problem: ArchiveProblem, options: &Options) {
        if self.problems.len() < options.limits.problems {
            self.problems.push(problem);
        }
    }

    fn forget(&mut self, name: &str) {
        self.links.remove(name);
        self.files.remove(name);
    }

    fn file(
        &mut self,
        walk: &mut Walk<'_>,
        entry: Entry,
        options: &Options,
        unpacked: &mut u64,
    ) -> Result<(), Fault> {
        let Entry { name, kind, size, offset } = entry;
        let mut head = [0; 512];
        let mut peeked = 0;
        while peeked < head.len() {
            match walk.read(&mut head[peeked..]).map_err(|error| walk.fault(error))? {
                0 => break,
                read => peeked += read,
            }
        }
        let head = &head[..peeked];
        let compression = Compression::of_layer(head);
        let mut hashing = Hashing { input: head.chain(&mut *walk), sha256: sha2::Sha256::new() };
        let result = if size <= options.limits.document && begins_like_json(head) {
            let mut document = Vec::with_capacity(size as usize);
            hashing.read_to_end(&mut document).map(|_| (Unpacked::NotTried, Some(document)))
        } else if compression != Compression::None && options.depth == Depth::Layers {
            let outcome = unpack(&mut hashing, compression, options, unpacked);
            // What the decoder left unread counts for the digest too, and says whether the archive itself broke.
            drain(&mut hashing).and_then(|()| match outcome {
                Err(error) if error.get_ref().is_some_and(|inner| inner.is::<UnpacksTooMuch>()) => Err(error),
                Err(error) => Ok((Unpacked::Fails(error.to_string()), None)),
                Ok(digest) => Ok((Unpacked::To(digest), None)),
            })
        } else {
            drain(&mut hashing).map(|()| (Unpacked::NotTried, None))
        };
        let digest = Digest::from_bytes(hashing.sha256.finalize().into());
        let (unpacked, document) = result.map_err(|error| walk.fault(error))?;
        let unpacked = if compression == Compression::None { Unpacked::To(digest) } else { unpacked };

        self.links.remove(&name);
        if self.files.get(&name).is_some_and(|before| before.digest != digest) {
            self.note(ArchiveProblem::Duplicate { entry: name.clone(), offset }, options);
        }
        if let Some(document) = document {
            self.keep(digest, document, options.limits.documents);
        }
        self.by_digest.insert(digest, name.clone());
        let sparse = kind == Kind::Sparse;
        self.files.insert(name, Stored { offset, size, digest, compression, unpacked, sparse });
        Ok(())
    }

    /// Beyond the budget the largest goes: it is an SBOM or the like, and nobody asks for it.
    fn keep(&mut self, digest: Digest, document: Vec<u8>, budget: u64) {
        let size = document.len() as u64;
        if self.documents.insert(digest, document).is_none() {
            self.kept += size;
        }
        while self.kept > budget {
            let largest =
                self.documents.iter().max_by_key(|(_, document)| document.len()).map(|(key, _)| *key);
            let Some(dropped) = largest.and_then(|key| self.documents.remove(&key)) else { break };
            self.kept -= dropped.len() as u64;
        }
    }

    /// The file of this name, through links.
    pub(super) fn find(&self, name: &str) -> Found<'_> {
        let Ok(mut name) = clean(name) else { return Found::Absent };
        for hop in 0..LINKS {
            if let Some((name, stored)) = self.files.get_key_value(&name) {
                return Found::File(name, stored);
            }
            match self.links.get(&name) {
                Some(target) => name.clone_from(target),
                None if hop == 0 => return Found::Absent,
                None => return Found::Dangling,
            }
        }
        Found::Dangling
    }

    /// A file with this content, whatever its name.
    pub(super) fn by_digest(&self, digest: &Digest) -> Option<(&str, &Stored)> {
        let (name, stored) = self.files.get_key_value(self.by_digest.get(digest)?)?;
        // The name may since mean another content.
        (stored.digest == *digest).then_some((name.as_str(), stored))
    }

    /// The bytes of a document. `Err` when it was too large to be kept, or was no JSON.
    pub(super) fn document(&self, name: &str, stored: &Stored, options: &Options) -> Result<&[u8], Fault> {
        let limit = options.limits.document;
        if stored.size > limit {
            return Err(Fault::DocumentSize { entry: name.into(), size: stored.size, limit });
        }
        self.parsed.set(self.parsed.get().saturating_add(stored.size));
        match self.documents.get(&stored.digest) {
            Some(document) if self.parsed.get() <= PARSED => Ok(document),
            // Not even an opening brace.
            None if self.kept + stored.size <= options.limits.documents => Ok(b""),
            _ => Err(Fault::Documents { limit: options.limits.documents }),
        }
    }
}

/// What a name leads to.
pub(super) enum Found<'a> {
    File(&'a str, &'a Stored),
    Dangling,
    Absent,
}

fn begins_like_json(head: &[u8]) -> bool {
    matches!(head.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'{' | b'['))
}

/// Hashes what is read through it.
struct Hashing<R> {
    input: R,
    sha256: sha2::Sha256,
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        Ok(read)
    }
}

fn drain(input: &mut impl Read) -> std::io::Result<()> {
    let mut buffer = [0; 32 << 10];
    while input.read(&mut buffer)? > 0 {}
    Ok(())
}

/// The digest of what a compressed layer unpacks to. `total` counts over all layers of the archive.
pub(super) fn unpack(
    input: &mut impl Read,
    compression: Compression,
    options: &Options,
    total: &mut u64,
) -> std::io::Result<Digest> {
    let input = std::io::BufReader::with_capacity(32 << 10, input);
    let mut layer = decoder(input, compression, options.limits.window_log)?;
    let mut sha256 = sha2::Sha256::new();
    let mut buffer = [0; 32 << 10];
    loop {
        let read = layer.read(&mut buffer)?;
        if read == 0 {
            return Ok(Digest::from_bytes(sha256.finalize().into()));
        }
        *total += read as u64;
        if *total > options.limits.unpacked {
            return Err(std::io::Error::other(UnpacksTooMuch));
        }
        sha256.update(&buffer[..read]);
    }
}
