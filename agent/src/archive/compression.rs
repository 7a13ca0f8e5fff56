//! What compresses a file: found by its first bytes, never by its name, and undone while streaming.

use std::{
    fmt,
    io::{self, BufRead, Read},
};

use bzip2::bufread::MultiBzDecoder;
use flate2::bufread::MultiGzDecoder;
use lz4_flex::frame::FrameDecoder;
use zstd::stream::read::Decoder as ZstdDecoder;

/// A compression that archives or layers come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Gzip,
    Zstd,
    Lz4,
    Bzip2,
}

impl Compression {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "plain",
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
            Self::Lz4 => "lz4",
            Self::Bzip2 => "bzip2",
        }
    }

    /// By the first bytes; six are enough.
    pub(super) fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, 0x08, ..] => Self::Gzip,
            // The second is a skippable frame, with which pzstd and zstd:chunked may start. lz4 has the same; alone
            // it says nothing, and the zstd decoder then says what it thinks of the rest.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => Self::Lz4,
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => Self::Bzip2,
            _ => Self::None,
        }
    }

    /// Layers may be gzip or zstd; anything else is taken as it is, as containerd does.
    pub(super) fn of_layer(head: &[u8]) -> Self {
        match Self::of(head) {
            found @ (Self::Gzip | Self::Zstd) => found,
            Self::None | Self::Lz4 | Self::Bzip2 => Self::None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a file is that is no archive, for the message: by its first bytes.
pub(super) fn describe(head: &[u8]) -> &'static str {
    match head {
        [0x7f, b'E', b'L', b'F', ..] => "an executable",
        [b'P', b'K', 3, 4, ..] => "a zip file",
        _ if head.iter().all(|b| *b == 0) => "zeros",
        _ if head.iter().all(|b| matches!(b, b'\t' | b'\n' | b'\r' | 0x20..=0x7e | 0x80..)) => "text",
        _ => "unknown data",
    }
}

/// Compressions that are known but not undone.
pub(super) fn unsupported(head: &[u8]) -> Option<&'static str> {
    match head {
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some("xz"),
        [0x5d, 0, 0, _, _, _, ..] => Some("lzma"),
        [b'7', b'z', 0xbc, 0xaf, ..] => Some("7z"),
        _ => None,
    }
}

/// The uncompressed bytes. Concatenated streams are one, as the tools write them in parallel.
pub(super) fn decoder<'a, R: BufRead + 'a>(
    input: R,
    compression: Compression,
    window_log: u32,
) -> io::Result<Box<dyn Read + 'a>> {
    Ok(match compression {
        Compression::None => Box::new(input),
        Compression::Gzip => Box::new(MultiGzDecoder::new(input)),
        Compression::Bzip2 => Box::new(MultiBzDecoder::new(input)),
        Compression::Lz4 => Box::new(Lz4Frames(FrameDecoder::new(input))),
        Compression::Zstd => {
            let mut decoder = ZstdDecoder::with_buffer(input)?;
            decoder.window_log_max(window_log)?;
            Box::new(decoder)
        }
    })
}

/// libzstd has a code for this that the crate turns into its text.
pub(super) fn is_window_error(error: &io::Error) -> bool {
    error.to_string().contains("requires too much memory")
}

/// All lz4 frames of a stream: the crate's decoder stops after each.
struct Lz4Frames<R: Read>(FrameDecoder<R>);

impl<R: Read> Read for Lz4Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            // The end of a frame; the next call starts another, or finds the end of the stream.
            0 => self.0.read(buffer),
            read => Ok(read),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn unpack(bytes: &[u8], window_log: u32) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        decoder(bytes, Compression::of(bytes), window_log)?.read_to_end(&mut out)?;
        Ok(out)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn lz4(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn bzip2(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn concatenated_streams_of_every_kind_are_one() {
        for pack in [gzip, lz4, bzip2, |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap()] {
            let both = [pack(b"first "), pack(b"second")].concat();
            assert_ne!(Compression::of(&both), Compression::None);
            assert_eq!(unpack(&both, 27).unwrap(), b"first second");
        }
        assert_eq!(unpack(b"as it is", 27).unwrap(), b"as it is");
    }

    #[test]
    fn a_cut_stream_is_an_unexpected_end() {
        let text = b"some text that is long enough to be cut ".repeat(100);
        for pack in [gzip, lz4, bzip2, |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap()] {
            let whole = pack(&text);
            let error = unpack(&whole[..whole.len() / 2], 27).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{:?}: {error}", Compression::of(&whole));
        }
    }

    #[test]
    fn a_zstd_window_over_the_limit_is_refused_by_its_own_error() {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(24).unwrap();
        encoder.include_contentsize(false).unwrap();
        encoder.write_all(b"text").unwrap();
        let bytes = encoder.finish().unwrap();
        assert_eq!(unpack(&bytes, 24).unwrap(), b"text");
        let error = unpack(&bytes, 23).unwrap_err();
        assert!(is_window_error(&error), "{error}");
    }

    #[test]
    fn what_is_no_archive_has_a_name() {
        assert_eq!(describe(b"docker.io/rancher/pause:3.6\n"), "text");
        assert_eq!(describe(&[0; 512]), "zeros");
        assert_eq!(describe(b"\x7fELF\x02\x01"), "an executable");
        assert_eq!(describe(&[1, 2, 3, 4]), "unknown data");
        assert_eq!(unsupported(b"\xfd7zXZ\0\0"), Some("xz"));
    }
}
