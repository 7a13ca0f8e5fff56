//! Who is running: its identity, its parents, its cgroup, copied at the moment of the act.
//!
//! Always through `group_leader`: a thread that is not the leader has another start time, and /proc knows the leader's.

use aya_ebpf::helpers::generated::{
    bpf_get_current_pid_tgid, bpf_get_current_uid_gid, bpf_probe_read_kernel, bpf_probe_read_kernel_str,
};
use imgwarden_ebpf::{ABSENT, CGROUP, FileKey, Key, Kin, NANOSECONDS_PER_TICK, PARENTS, Stamp};

use crate::{
    fs,
    layout::*,
    memory::{Address, current, kernel, pointer},
};

/// The process that the thread group leader `leader` stands for.
#[inline(always)]
pub fn key(leader: Address) -> Key {
    let start: u64 = kernel(leader, TASK_START.load()).unwrap_or(0);
    Key { pid: kernel(leader, TASK_TGID.load()).unwrap_or(0), image: 0, start: start / NANOSECONDS_PER_TICK }
}

/// The process and the program that it runs now.
#[inline(always)]
pub fn image_key(leader: Address) -> Key {
    let image = if TASK_EXECS.load() == ABSENT { 0 } else { kernel(leader, TASK_EXECS.load()).unwrap_or(0) };
    Key { image, ..key(leader) }
}

#[inline(always)]
pub fn leader(task: Address) -> Address {
    pointer(task, TASK_LEADER.load()).unwrap_or(task)
}

#[inline(always)]
fn kin(leader: Address, into: &mut Kin) {
    into.key = image_key(leader);
    // SAFETY: `comm` is 16 bytes in the kernel and here.
    unsafe {
        bpf_probe_read_kernel(
            into.comm.as_mut_ptr().cast(),
            16,
            leader.wrapping_add(TASK_COMM.load() as usize).cast(),
        );
    }
}

/// Fills `stamp` with the running process. `kind` is set by the caller.
#[inline(always)]
pub fn stamp(stamp: &mut Stamp) {
    let task = current();
    let own = leader(task);
    kin(own, &mut stamp.process);

    let mut above = own;
    let mut ended = false;
    for n in 0..PARENTS {
        let parent = &mut stamp.parents[n];
        if !ended {
            match pointer(above, TASK_PARENT.load()) {
                Some(next) => {
                    above = leader(next);
                    kin(above, parent);
                    ended = parent.key.pid == 0;
                }
                None => ended = true,
            }
        }
        if ended {
            parent.key.pid = 0;
        }
    }

    // SAFETY: both helpers only return numbers.
    unsafe {
        stamp.tid = bpf_get_current_pid_tgid() as u32;
        stamp.uid = bpf_get_current_uid_gid() as u32;
    }
    stamp.exe = executable(task).and_then(fs::file_key).unwrap_or(FileKey { dev: 0, zero: 0, ino: 0 });
    stamp.login_uid = optional(task, TASK_LOGINUID.load());
    stamp.session_id = optional(task, TASK_SESSION.load());
    stamp.mounts = mounts(task).unwrap_or(0);
    cgroups(task, stamp);
}

/// A number of the task that a kernel may be built without: "unset" of the audit ids then.
#[inline(always)]
fn optional(task: Address, offset: u32) -> u32 {
    if offset == ABSENT { u32::MAX } else { kernel(task, offset).unwrap_or(u32::MAX) }
}

#[inline(always)]
fn mounts(task: Address) -> Option<u32> {
    if MNT_NS_INUM.load() == ABSENT {
        return None;
    }
    kernel(pointer(pointer(task, TASK_NSPROXY.load())?, NSPROXY_MNT.load())?, MNT_NS_INUM.load())
}

/// The file that the task runs.
#[inline(always)]
pub fn executable(task: Address) -> Option<Address> {
    if MM_EXE.load() == ABSENT {
        return None;
    }
    pointer(pointer(task, TASK_MM.load())?, MM_EXE.load())
}

#[inline(always)]
fn cgroups(task: Address, stamp: &mut Stamp) {
    let set = if TASK_CGROUPS.load() == ABSENT { None } else { pointer(task, TASK_CGROUPS.load()) };
    let unified = set.and_then(|set| pointer(pointer(set, CSS_SET_DEFAULT.load())?, CGROUP_KN.load()));
    names(unified, &mut stamp.unified_cgroup);
    let pids = if PIDS_CGROUP.load() == ABSENT { None } else { set.and_then(pids) };
    names(pids, &mut stamp.pids_cgroup);
}

#[inline(always)]
fn pids(set: Address) -> Option<Address> {
    let state = pointer(set, CSS_SET_SUBSYS.load() + 8 * PIDS_CGROUP.load())?;
    pointer(pointer(state, CSS_CGROUP.load())?, CGROUP_KN.load())
}

/// The names of a cgroup's directory and of the one above.
#[inline(always)]
fn names(node: Option<Address>, into: &mut [[u8; CGROUP]; 2]) {
    into[0][0] = 0;
    into[1][0] = 0;
    let Some(node) = node else { return };
    name(node, &mut into[0]);
    if let Some(parent) = pointer(node, KN_PARENT.load()) {
        name(parent, &mut into[1]);
    }
}

#[inline(always)]
fn name(node: Address, into: &mut [u8; CGROUP]) {
    if let Some(text) = pointer(node, KN_NAME.load()) {
        // SAFETY: the destination is as large as said.
        unsafe {
            bpf_probe_read_kernel_str(into.as_mut_ptr().cast(), CGROUP as u32, text.cast());
        }
    }
}
