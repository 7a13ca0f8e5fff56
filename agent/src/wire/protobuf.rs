//! A protobuf reader that walks the fields of one message and copies nothing, so that a field which must not be
//! decoded is never anything but a range of captured bytes.

/// The bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a protobuf message")]
pub(super) struct Malformed;

/// A field's value by its wire type.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Varint(u64),
    /// A string, bytes or a message.
    Bytes(&'a [u8]),
    /// 32 or 64 bits.
    Fixed,
}

/// The fields of a message in the order of the wire; ends after the first malformed one.
pub(super) struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a [u8]) -> Self {
        Self(message)
    }

    fn field(&mut self) -> Result<(u32, Value<'a>), Malformed> {
        let key = self.varint()?;
        let number = u32::try_from(key >> 3).map_err(|_| Malformed)?;
        if number == 0 || number >= 1 << 29 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let size = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Value::Bytes(self.take(size)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            // Groups: no message of containerd has one.
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    fn take(&mut self, size: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(size).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..70).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            if shift == 63 && *byte > 1 {
                return Err(Malformed);
            }
            number |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Value<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use prost::Message as _;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_walked_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let refused = Fields::of(&bytes).filter(Result::is_err).count();
            prop_assert!(refused <= 1);
        }

        #[test]
        fn reads_what_prost_writes(seconds in any::<i64>(), name in ".{0,300}") {
            let lease = containerd_client::types::Descriptor {
                media_type: name.clone(),
                size: seconds,
                ..Default::default()
            };
            let bytes = lease.encode_to_vec();
            let (mut seen_name, mut seen_size) = (String::new(), 0);
            for field in Fields::of(&bytes) {
                match field.unwrap() {
                    (1, Value::Bytes(text)) => seen_name = String::from_utf8(text.to_vec()).unwrap(),
                    (3, Value::Varint(size)) => seen_size = size as i64,
                    (number, _) => prop_assert!(false, "field {number}"),
                }
            }
            prop_assert_eq!((seen_name, seen_size), (name, seconds));
        }
    }
}
