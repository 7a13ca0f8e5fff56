//! PAX extended headers. The `tar` crate splits them at newlines, and values may hold those: file capabilities do.

/// PAX records that matter.
#[derive(Default)]
pub(super) struct Pax {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    /// The file has holes.
    pub sparse: bool,
}

impl Pax {
    /// Records are `LENGTH KEY=VALUE\n`, the length counting all of it. The error says what is wrong.
    pub(super) fn parse(mut rest: &[u8]) -> Result<Self, &'static str> {
        let mut pax = Self::default();
        while !rest.is_empty() {
            let (key, value, after) = record(rest).ok_or("its extended header is malformed")?;
            match key {
                b"path" => pax.path = Some(value.to_vec()),
                b"linkpath" => pax.link = Some(value.to_vec()),
                b"size" => {
                    let size = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    pax.size = Some(size.ok_or("its extended size is no number")?);
                }
                _ if key.starts_with(b"GNU.sparse.") => pax.sparse = true,
                _ => {}
            }
            rest = after;
        }
        Ok(pax)
    }
}

/// Key, value, and what comes after the record.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
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
    fn pax_values_may_hold_newlines() {
        let (key, value, after) = record(b"13 key=a\nb=c\n9 a=b\n").unwrap();
        assert_eq!((key, value, after), (&b"key"[..], &b"a\nb=c"[..], &b"9 a=b\n"[..]));
        for bad in [&b"99 a=b\n"[..], b"3 a=b\n", b"x a=b\n", b"6 a=bc", b"0 ", b"7 abcd\n"] {
            assert_eq!(record(bad), None, "{bad:?}");
        }
    }
}
