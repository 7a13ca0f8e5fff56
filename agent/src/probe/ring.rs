//! Ring bytes to typed records, without copying what was sent.
//!
//! The kernel side is trusted to write whole records, and still nothing here goes beyond the bytes that are there.

use std::{io, os::fd::AsRawFd};

use imgwarden_ebpf::{EXIT, Exit, Key, Kin, REMOVAL, RemovalHead, SEND, SEND_MORE, SendHead, Stamp, read};

use tokio::io::{Interest, unix::AsyncFd};

use super::record::ProcessKey;

/// Descriptors that a descriptor's owner keeps open, and the same, for as long as it lives.
pub(super) trait Steady: AsRawFd {}

impl Steady for aya::maps::RingBuf<aya::maps::MapData> {}
impl Steady for std::os::fd::OwnedFd {}

/// Wakes when `fd` can be read.
#[expect(unsafe_code, reason = "Tokio has no safe way to register a descriptor that it does not own")]
pub(super) fn readable<T: Steady>(fd: T) -> io::Result<AsyncFd<T>> {
    // SAFETY: a `Steady` owner gives the same open descriptor until it is dropped, and the `AsyncFd` owns the owner.
    unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.map_err(|error| error.into_parts().1)
}

/// A record of the request ring.
#[derive(Debug)]
pub(super) struct Part<'ring> {
    /// Of the first part of a write that the ring took.
    pub stamp: Option<Stamp>,
    pub head: SendHead,
    pub bytes: &'ring [u8],
}

/// A record of the removal ring.
#[derive(Debug)]
pub(super) enum Gone {
    Removal { stamp: Box<Stamp>, head: Box<RemovalHead>, path: Vec<u8> },
    Exit(Exit),
}

impl Gone {
    /// Nanoseconds since boot.
    pub(super) fn at(&self) -> u64 {
        match self {
            Self::Removal { head, .. } => head.at,
            Self::Exit(exit) => exit.at,
        }
    }
}

pub(super) fn part(bytes: &[u8]) -> Option<Part<'_>> {
    let (stamp, rest) = match kind(bytes)? {
        SEND => (Some(read::<Stamp>(bytes)?), bytes.get(size_of::<Stamp>()..)?),
        SEND_MORE => (None, bytes),
        _ => return None,
    };
    let head = read::<SendHead>(rest)?;
    let bytes = rest.get(size_of::<SendHead>()..)?.get(..usize::try_from(head.len).ok()?)?;
    Some(Part { stamp, head, bytes })
}

pub(super) fn gone(bytes: &[u8]) -> Option<Gone> {
    match kind(bytes)? {
        EXIT => read::<Exit>(bytes).map(Gone::Exit),
        REMOVAL => {
            let stamp = Box::new(read::<Stamp>(bytes)?);
            let rest = bytes.get(size_of::<Stamp>()..)?;
            let head = Box::new(read::<RemovalHead>(rest)?);
            let path =
                rest.get(size_of::<RemovalHead>()..)?.get(..usize::try_from(head.path_len).ok()?)?.to_vec();
            Some(Gone::Removal { stamp, head, path })
        }
        _ => None,
    }
}

fn kind(bytes: &[u8]) -> Option<u32> {
    bytes.get(..4)?.try_into().ok().map(u32::from_ne_bytes)
}

/// A key as map bytes.
pub(super) fn key_bytes(key: Key) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&key.pid.to_ne_bytes());
    bytes[4..8].copy_from_slice(&key.image.to_ne_bytes());
    bytes[8..].copy_from_slice(&key.start.to_ne_bytes());
    bytes
}

/// Text that ends at the first zero. What is no UTF-8 is replaced: it is shown to people, never compared.
pub(super) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(until_zero(bytes)).into_owned()
}

pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|&byte| byte == 0).map_or(bytes, |end| &bytes[..end])
}

pub(super) fn process_key(kin: &Kin) -> ProcessKey {
    ProcessKey { pid: kin.key.pid, start: kin.key.start }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_record_or_none(kind in 0u32..6, mut bytes in proptest::collection::vec(any::<u8>(), 4..2000)) {
            bytes[..4].copy_from_slice(&kind.to_ne_bytes());
            if let Some(part) = part(&bytes) {
                prop_assert_eq!(part.bytes.len() as u64, part.head.len);
            }
            let _ = gone(&bytes);
        }
    }
}
