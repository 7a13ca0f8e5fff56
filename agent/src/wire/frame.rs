//! The header of an HTTP/2 frame: takes nine bytes, says what they announce, whether a client may send it, and whether
//! it is likely to be one at all.

use std::ops::Range;

/// What a client sends first (RFC 9113, 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEADER: usize = 9;
/// The largest payload without a SETTINGS_MAX_FRAME_SIZE of containerd's, and it sends none.
const LARGEST: u32 = 16 * 1024;

const END_STREAM: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// The nine bytes before a frame's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    pub length: u32,
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    /// A bit that is never set.
    pub reserved: bool,
}

impl FrameHeader {
    pub fn parse(bytes: &[u8; HEADER]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        let stream = u32::from_be_bytes([s0, s1, s2, s3]);
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]),
            kind,
            flags,
            stream: stream & 0x7fff_ffff,
            reserved: stream >> 31 != 0,
        }
    }

    pub fn ends_stream(self) -> bool {
        self.flags & END_STREAM != 0
    }

    /// Whether a client may send it: what RFC 9113 makes a connection error is none.
    pub(super) fn is_legal(self) -> bool {
        let Self { length, kind, stream, .. } = self;
        let odd = stream % 2 == 1;
        match kind {
            0 | 1 | 9 => odd,
            2 => odd && length == 5,
            3 => odd && length == 4,
            4 => stream == 0 && length.is_multiple_of(6),
            6 => stream == 0 && length == 8,
            7 => stream == 0 && length >= 8,
            8 => (odd || stream == 0) && length == 4,
            // A client pushes nothing.
            5 => false,
            _ => true,
        }
    }

    /// Whether it looks like the header of a frame and not like nine bytes of something else: of bytes inside
    /// containerd's own traffic 7 in 100 000 do.
    pub fn is_plausible(self) -> bool {
        let Self { length, kind, flags, reserved, .. } = self;
        let allowed = match kind {
            0 => END_STREAM | PADDED,
            1 => END_STREAM | END_HEADERS | PADDED | PRIORITY,
            4 | 6 => END_STREAM,
            9 => END_HEADERS,
            _ => 0,
        };
        let acknowledges = kind == 4 && flags == END_STREAM && length != 0;
        kind <= 9
            && !reserved
            && length <= LARGEST
            && flags & !allowed == 0
            && !acknowledges
            && !(kind == 1 && length == 0)
            && self.is_legal()
    }
}

/// Whether `bytes` look like frames from their beginning on: every header that lies in them is plausible.
pub(super) fn begins_a_frame(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut found = false;
    while let Some((header, after)) = rest.split_first_chunk() {
        let header = FrameHeader::parse(header);
        // A continuation begins nothing: the block before it is lost.
        if !header.is_plausible() || (!found && header.kind == 9) {
            return false;
        }
        found = true;
        rest = after.get(header.length as usize..).unwrap_or_default();
    }
    found
}

/// The part of a HEADERS payload that is the block: without padding and priority.
pub(super) fn fragment(header: FrameHeader, payload: &[u8]) -> Option<Range<usize>> {
    let (mut start, mut end) = (0, payload.len());
    if header.flags & PADDED != 0 {
        start += 1;
        end = end.checked_sub(usize::from(*payload.first()?))?;
    }
    if header.flags & PRIORITY != 0 {
        start += 5;
    }
    (start <= end).then_some(start..end)
}
