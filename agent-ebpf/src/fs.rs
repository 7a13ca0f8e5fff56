//! Removals: did an entry of a watched directory go?
//!
//! A relative path starts in a directory that is known by identity. An absolute one (or one from elsewhere) counts as a
//! candidate when its last component looks like a blob's, a snapshot's or a watched directory's name; the agent decides.

use aya_ebpf::{
    helpers::generated::{bpf_ktime_get_boot_ns, bpf_probe_read_user_str, bpf_ringbuf_output},
    macros::map,
    maps::PerCpuArray,
};
use imgwarden_ebpf::{
    ABOVE, BLOBS, FileKey, LOST_PATHS, LOST_REMOVALS, OTHER, PATH, REMOVAL, RemovalHead, SNAPSHOTS, Stamp,
    Watched,
};

use crate::{
    layout::*,
    maps::{GONE, WATCHED, lost},
    memory::{Address, bound, current, kernel, pointer, typed, typed_pointer},
    task,
};

const AT_FDCWD: i32 = -100;

/// One removal while it is looked at: what was asked, then the record itself. Too large for the stack.
#[repr(C)]
pub struct Looked {
    path: u64,
    other: u64,
    dirfd: i32,
    how: u32,
    record: Record,
}

#[repr(C)]
struct Record {
    stamp: Stamp,
    head: RemovalHead,
    /// Twice PATH_MAX, so that an offset and a length that are masked apart can't leave it.
    text: [u8; 2 * PATH],
}

#[map]
static LOOKED: PerCpuArray<Looked> = PerCpuArray::with_max_entries(1, 0);

/// An inode's identity.
#[inline(always)]
pub fn inode_key(inode: Address) -> Option<FileKey> {
    let device = pointer(inode, INODE_SB.load())?;
    Some(FileKey { dev: kernel(device, SB_DEV.load())?, zero: 0, ino: kernel(inode, INODE_INO.load())? })
}

/// An open file's identity.
#[inline(always)]
pub fn file_key(file: Address) -> Option<FileKey> {
    inode_key(pointer(file, FILE_INODE.load())?)
}

/// The open file behind a descriptor of the task.
#[inline(always)]
pub fn descriptor(task: Address, fd: u32) -> Option<Address> {
    let files = typed_pointer(task, TASK_FILES.load())?;
    let table = typed_pointer(files, FILES_FDT.load())?;
    if fd >= typed::<u32>(table, FDT_MAX.load())? {
        return None;
    }
    let slots = typed_pointer(table, FDT_FD.load())?;
    // From here on the verifier knows no type: `fd` is a pointer to pointers.
    pointer(slots.wrapping_add(fd as usize * 8), 0)
}

/// The watched directory that a relative path starts in.
#[inline(always)]
fn base(dirfd: i32) -> Option<Watched> {
    let task = current();
    let inode = if dirfd == AT_FDCWD {
        let fs = typed_pointer(task, TASK_FS.load())?;
        pointer(typed_pointer(fs, FS_PWD.load())?, DENTRY_INODE.load())?
    } else {
        pointer(descriptor(task, dirfd as u32)?, FILE_INODE.load())?
    };
    let key = inode_key(inode)?;
    // SAFETY: the value is copied at once; the agent replaces values whole.
    unsafe { WATCHED.get(&key).copied() }.filter(|watched| watched.kinds & (BLOBS | SNAPSHOTS | ABOVE) != 0)
}

/// Looks at one path that a successful call has taken away.
#[inline(always)]
pub fn removed(dirfd: u64, path: u64, how: u32, other: u64) {
    let Some(looked) = LOOKED.get_ptr_mut(0) else { return };
    // SAFETY: the slot is this CPU's own, and a program does not interrupt itself on one CPU (bpf_prog.active).
    unsafe {
        (*looked).dirfd = dirfd as i32;
        (*looked).path = path;
        (*looked).how = how;
        (*looked).other = other;
    }
    look();
}

/// The work of `removed`: a global function, so that the verifier walks it once and not once a call.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn look() -> u64 {
    let Some(looked) = LOOKED.get_ptr_mut(0) else { return 0 };
    // SAFETY: as in `removed`.
    let Looked { path, other, dirfd, how, record: Record { stamp, head, text } } = unsafe { &mut *looked };
    // SAFETY: the destination is at least as large as said.
    let read = unsafe { bpf_probe_read_user_str(text.as_mut_ptr().cast(), PATH as u32, *path as *const _) };
    if read < 0 {
        lost(LOST_PATHS);
        return 0;
    }
    if read < 2 {
        return 0;
    }
    let len = bound::<0xfff>(read as u64 - 1);
    let watched = if text[0] == b'/' { None } else { base(*dirfd) };
    if watched.is_none() && !shaped(text, len) {
        return 0;
    }
    task::stamp(stamp);
    stamp.kind = REMOVAL;
    // SAFETY: the helper only returns a number.
    head.at = unsafe { bpf_ktime_get_boot_ns() };
    head.how = *how;
    head.base = watched.map_or(0, |watched| watched.id);
    head.from_descriptor = (*dirfd != AT_FDCWD) as u32;
    head.path_len = len as u32;
    head.other[0] = 0;
    if *other != 0 {
        // SAFETY: the destination is as large as said.
        unsafe { bpf_probe_read_user_str(head.other.as_mut_ptr().cast(), OTHER as u32, *other as *const _) };
    }
    let size = (size_of::<Stamp>() + size_of::<RemovalHead>()) as u64 + len;
    // SAFETY: the record is larger than any masked length.
    let failed = unsafe {
        bpf_ringbuf_output((&raw const GONE).cast_mut().cast(), (stamp as *mut Stamp).cast(), size, 0)
    };
    if failed < 0 {
        lost(LOST_REMOVALS);
    }
    0
}

/// What a byte may be part of. A table and no comparisons: each comparison of 70 bytes is a branch that the verifier
/// follows both ways.
const HEX: u8 = 1;
const DIGIT: u8 = 2;
const SLASH: u8 = 4;
static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        classes[byte] = match byte as u8 {
            b'0'..=b'9' => HEX | DIGIT,
            b'a'..=b'f' => HEX,
            b'/' => SLASH,
            _ => 0,
        };
        byte += 1;
    }
    classes
};
/// Digits of a snapshot's number at most.
const DIGITS: u32 = 10;

/// Whether the last component is a blob's name (64 hex digits), a snapshot's (at most ten digits) or one of the
/// directories' above them, after a slash. A name alone, without a slash, lies in its base directory, which is not watched.
#[inline(always)]
fn shaped(text: &[u8; 2 * PATH], len: u64) -> bool {
    let at = |n: u64| text[bound::<0xfff>(n) as usize];
    let len = if at(len.wrapping_sub(1)) == b'/' { len - 1 } else { len };
    if len >= 65 && at(len - 65) == b'/' {
        let mut all = HEX;
        for n in 1..=64u64 {
            all &= CLASSES[at(len.wrapping_sub(n)) as usize];
        }
        if all != 0 {
            return true;
        }
    }
    // Bit n: what the n-th byte from the end is.
    let (mut digits, mut slashes) = (0u32, 0u32);
    for n in 1..=(DIGITS + 1) {
        let class = CLASSES[at(len.wrapping_sub(n as u64)) as usize] as u32;
        digits |= ((class >> 1) & 1) << n;
        slashes |= ((class >> 2) & 1) << n;
    }
    for n in 2..=(DIGITS + 1) {
        let before = (1u32 << n) - 2;
        if slashes >> n & 1 == 1 && digits & before == before {
            return len >= n as u64;
        }
    }
    ends(text, len, b"/sha256") || ends(text, len, b"/blobs") || ends(text, len, b"/snapshots")
}

#[inline(always)]
fn ends<const N: usize>(text: &[u8; 2 * PATH], len: u64, with: &[u8; N]) -> bool {
    if len < N as u64 {
        return false;
    }
    let mut differ = 0;
    for n in 0..N {
        differ |= text[bound::<0xfff>(len - (N - n) as u64) as usize] ^ with[n];
    }
    differ == 0
}
