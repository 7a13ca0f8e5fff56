//! The entries of a tar, one after the other, in bounded memory.
//!
//! Headers are decoded by the `tar` crate, but the walk is our own: the crate reads long names and PAX records of any
//! length into memory, splits PAX records at newlines inside values (file capabilities have them), and can't say where
//! a stream broke off. Nothing is skipped by seeking, since the input may be compressed.

use std::io::{self, Read};

use super::{
    Limits, Stop,
    compression::{Compression, is_window_error},
    error::Fault,
};

const BLOCK: usize = 512;
/// Longest GNU long name; PATH_MAX is 4096.
const NAME: u64 = 64 << 10;
/// Longest PAX header of one entry; extended attributes are at most 64 KiB each.
const PAX: u64 = 1 << 20;

/// One entry. Its data is what the [`Walk`] reads until the next entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Cleaned: relative, no `.`, no `..`, no doubled slash.
    pub name: String,
    pub kind: Kind,
    /// Bytes of data.
    pub size: u64,
    /// Of the entry's own header in the uncompressed tar.
    pub offset: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    /// A symbolic link to this name of the archive, or a hard link.
    Link(String),
    /// A file with holes: its data isn't its content.
    Sparse,
}

/// How the tar ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// With the two blocks of zeros, or with one.
    Marked,
    /// The stream ended after an entry.
    Unmarked,
}

/// Where a walk is.
pub(super) struct Walk<'a> {
    input: Box<dyn Read + 'a>,
    compression: Compression,
    limits: Limits,
    stop: Stop,
    /// Bytes of the uncompressed tar that were read.
    position: u64,
    /// Data of the current entry that is still to be read, and the padding after it.
    left: u64,
    padding: u64,
    /// Name of the current entry.
    current: Option<String>,
    entries: usize,
    end: Option<End>,
}

/// PAX records that matter.
#[derive(Default)]
struct Pax {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    sparse: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        input: Box<dyn Read + 'a>,
        compression: Compression,
        limits: Limits,
        stop: Stop,
    ) -> Self {
        Self {
            input,
            compression,
            limits,
            stop,
            position: 0,
            left: 0,
            padding: 0,
            current: None,
            entries: 0,
            end: None,
        }
    }

    /// The next file or link. Directories and special files are passed over.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            match self.step()? {
                Step::Entry(entry) => return Ok(Some(entry)),
                Step::Passed => {}
                Step::End => return Ok(None),
            }
        }
    }

    fn step(&mut self) -> Result<Step, Fault> {
        self.skip(self.left.saturating_add(self.padding))?;
        let (mut long_name, mut long_link, mut pax) = (None, None, Pax::default());
        loop {
            let offset = self.position;
            let Some(block) = self.block()? else {
                if long_name.is_some() || long_link.is_some() {
                    return Err(self.truncated());
                }
                self.end = Some(End::Unmarked);
                return Ok(Step::End);
            };
            if block.iter().all(|byte| *byte == 0) {
                self.end = Some(End::Marked);
                return Ok(Step::End);
            }
            let header = self.header(&block, offset)?;
            self.entries += 1;
            if self.entries > self.limits.entries {
                return Err(Fault::Entries { limit: self.limits.entries });
            }
            let size = header.entry_size().map_err(|_| self.damaged(offset, "its size is no number"))?;
            match header.entry_type().as_byte() {
                b'L' => long_name = Some(self.extension(size, NAME, offset)?),
                b'K' => long_link = Some(self.extension(size, NAME, offset)?),
                b'x' => pax = self.pax(size, offset)?,
                // Defaults for all entries: a comment, in practice (git archive). Go's reader ignores them too.
                b'g' => self.skip_data(size)?,
                kind => {
                    let name = long_name.or(pax.path).unwrap_or_else(|| header.path_bytes().into_owned());
                    let link = long_link
                        .or(pax.link)
                        .unwrap_or_else(|| header.link_name_bytes().unwrap_or_default().into_owned());
                    let size = pax.size.unwrap_or(size);
                    if kind == b'S' {
                        self.sparse_map(header, offset)?;
                    }
                    return self.entry(kind, pax.sparse, &name, &link, size, offset);
                }
            }
        }
    }

    fn entry(
        &mut self,
        kind: u8,
        sparse: bool,
        raw: &[u8],
        link: &[u8],
        size: u64,
        offset: u64,
    ) -> Result<Step, Fault> {
        let raw = until_nul(raw);
        // Links, devices, directories and pipes have no data, whatever their header says (Go's isHeaderOnly).
        let (kind, size) = match kind {
            b'0' | 0 if raw.ends_with('/') => (None, size),
            b'0' | 0 if sparse => (Some(Kind::Sparse), size),
            b'0' | 0 => (Some(Kind::File), size),
            b'S' => (Some(Kind::Sparse), size),
            b'1' => (clean(&until_nul(link)).ok().map(Kind::Link), 0),
            b'2' => (beside(&raw, &until_nul(link)).map(Kind::Link), 0),
            b'3'..=b'6' => (None, 0),
            _ => (None, size),
        };
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
        self.current = Some(shorten(&raw));
        let Some(kind) = kind else { return Ok(Step::Passed) };
        let name = clean(&raw).map_err(|unclean| match unclean {
            Unclean::Absolute => Fault::AbsoluteName { entry: shorten(&raw) },
            Unclean::Outside => Fault::OutsideName { entry: shorten(&raw) },
        })?;
        Ok(Step::Entry(Entry { name, kind, size, offset }))
    }

    /// Looks at what follows the end: up to a megabyte, so that the checksum at a compressed stream's end is reached.
    /// `None` when there is nothing but zeros.
    pub(super) fn after_end(&mut self) -> Option<(u64, String)> {
        let mut buffer = [0; 8192];
        for _ in 0..128 {
            let at = self.position;
            match self.fill(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => {
                    if let Some(first) = buffer[..read].iter().position(|byte| *byte != 0) {
                        return Some((at + first as u64, "data".into()));
                    }
                }
                Err(error) => return Some((at, error.to_string())),
            }
        }
        None
    }

    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// Reads on to the data of the entry whose header is at `offset`, which must not lie behind, so that `size` bytes
    /// of it are read next. What is passed, the header included, isn't looked at: the caller knows the data's digest.
    pub(super) fn data(&mut self, name: &str, offset: u64, size: u64) -> Result<(), Fault> {
        self.current = Some(shorten(name));
        let start = offset.saturating_add(BLOCK as u64);
        self.skip(start.saturating_sub(self.position))?;
        self.left = size;
        Ok(())
    }

    /// Takes it that the input was moved to `offset`.
    pub(super) fn moved(&mut self, offset: u64) {
        (self.position, self.left, self.padding) = (offset, 0, 0);
    }

    /// What an error of this stream means.
    pub(super) fn fault(&self, error: io::Error) -> Fault {
        let (entry, offset) = (self.current.clone(), self.position);
        if self.stop.is_set() {
            return Fault::Stopped;
        }
        if error.get_ref().is_some_and(|inner| inner.is::<UnpacksTooMuch>()) {
            return Fault::Unpacked { limit: self.limits.unpacked };
        }
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Fault::Truncated { entry, offset },
            _ if error.raw_os_error().is_some() || self.compression == Compression::None => Fault::Io(error),
            _ if is_window_error(&error) => {
                Fault::Window { limit_mib: (1 << self.limits.window_log) >> 20, source: error }
            }
            _ => Fault::Corrupt { compression: self.compression, entry, offset, source: error },
        }
    }

    fn truncated(&self) -> Fault {
        Fault::Truncated { entry: self.current.clone(), offset: self.position }
    }

    fn damaged(&self, offset: u64, what: &'static str) -> Fault {
        Fault::Header { entry: self.current.clone(), offset, what }
    }

    fn header<'b>(&self, block: &'b [u8; BLOCK], offset: u64) -> Result<&'b tar::Header, Fault> {
        let header = tar::Header::from_byte_slice(block);
        let sum: u32 =
            block[..148].iter().chain(&block[156..]).map(|byte| u32::from(*byte)).sum::<u32>() + 8 * 32;
        if header.cksum().is_ok_and(|written| written == sum) {
            return Ok(header);
        }
        if offset == 0 {
            return Err(Fault::NotTar(super::compression::describe(block)));
        }
        Err(self.damaged(offset, "its checksum is wrong"))
    }

    /// One block, or `None` at the end of the stream.
    fn block(&mut self) -> Result<Option<[u8; BLOCK]>, Fault> {
        let mut block = [0; BLOCK];
        match self.fill(&mut block).map_err(|error| self.fault(error))? {
            0 => Ok(None),
            BLOCK => Ok(Some(block)),
            // No block at all: a file that is too short to be a tar.
            read if self.position == read as u64 => {
                Err(Fault::NotTar(super::compression::describe(&block[..read])))
            }
            _ => Err(self.truncated()),
        }
    }

    /// The content of an extension header.
    fn extension(&mut self, size: u64, limit: u64, offset: u64) -> Result<Vec<u8>, Fault> {
        if size > limit {
            return Err(self.damaged(offset, "its name or its extended header is too long"));
        }
        let mut content = vec![0; size as usize];
        let read = self.fill(&mut content).map_err(|error| self.fault(error))?;
        if read < content.len() {
            return Err(self.truncated());
        }
        self.skip(size.wrapping_neg() % BLOCK as u64)?;
        Ok(content)
    }

    fn skip_data(&mut self, size: u64) -> Result<(), Fault> {
        self.skip(size.saturating_add(size.wrapping_neg() % BLOCK as u64))
    }

    /// Records are `LENGTH KEY=VALUE\n`, the length counting all of it.
    fn pax(&mut self, size: u64, offset: u64) -> Result<Pax, Fault> {
        let content = self.extension(size, PAX, offset)?;
        let mut pax = Pax::default();
        let mut rest = content.as_slice();
        while !rest.is_empty() {
            let (key, value, after) =
                pax_record(rest).ok_or_else(|| self.damaged(offset, "its extended header is malformed"))?;
            match key {
                b"path" => pax.path = Some(value.to_vec()),
                b"linkpath" => pax.link = Some(value.to_vec()),
                b"size" => {
                    let text = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    pax.size =
                        Some(text.ok_or_else(|| self.damaged(offset, "its extended size is no number"))?);
                }
                _ if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
                _ => {}
            }
            rest = after;
        }
        Ok(pax)
    }

    /// Passes the blocks with the rest of an old GNU sparse map, which lie before the data and aren't counted in it.
    fn sparse_map(&mut self, header: &tar::Header, offset: u64) -> Result<(), Fault> {
        let mut more = header.as_gnu().is_some_and(tar::GnuHeader::is_extended);
        while more {
            let block = self.block()?.ok_or_else(|| self.truncated())?;
            // 21 pairs of 12 octal digits each, then the mark.
            more = block[504] == 1;
            if self.position - offset > PAX {
                return Err(self.damaged(offset, "its sparse map is too long"));
            }
        }
        Ok(())
    }

    fn skip(&mut self, mut bytes: u64) -> Result<(), Fault> {
        let mut buffer = [0; 32 << 10];
        while bytes > 0 {
            let part = bytes.min(buffer.len() as u64) as usize;
            let read = self.fill(&mut buffer[..part]).map_err(|error| self.fault(error))?;
            if read < part {
                return Err(self.truncated());
            }
            bytes -= read as u64;
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }

    /// As much of `buffer` as the stream still has.
    fn fill(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.pull(&mut buffer[filled..])? {
                0 => break,
                read => filled += read,
            }
        }
        Ok(filled)
    }

    fn pull(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.stop.is_set() {
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted));
        }
        let read = loop {
            match self.input.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.position += read as u64;
        if self.position > self.limits.unpacked {
            return Err(io::Error::other(UnpacksTooMuch));
        }
        Ok(read)
    }
}

/// The data of the current entry; an early end is an error.
impl Read for Walk<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let part = self.left.min(buffer.len() as u64) as usize;
        if part == 0 {
            return Ok(0);
        }
        let read = self.pull(&mut buffer[..part])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= read as u64;
        Ok(read)
    }
}

enum Step {
    Entry(Entry),
    Passed,
    End,
}

/// Travels through `io::Error` from a read to [`Walk::fault`].
#[derive(Debug, thiserror::Error)]
#[error("unpacks to too much")]
pub(super) struct UnpacksTooMuch;

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
fn beside(name: &str, target: &str) -> Option<String> {
    if target.starts_with('/') {
        return None;
    }
    let directory = name.trim_end_matches('/').rsplit_once('/').map_or("", |(directory, _)| directory);
    clean(&format!("{}/{target}", if directory.is_empty() { "." } else { directory })).ok()
}

fn until_nul(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A name in a message: at most 200 characters.
fn shorten(name: &str) -> String {
    name.chars().take(200).collect()
}

/// Key, value, and what comes after the record.
fn pax_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(&bytes[..space]).ok()?.parse().ok()?;
    if length > bytes.len() || length < space + 2 {
        return None;
    }
    let (record, after) = bytes.split_at(length);
    let record = record[space + 1..].strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], after))
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

    #[test]
    fn pax_values_may_hold_newlines() {
        let (key, value, after) = pax_record(b"13 key=a\nb=c\n9 a=b\n").unwrap();
        assert_eq!((key, value, after), (&b"key"[..], &b"a\nb=c"[..], &b"9 a=b\n"[..]));
        for bad in [&b"99 a=b\n"[..], b"3 a=b\n", b"x a=b\n", b"6 a=bc", b"0 ", b"7 abcd\n"] {
            assert_eq!(pax_record(bad), None, "{bad:?}");
        }
    }
}
