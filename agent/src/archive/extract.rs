//! Blobs out of an archive, verified on their way.
//!
//! Only wanted blobs are handed out, and only as long as the archive is the file that was catalogued. A plain tar is
//! read at the blobs alone; a compressed one up to the last of them.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
};

use sha2::Digest as _;

use crate::{digest::Digest, inventory::image::Descriptor};

use super::{
    ArchivedBlob, FileIdentity, Options, Place,
    compression::{Compression, decoder},
    contents::unpack,
    error::{ArchiveError, Fault},
    read::{Opened, open},
    walk::Walk,
};

/// Where blobs go. An error ends the extraction.
pub trait BlobSink {
    /// A blob starts.
    fn begin(&mut self, descriptor: &Descriptor) -> io::Result<()>;
    /// Its next bytes, not verified yet.
    fn write(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// It ends. Only when `verified` may it be used: its digest, its size, and what it unpacks to are right. Otherwise
    /// what was written must be thrown away.
    fn finish(&mut self, verified: bool) -> io::Result<()>;
}

/// What an extraction gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extracted {
    /// All that was wanted, each verified; made ones first, then by their place in the archive.
    pub blobs: Vec<Digest>,
    /// Bytes of them.
    pub bytes: u64,
}

/// Streams `wanted` to `sink`. Ends at the first blob that is wrong, after `finish(false)`; what was finished before is
/// good all the same.
pub fn extract(
    path: &Path,
    identity: &FileIdentity,
    wanted: &[&ArchivedBlob],
    options: &Options,
    sink: &mut dyn BlobSink,
) -> Result<Extracted, ArchiveError> {
    let extraction = Extraction { path, identity, options, sink };
    extraction.run(wanted).map_err(|fault| ArchiveError { path: path.into(), fault })
}

struct Extraction<'a> {
    path: &'a Path,
    identity: &'a FileIdentity,
    options: &'a Options,
    sink: &'a mut dyn BlobSink,
}

impl Extraction<'_> {
    fn run(mut self, wanted: &[&ArchivedBlob]) -> Result<Extracted, Fault> {
        let Opened { file, identity, compression } = open(self.path)?;
        if identity != *self.identity {
            return Err(Fault::Replaced);
        }
        let mut extracted = Extracted { blobs: Vec::new(), bytes: 0 };
        let mut stored = Vec::new();
        for blob in wanted {
            match &blob.place {
                Place::Made(bytes) if !extracted.blobs.contains(&blob.descriptor.digest) => {
                    self.blob(&blob.descriptor, ("", 0), None, None, &mut &bytes[..])?;
                    extracted.note(&blob.descriptor);
                }
                Place::Made(_) => {}
                Place::Entry { name, offset } => stored.push((*offset, name.as_str(), *blob)),
            }
        }
        stored.sort_by_key(|(offset, ..)| *offset);
        stored.dedup_by_key(|(offset, ..)| *offset);
        let mut walk = self.walk(&file, compression)?;
        for (offset, name, blob) in stored {
            if compression == Compression::None {
                (&file).seek(SeekFrom::Start(offset)).map_err(Fault::Io)?;
                walk = self.walk(&file, compression)?;
                walk.moved(offset);
            }
            walk.data(name, offset, blob.descriptor.size)?;
            self.entry(&mut walk, blob, (name, offset))?;
            extracted.note(&blob.descriptor);
        }
        Ok(extracted)
    }

    fn walk<'f>(&self, file: &'f File, compression: Compression) -> Result<Walk<'f>, Fault> {
        let input = BufReader::with_capacity(128 << 10, file);
        let decoder = decoder(input, compression, self.options.limits.window_log).map_err(Fault::Io)?;
        Ok(Walk::new(decoder, compression, self.options.limits, self.options.stop.clone()))
    }

    fn entry(&mut self, walk: &mut Walk<'_>, blob: &ArchivedBlob, at: (&str, u64)) -> Result<(), Fault> {
        let mut failed = None;
        let mut input = Noting { input: walk, failed: &mut failed };
        let result = self.blob(&blob.descriptor, at, blob.diff_id, Some(self.path), &mut input);
        match failed {
            Some(error) => Err(walk.fault(error)),
            None => result,
        }
    }

    /// One blob from `input` to the sink.
    fn blob(
        &mut self,
        descriptor: &Descriptor,
        at: (&str, u64),
        diff_id: Option<Digest>,
        file: Option<&Path>,
        input: &mut dyn Read,
    ) -> Result<(), Fault> {
        let stored = |source| Fault::Sink { digest: descriptor.digest, source };
        self.sink.begin(descriptor).map_err(stored)?;
        let mut tee = Tee { input, sink: self.sink, sha256: sha2::Sha256::new(), bytes: 0, failed: None };
        let unpacked = tee.pass(diff_id.is_some(), self.options);
        let Tee { sha256, bytes, failed, .. } = tee;
        let found = Digest::from_bytes(sha256.finalize().into());
        let (entry, offset) = (at.0.to_owned(), at.1);
        let result = if let Some(error) = failed {
            Err(stored(error))
        } else {
            match unpacked {
                Err(error) => Err(Fault::Io(error)),
                Ok(_) if bytes != descriptor.size => {
                    Err(Fault::Size { entry, offset, expected: descriptor.size, found: bytes })
                }
                Ok(_) if found != descriptor.digest => {
                    Err(Fault::Mismatch { entry, offset, expected: descriptor.digest, found })
                }
                Ok(unpacked) => match (diff_id, unpacked) {
                    (None, _) | (_, None) => Ok(()),
                    (Some(_), Some(Err(source))) => Err(Fault::Layer { entry, offset, source }),
                    (Some(expected), Some(Ok(found))) if found != expected => {
                        Err(Fault::Unpacks { entry, offset, expected, found })
                    }
                    (Some(_), Some(Ok(_))) => Ok(()),
                },
            }
        };
        match result {
            Ok(()) => self.sink.finish(true).map_err(stored),
            Err(fault) => {
                // The fault is what counts; a sink that can't even throw away says so when it is used again.
                let _ = self.sink.finish(false);
                let replaced = file
                    .and_then(|path| std::fs::metadata(path).ok())
                    .is_some_and(|metadata| FileIdentity::from(&metadata) != *self.identity);
                Err(if replaced && !matches!(fault, Fault::Sink { .. }) { Fault::Replaced } else { fault })
            }
        }
    }
}

impl Extracted {
    fn note(&mut self, descriptor: &Descriptor) {
        self.blobs.push(descriptor.digest);
        self.bytes += descriptor.size;
    }
}

/// Keeps the archive's own read error apart from those of a layer's decoder.
struct Noting<'a, 'w> {
    input: &'a mut Walk<'w>,
    failed: &'a mut Option<io::Error>,
}

impl Read for Noting<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).inspect_err(|error| {
            // An error can't be cloned; kind and text are what the fault is made of.
            *self.failed = Some(match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => io::Error::new(error.kind(), error.to_string()),
            });
        })
    }
}

/// Hashes what is read, and hands it to the sink.
struct Tee<'a> {
    input: &'a mut dyn Read,
    sink: &'a mut dyn BlobSink,
    sha256: sha2::Sha256,
    bytes: u64,
    failed: Option<io::Error>,
}

impl Tee<'_> {
    /// Reads to the end. For a layer: what it unpacks to as well, `None` when the blob is no layer.
    fn pass(&mut self, layer: bool, options: &Options) -> io::Result<Option<io::Result<Digest>>> {
        let mut buffered = BufReader::with_capacity(64 << 10, &mut *self);
        let compression = Compression::of_layer(buffered.fill_buf()?);
        let unpacked = match (layer, compression) {
            (false, _) => None,
            (true, Compression::None) => Some(None),
            (true, compression) => Some(Some(unpack(&mut buffered, compression, options, &mut 0))),
        };
        // A decoder may stop before the end.
        io::copy(&mut buffered, &mut io::sink())?;
        Ok(unpacked.map(|unpacked| {
            unpacked.unwrap_or_else(|| Ok(Digest::from_bytes(self.sha256.clone().finalize().into())))
        }))
    }
}

impl Read for Tee<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.sha256.update(&buffer[..read]);
        self.bytes += read as u64;
        if read > 0
            && let Err(error) = self.sink.write(&buffer[..read])
        {
            self.failed = Some(error);
            return Err(io::ErrorKind::Other.into());
        }
        Ok(read)
    }
}
