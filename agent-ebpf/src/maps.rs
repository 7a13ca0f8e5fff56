//! What the kernel side keeps, and what it shares with the agent. Sizes are defaults: the agent sets the rings' and the
//! exec map's at load.

use aya_ebpf::{
    macros::map,
    maps::{HashMap, LruHashMap, PerCpuArray, RingBuf},
};
use imgwarden_ebpf::{Exec, FileKey, Key, LOST_SLOTS, SocketKey, Watched};

#[map]
pub static REQUESTS: RingBuf = RingBuf::with_byte_size(4 << 20, 0);

#[map]
pub static GONE: RingBuf = RingBuf::with_byte_size(1 << 20, 0);

#[map]
pub static WATCHED: HashMap<FileKey, Watched> = HashMap::with_max_entries(1024, 0);

#[map]
pub static WATCHED_SOCKETS: HashMap<SocketKey, u32> = HashMap::with_max_entries(64, 0);

#[map]
pub static EXECS: LruHashMap<Key, Exec> = LruHashMap::with_max_entries(4096, 0);

/// Who has sent on a watched socket and not yet gone.
#[map]
pub static SENDERS: LruHashMap<Key, u32> = LruHashMap::with_max_entries(4096, 0);

#[map]
pub static LOST: PerCpuArray<u64> = PerCpuArray::with_max_entries(LOST_SLOTS, 0);

/// Counts what can't be told any more.
#[inline(always)]
pub fn lost(slot: u32) {
    if let Some(count) = LOST.get_ptr_mut(slot) {
        // SAFETY: the slot is this CPU's own.
        unsafe { *count += 1 }
    }
}
