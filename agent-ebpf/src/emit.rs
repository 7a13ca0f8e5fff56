//! Bytes of a send into the ring, in parts.
//!
//! A machine of small steps: one step takes a segment, or copies as much of it as the part has room for. Its state lies
//! in a per-CPU map and the step is a global function without arguments, so that the verifier walks it once, whatever
//! the number of steps (inlined in a loop it is 350,000 instructions on 6.18 and no verdict on 6.1).

use aya_ebpf::{
    helpers::generated::{
        bpf_get_smp_processor_id, bpf_ktime_get_boot_ns, bpf_probe_read_user, bpf_ringbuf_output,
    },
    macros::map,
    maps::PerCpuArray,
};
use imgwarden_ebpf::{
    CHUNK, Key, LOST_SENDS, LOST_UNREADABLE, SEND, SEND_LIMIT, SEND_MORE, STEPS, SendHead, Stamp, UNREADABLE,
};

use crate::{
    maps::{REQUESTS, SENDERS, lost},
    memory::bound,
    task,
};

/// Where a call's bytes lie in the sender's memory.
#[derive(Clone, Copy)]
pub struct Source {
    /// The address of an array of (address, length); unused when `count` is 0.
    pub segments: u64,
    pub count: u32,
    /// The segment that is being read.
    pub at: u64,
    pub left: u64,
}

/// A send while it is copied.
#[repr(C)]
struct Sending {
    segments: u64,
    count: u32,
    next: u32,
    at: u64,
    left: u64,
    /// Bytes that are still to be copied.
    todo: u64,
    /// Bytes in `bytes`.
    fill: u64,
    /// Whether a part with the stamp has gone out.
    told: u64,
    /// Writes of this CPU so far.
    writes: u64,
    record: Record,
}

#[repr(C)]
struct Record {
    stamp: Stamp,
    head: SendHead,
    /// Room for a masked offset plus a masked length.
    bytes: [u8; 16384],
}

#[map]
static SENDING: PerCpuArray<Sending> = PerCpuArray::with_max_entries(1, 0);

/// Tells a send of `accepted` bytes.
#[inline(always)]
pub fn send(connection: u64, accepted: u64, source: Source) {
    let Some(sending) = SENDING.get_ptr_mut(0) else { return };
    // SAFETY: the slot is this CPU's own, and a program does not interrupt itself on one CPU (bpf_prog.active).
    let sending = unsafe { &mut *sending };
    let Source { segments, count, at, left } = source;
    sending.segments = segments;
    sending.count = count;
    sending.next = 0;
    sending.at = at;
    sending.left = left;
    sending.todo = if accepted > SEND_LIMIT { SEND_LIMIT } else { accepted };
    sending.fill = 0;
    sending.told = 0;
    sending.writes += 1;
    task::stamp(&mut sending.record.stamp);
    sending.record.stamp.kind = SEND;
    let key = Key { image: 0, ..sending.record.stamp.process.key };
    let head = &mut sending.record.head;
    head.kind = SEND_MORE;
    head.flags = 0;
    head.connection = connection;
    // SAFETY: both helpers only return numbers.
    unsafe {
        head.write = sending.writes << 16 | bpf_get_smp_processor_id() as u64;
        head.at = bpf_ktime_get_boot_ns();
    }
    head.accepted = accepted;
    head.offset = 0;
    head.process = key;
    // SAFETY: only whether it is there is asked.
    if unsafe { SENDERS.get(&key) }.is_none() {
        // A full map forgets the one that is idle longest: its exit is then told by nobody, and requests time out.
        let _ = SENDERS.insert(&key, &0, 0);
    }
    for _ in 0..STEPS {
        if copy() != 0 {
            break;
        }
    }
    flush();
}

/// One step. 1: the send is done.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn copy() -> u64 {
    let Some(sending) = SENDING.get_ptr_mut(0) else { return 1 };
    // SAFETY: as in `send`.
    let sending = unsafe { &mut *sending };
    if sending.left == 0 {
        if sending.next >= sending.count {
            return 1;
        }
        let mut segment = [0u64; 2];
        let from = sending.segments + sending.next as u64 * 16;
        // SAFETY: the helper checks the source; the destination is as large as said.
        if unsafe { bpf_probe_read_user((&raw mut segment).cast(), 16, from as *const _) } != 0 {
            return unreadable(sending);
        }
        sending.next += 1;
        [sending.at, sending.left] = segment;
    }
    let fill = bound::<0x1fff>(sending.fill);
    let mut part = CHUNK.wrapping_sub(fill);
    if part > sending.left {
        part = sending.left;
    }
    if part > sending.todo {
        part = sending.todo;
    }
    let part = bound::<0x1fff>(part);
    if part > 0 {
        // SAFETY: `fill` and `part` are below 8 KiB each, `bytes` is 16 KiB.
        let failed = unsafe {
            let into = sending.record.bytes.as_mut_ptr().add(fill as usize);
            bpf_probe_read_user(into.cast(), part as u32, sending.at as *const _)
        };
        if failed != 0 {
            return unreadable(sending);
        }
        sending.at += part;
        sending.left -= part;
        sending.todo -= part;
        sending.fill = fill + part;
    }
    if sending.todo == 0 {
        return 1;
    }
    if sending.fill >= CHUNK {
        flush();
    }
    0
}

/// What was copied so far still goes out, with the flag, so that who sent stays known.
#[inline(always)]
fn unreadable(sending: &mut Sending) -> u64 {
    sending.record.head.flags = UNREADABLE;
    lost(LOST_UNREADABLE);
    1
}

/// Hands the part to the ring. The first one that the ring takes carries the stamp.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn flush() -> u64 {
    let Some(sending) = SENDING.get_ptr_mut(0) else { return 0 };
    // SAFETY: as in `send`.
    let sending = unsafe { &mut *sending };
    let fill = bound::<0x1fff>(sending.fill);
    if fill == 0 && sending.told != 0 && sending.record.head.flags == 0 {
        return 0;
    }
    sending.record.head.len = fill;
    let head = size_of::<SendHead>() as u64;
    let stamp = size_of::<Stamp>() as u64;
    let ring = (&raw const REQUESTS).cast_mut().cast();
    let record = &raw mut sending.record;
    // SAFETY: the record is larger than any masked length.
    let failed = unsafe {
        if sending.told == 0 {
            bpf_ringbuf_output(ring, record.cast(), stamp + head + fill, 0)
        } else {
            bpf_ringbuf_output(ring, record.cast::<u8>().add(stamp as usize).cast(), head + fill, 0)
        }
    };
    if failed < 0 {
        lost(LOST_SENDS);
    } else {
        sending.told = 1;
    }
    sending.record.head.offset += fill;
    sending.fill = 0;
    0
}
