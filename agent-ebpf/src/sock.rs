//! Sends: is the other end of this socket the watched one, and how does the call lay out its bytes?
//!
//! An accepted socket inherits the listener's path, so `peer.path` is set for what clients send and not for replies;
//! connections that are older than the agent match as well, by whatever path they were reached.

use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_probe_read_kernel_str, bpf_probe_read_user,
};
use imgwarden_ebpf::{NAME, SEGMENTS, SOCKETS, SocketKey};

use crate::{
    calls::Call,
    emit::{self, Source},
    fs::{descriptor, inode_key},
    layout::*,
    maps::{WATCHED, WATCHED_SOCKETS},
    memory::{Address, current, kernel, pointer},
};

const S_IFMT: u16 = 0o170000;
const S_IFSOCK: u16 = 0o140000;
const AF_UNIX: u16 = 1;

/// Whether the running process is the agent.
#[inline(always)]
fn own() -> bool {
    // SAFETY: the helper only returns a number.
    let pid = unsafe { bpf_get_current_pid_tgid() >> 32 } as u32;
    OWN.load() != 0 && pid == OWN.load()
}

/// The connection (its client's end's sockfs inode) if `fd` is connected to a watched socket.
#[inline(always)]
fn connection(fd: u32) -> Option<u64> {
    let file = descriptor(current(), fd)?;
    let inode = pointer(file, FILE_INODE.load())?;
    let mode: u16 = kernel(inode, INODE_MODE.load())?;
    if mode & S_IFMT != S_IFSOCK {
        return None;
    }
    let sk = pointer(pointer(file, FILE_PRIVATE.load())?, SOCKET_SK.load())?;
    let family: u16 = kernel(sk, SOCK_FAMILY.load())?;
    if family != AF_UNIX {
        return None;
    }
    let bound_at = pointer(pointer(sk, UNIX_PEER.load())?, UNIX_DENTRY.load())?;
    if !watched(bound_at)? {
        return None;
    }
    kernel(inode, INODE_INO.load())
}

/// Whether a bound socket's directory entry is watched.
#[inline(always)]
fn watched(entry: Address) -> Option<bool> {
    let dir = inode_key(pointer(pointer(entry, DENTRY_PARENT.load())?, DENTRY_INODE.load())?)?;
    // SAFETY: one field of a value that the agent replaces whole.
    if unsafe { WATCHED.get(&dir) }?.kinds & SOCKETS == 0 {
        return Some(false);
    }
    let mut key = SocketKey { dir, name: [0; NAME] };
    let name = pointer(entry, DENTRY_NAME.load())?;
    // SAFETY: the destination is as large as said.
    unsafe { bpf_probe_read_kernel_str(key.name.as_mut_ptr().cast(), NAME as u32, name.cast()) };
    // SAFETY: only whether it is there is asked.
    Some(unsafe { WATCHED_SOCKETS.get(&key) }.is_some())
}

/// A call on `fd` has sent `accepted` bytes.
#[inline(always)]
pub fn sent(call: Call, fd: u64, what: u64, count: u64, accepted: u64) {
    if own() {
        return;
    }
    let Some(connection) = connection(fd as u32) else { return };
    let source = match call {
        Call::Vector => many(what, count),
        Call::Message => {
            let segments = user(what + MSGHDR_IOV.load() as u64);
            let count = user(what + MSGHDR_IOVLEN.load() as u64);
            // What can't be read now is told as unreadable: segments at 0 are.
            many(segments.unwrap_or(0), count.unwrap_or(1))
        }
        _ => Source { segments: 0, count: 0, at: what, left: accepted },
    };
    emit::send(connection, accepted, source);
}

#[inline(always)]
fn many(segments: u64, count: u64) -> Source {
    let count = if count > SEGMENTS as u64 { SEGMENTS } else { count as u32 };
    Source { segments, count, at: 0, left: 0 }
}

/// A number in the sender's memory.
#[inline(always)]
fn user(address: u64) -> Option<u64> {
    let mut value = 0u64;
    // SAFETY: the helper checks the source; the destination is as large as said.
    let failed = unsafe { bpf_probe_read_user((&raw mut value).cast(), 8, address as *const _) };
    if failed == 0 { Some(value) } else { None }
}
