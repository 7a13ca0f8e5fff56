//! What runs, remembered at exec for the agent to look up when the process is gone; and who is gone.

use aya_ebpf::{
    helpers::generated::{
        bpf_ktime_get_boot_ns, bpf_probe_read_kernel_str, bpf_probe_read_user, bpf_ringbuf_output,
    },
    macros::map,
    maps::PerCpuArray,
};
use imgwarden_ebpf::{ARGV, EXE, EXIT, Exec, Exit, FILENAME, FileKey, LOST_EXECS, LOST_REMOVALS};

use crate::{
    fs,
    layout::*,
    maps::{EXECS, GONE, SENDERS, lost},
    memory::{Address, bound, current, kernel, pointer},
    task,
};

/// Path components at most: deeper executables have no known path.
const DEPTH: u32 = 40;

/// An exec while it is recorded. `room` takes the end of a component that starts within `exec.exe`.
#[repr(C)]
struct Recorded {
    dentry: u64,
    mount: u64,
    filled: u64,
    whole: u64,
    exec: Exec,
    room: [u8; EXE],
}

#[map]
static RECORDED: PerCpuArray<Recorded> = PerCpuArray::with_max_entries(1, 0);

/// `bprm` is the new program's `linux_binprm`.
#[inline(always)]
pub fn started(bprm: Address) -> Option<()> {
    let task = current();
    // SAFETY: the slot is this CPU's own, and a program does not interrupt itself on one CPU (bpf_prog.active).
    let recorded = unsafe { &mut *RECORDED.get_ptr_mut(0)? };
    let filename: Address = kernel(bprm, BPRM_FILENAME.load())?;
    let interp: Address = kernel(bprm, BPRM_INTERP.load())?;
    recorded.exec.script = (filename != interp) as u32;
    recorded.exec.filename[0] = 0;
    // SAFETY: the destination is as large as said.
    unsafe {
        bpf_probe_read_kernel_str(
            recorded.exec.filename.as_mut_ptr().cast(),
            FILENAME as u32,
            filename.cast(),
        );
    }
    arguments(task, &mut recorded.exec);

    recorded.filled = 0;
    recorded.whole = 0;
    recorded.exec.file = FileKey { dev: 0, zero: 0, ino: 0 };
    if let Some(file) = task::executable(task) {
        recorded.exec.file = fs::file_key(file).unwrap_or(FileKey { dev: 0, zero: 0, ino: 0 });
        recorded.dentry = kernel(file, FILE_DENTRY.load())?;
        let mnt: Address = kernel(file, FILE_MNT.load())?;
        recorded.mount = mnt.wrapping_sub(MOUNT_MNT.load() as usize) as u64;
        for _ in 0..DEPTH {
            if climb() != 0 {
                break;
            }
        }
    }
    recorded.exec.exe_len = recorded.filled as u32;
    recorded.exec.exe_whole = recorded.whole as u32;
    recorded.exec.zero = 0;
    let key = task::image_key(task::leader(task));
    if EXECS.insert(&key, &recorded.exec, 0).is_err() {
        lost(LOST_EXECS);
    }
    Some(())
}

/// argv as it stands in the new image.
#[inline(always)]
fn arguments(task: Address, exec: &mut Exec) {
    exec.argv_len = 0;
    let Some(mm) = pointer(task, TASK_MM.load()) else { return };
    let start: u64 = kernel(mm, MM_ARG_START.load()).unwrap_or(0);
    let end: u64 = kernel(mm, MM_ARG_END.load()).unwrap_or(0);
    let len = end.saturating_sub(start);
    let kept = bound::<0x3ff>(if len > ARGV as u64 { ARGV as u64 } else { len });
    let kept = if kept > ARGV as u64 { ARGV as u64 } else { kept };
    // SAFETY: `kept` is at most the destination's size.
    if unsafe { bpf_probe_read_user(exec.argv.as_mut_ptr().cast(), kept as u32, start as *const _) } == 0 {
        exec.argv_len = len;
    }
}

/// One step from the executable's entry towards the root, across mounts. 1: no further.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn climb() -> u64 {
    let Some(recorded) = RECORDED.get_ptr_mut(0) else { return 1 };
    // SAFETY: as in `started`.
    let recorded = unsafe { &mut *recorded };
    let (dentry, mount) = (recorded.dentry as Address, recorded.mount as Address);
    let Some(root) = pointer(mount, MOUNT_MNT.load() + VFSMOUNT_ROOT.load()) else { return 1 };
    let Some(parent) = pointer(dentry, DENTRY_PARENT.load()) else { return 1 };
    if dentry == root {
        let Some(above) = pointer(mount, MOUNT_PARENT.load()) else { return 1 };
        if above == mount {
            recorded.whole = 1;
            return 1;
        }
        let Some(at) = pointer(mount, MOUNT_POINT.load()) else { return 1 };
        recorded.dentry = at as u64;
        recorded.mount = above as u64;
        return 0;
    }
    if recorded.filled >= EXE as u64 {
        return 1;
    }
    let Some(name) = pointer(dentry, DENTRY_NAME.load()) else { return 1 };
    let filled = bound::<0x1ff>(recorded.filled);
    // SAFETY: a component that starts in the last byte of `exe` still ends within `room`, which follows it.
    let read = unsafe {
        let into = (&raw mut recorded.exec.exe).cast::<u8>().add(filled as usize);
        bpf_probe_read_kernel_str(into.cast(), 256, name.cast())
    };
    if read < 0 {
        return 1;
    }
    recorded.filled = filled + read as u64;
    recorded.dentry = parent as u64;
    // A file of no directory (memfd) is its own parent: its name is all there is.
    (parent == dentry) as u64
}

/// `task` ends; tells it if it was the last thread of a process that had sent.
#[inline(always)]
pub fn ended(task: Address) -> Option<()> {
    let key = task::key(task::leader(task));
    // SAFETY: only whether it is there is asked.
    unsafe { SENDERS.get(&key) }?;
    let live: i32 = kernel(pointer(task, TASK_SIGNAL.load())?, SIGNAL_LIVE.load())?;
    // Two last threads may both see 0: only one of them removes the key.
    if live > 0 || SENDERS.remove(&key).is_err() {
        return None;
    }
    // SAFETY: the helper only returns a number.
    let exit = Exit { kind: EXIT, zero: 0, at: unsafe { bpf_ktime_get_boot_ns() }, process: key };
    // SAFETY: the source is as large as said.
    let failed = unsafe {
        let record = (&raw const exit).cast_mut().cast();
        bpf_ringbuf_output((&raw const GONE).cast_mut().cast(), record, size_of::<Exit>() as u64, 0)
    };
    if failed < 0 {
        lost(LOST_REMOVALS);
    }
    Some(())
}
