//! Numbers and strings of a header block (RFC 7541, 5). Takes its bytes, emits a string only if it is short enough to
//! matter, in memory that is wiped; of any other it emits the size.

use super::{HpackError, huffman};

/// The rest of a header block.
pub(super) struct Input<'a>(pub(super) &'a [u8]);

/// A decoded string if it has at most `N` bytes, and its size in any case. Wiped: it may be of a secret.
pub(super) struct Text<const N: usize> {
    bytes: zeroize::Zeroizing<[u8; N]>,
    pub(super) size: usize,
}

impl<const N: usize> Text<N> {
    pub(super) fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.size)
    }

    pub(super) fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        text.bytes().all(|byte| byte.is_ascii_graphic()).then_some(text)
    }
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, HpackError> {
        let (first, rest) = self.0.split_first().ok_or(HpackError::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    /// RFC 7541, 5.1.
    pub(super) fn number(&mut self, prefix: u32) -> Result<u64, HpackError> {
        let most = (1_u64 << prefix) - 1;
        let mut number = u64::from(self.byte()?) & most;
        if number < most {
            return Ok(number);
        }
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            number += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HpackError::Number)
    }

    /// RFC 7541, 5.2.
    pub(super) fn string<const N: usize>(&mut self) -> Result<Text<N>, HpackError> {
        let coded = self.0.first().ok_or(HpackError::Short)? & 0x80 != 0;
        let size = usize::try_from(self.number(7)?).map_err(|_| HpackError::Number)?;
        let (string, rest) = self.0.split_at_checked(size).ok_or(HpackError::Short)?;
        self.0 = rest;
        let mut text = Text { bytes: zeroize::Zeroizing::new([0; N]), size: 0 };
        let mut each = |byte| {
            if let Some(place) = text.bytes.get_mut(text.size) {
                *place = byte;
            }
            text.size += 1;
        };
        match coded {
            true => huffman::decode(string, each)?,
            false => string.iter().copied().for_each(&mut each),
        }
        Ok(text)
    }
}
