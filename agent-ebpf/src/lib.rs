//! The ABI between the kernel side and the agent: what stands in the rings and maps, and which numbers of the running
//! kernel the programs need.
//!
//! Everything here is `repr(C)` without implicit padding, in the byte order of the machine. Both sides are built from
//! the same file, so that a record needs no version.
#![no_std]

/// Bytes of a write that are kept at most. HTTP/2 frames of containerd's clients lie within it; what is missing shows
/// as `accepted` being larger than what came.
pub const SEND_LIMIT: u64 = 64 * 1024;
/// Bytes of one part of a send at most. Below 8 KiB so that a 13-bit mask bounds it for the verifier.
pub const CHUNK: u64 = 8128;
/// Segments of a vectored write that are looked at. gRPC's C core sends 30, containerd's Go clients one.
pub const SEGMENTS: u32 = 128;
/// Steps of one send: a step takes at most one segment or fills one part.
pub const STEPS: u32 = 160;
/// PATH_MAX: the kernel takes no longer path.
pub const PATH: usize = 4096;
pub const OTHER: usize = 256;
pub const NAME: usize = 64;
pub const CGROUP: usize = 96;
pub const PARENTS: usize = 4;
pub const FILENAME: usize = 256;
pub const ARGV: usize = 512;
pub const EXE: usize = 512;

/// The value of a layout constant whose member the running kernel does not have.
pub const ABSENT: u32 = u32::MAX;
/// `start` counts these: a clock tick (USER_HZ is 100 on every architecture that is supported), as in /proc/PID/stat.
pub const NANOSECONDS_PER_TICK: u64 = 10_000_000;

/// A directory, by identity. `dev` is in the kernel's own encoding (`major << 20 | minor`), not `st_dev`'s.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    pub dev: u32,
    pub zero: u32,
    pub ino: u64,
}

/// What a directory is watched for.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// `BLOBS`, `SNAPSHOTS`, `ABOVE`, `SOCKETS`, or several of them.
    pub kinds: u32,
    /// The agent's number for the directory: never given to another one, never 0.
    pub id: u32,
}

pub const BLOBS: u32 = 1;
pub const SNAPSHOTS: u32 = 2;
/// A directory above one of the former: `cd blobs; rm sha256/x`.
pub const ABOVE: u32 = 4;
pub const SOCKETS: u32 = 8;

/// A socket by the directory it is bound in and its name there: needs no update when containerd binds it anew.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SocketKey {
    pub dir: FileKey,
    /// Ends with a zero, zeros to the end.
    pub name: [u8; NAME],
}

/// One process for ever.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct Key {
    pub pid: u32,
    /// How many programs the process had executed (`self_exec_id`, inherited by its children): tells the images of one
    /// process apart. 0 where the process itself is meant.
    pub image: u32,
    /// When the thread group's leader started, in ticks since boot.
    pub start: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Kin {
    pub key: Key,
    pub comm: [u8; 16],
}

/// Who did it, copied while it was still there.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    /// `SEND` or `REMOVAL`: what follows the stamp.
    pub kind: u32,
    pub tid: u32,
    pub process: Kin,
    /// Nearest first; pid 0 ends it.
    pub parents: [Kin; PARENTS],
    /// The executable's file; 0, 0 when the process has none.
    pub exe: FileKey,
    pub uid: u32,
    pub login_uid: u32,
    pub session_id: u32,
    /// The mount namespace's number; 0 when it can't be known.
    pub mounts: u32,
    /// The names of the last two cgroup directories on the `pids` hierarchy of cgroup v1, innermost first.
    pub pids_cgroup: [[u8; CGROUP]; 2],
    /// The same on cgroup v2.
    pub unified_cgroup: [[u8; CGROUP]; 2],
}

pub const SEND: u32 = 1;
pub const SEND_MORE: u32 = 2;
pub const REMOVAL: u32 = 3;
pub const EXIT: u32 = 4;

/// A part of a send: after its stamp (kind `SEND`), or alone (kind `SEND_MORE`). `len` bytes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SendHead {
    pub kind: u32,
    /// `UNREADABLE` or 0.
    pub flags: u32,
    /// The sockfs inode of the client's end.
    pub connection: u64,
    /// The same for all parts of a write.
    pub write: u64,
    /// CLOCK_BOOTTIME, nanoseconds.
    pub at: u64,
    pub accepted: u64,
    pub offset: u64,
    pub len: u64,
    pub process: Key,
}

/// The bytes from `offset + len` on could not be read from the sender's memory.
pub const UNREADABLE: u32 = 1;

/// After the stamp (kind `REMOVAL`). `path_len` bytes of the path as it was given to the kernel follow, no zero at the end.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct RemovalHead {
    pub at: u64,
    /// `UNLINKED`, `AWAY` or `OVER`.
    pub how: u32,
    /// The watched directory that a relative path starts in; 0: not known, the path looks like one that matters.
    pub base: u32,
    /// Whether a relative path starts in a descriptor's directory (1) or in the working directory (0).
    pub from_descriptor: u32,
    pub path_len: u32,
    /// For `OVER`: the beginning of the old path, ended by a zero.
    pub other: [u8; OTHER],
}

pub const UNLINKED: u32 = 0;
/// Renamed, and this is its old path.
pub const AWAY: u32 = 1;
/// Something was renamed to this path.
pub const OVER: u32 = 2;

/// A process that had sent on a watched socket is gone.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    pub kind: u32,
    pub zero: u32,
    pub at: u64,
    pub process: Key,
}

/// What ran, recorded at exec.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exec {
    /// The executable's file.
    pub file: FileKey,
    /// Length of argv in the process, which may be more than `argv` holds.
    pub argv_len: u64,
    /// 1: an interpreter was started for the script `filename`.
    pub script: u32,
    /// How many bytes of `exe` are used.
    pub exe_len: u32,
    /// 1: `exe` reaches the root of the mount namespace.
    pub exe_whole: u32,
    pub zero: u32,
    /// As it was given to execve; ends with a zero.
    pub filename: [u8; FILENAME],
    /// Arguments, each ended by a zero.
    pub argv: [u8; ARGV],
    /// The components of the executable's path, the last one first, each ended by a zero.
    pub exe: [u8; EXE],
}

/// Slots of the loss counters.
pub const LOST_SENDS: u32 = 0;
pub const LOST_REMOVALS: u32 = 1;
pub const LOST_UNREADABLE: u32 = 2;
/// A path could not be read: a removal may have been missed.
pub const LOST_PATHS: u32 = 3;
pub const LOST_EXECS: u32 = 4;
pub const LOST_SLOTS: u32 = 8;

/// What stands in ring bytes and map values.
///
/// # Safety
/// Any bytes must be a valid value.
pub unsafe trait Plain: Copy {}

// SAFETY: each consists of integers and arrays of integers only.
unsafe impl Plain for Stamp {}
// SAFETY: as above.
unsafe impl Plain for SendHead {}
// SAFETY: as above.
unsafe impl Plain for RemovalHead {}
// SAFETY: as above.
unsafe impl Plain for Exit {}
// SAFETY: as above.
unsafe impl Plain for Exec {}

/// The record that `bytes` start with; none when they are too short.
pub fn read<T: Plain>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the length was checked; an unaligned read has no alignment to meet; any bytes are a valid T.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// Hands the list of layout constants to the macro `$each`: `NAME: "struct.member", need;` (alternatives by `|`).
///
/// The agent finds the offsets in the running kernel's BTF and overrides the globals of the same names. `need` says
/// what is not seen when the member is missing.
#[macro_export]
macro_rules! layout {
    ($each:ident) => {
        $each! {
            TASK_TGID: "task_struct.tgid", Process;
            TASK_LEADER: "task_struct.group_leader", Process;
            TASK_PARENT: "task_struct.real_parent", Process;
            TASK_START: "task_struct.start_boottime|task_struct.real_start_time", Process;
            TASK_COMM: "task_struct.comm", Process;
            TASK_FILES: "task_struct.files", Descriptors;
            FILES_FDT: "files_struct.fdt", Descriptors;
            FDT_MAX: "fdtable.max_fds", Descriptors;
            FDT_FD: "fdtable.fd", Descriptors;
            FILE_INODE: "file.f_inode", Descriptors;
            INODE_MODE: "inode.i_mode", Descriptors;
            INODE_INO: "inode.i_ino", Descriptors;
            INODE_SB: "inode.i_sb", Descriptors;
            SB_DEV: "super_block.s_dev", Descriptors;
            DENTRY_INODE: "dentry.d_inode", Descriptors;
            FILE_PRIVATE: "file.private_data", Sends;
            SOCKET_SK: "socket.sk", Sends;
            SOCK_FAMILY: "sock.__sk_common.skc_family", Sends;
            UNIX_PEER: "unix_sock.peer", Sends;
            UNIX_DENTRY: "unix_sock.path.dentry", Sends;
            DENTRY_PARENT: "dentry.d_parent", Sends;
            DENTRY_NAME: "dentry.d_name.name", Sends;
            MSGHDR_IOV: "user_msghdr.msg_iov", Sends;
            MSGHDR_IOVLEN: "user_msghdr.msg_iovlen", Sends;
            TASK_FS: "task_struct.fs", Removals;
            FS_PWD: "fs_struct.pwd.dentry", Removals;
            TASK_MM: "task_struct.mm", Programs;
            TASK_EXECS: "task_struct.self_exec_id", Programs;
            MM_EXE: "mm_struct.exe_file", Programs;
            MM_ARG_START: "mm_struct.arg_start", Programs;
            MM_ARG_END: "mm_struct.arg_end", Programs;
            BPRM_FILENAME: "linux_binprm.filename", Programs;
            BPRM_INTERP: "linux_binprm.interp", Programs;
            FILE_MNT: "file.f_path.mnt", Programs;
            FILE_DENTRY: "file.f_path.dentry", Programs;
            VFSMOUNT_ROOT: "vfsmount.mnt_root", Programs;
            MOUNT_MNT: "mount.mnt", Programs;
            MOUNT_PARENT: "mount.mnt_parent", Programs;
            MOUNT_POINT: "mount.mnt_mountpoint", Programs;
            TASK_SIGNAL: "task_struct.signal", Exits;
            SIGNAL_LIVE: "signal_struct.live.counter", Exits;
            TASK_LOGINUID: "task_struct.loginuid.val", Login;
            TASK_SESSION: "task_struct.sessionid", Login;
            TASK_NSPROXY: "task_struct.nsproxy", Mounts;
            NSPROXY_MNT: "nsproxy.mnt_ns", Mounts;
            MNT_NS_INUM: "mnt_namespace.ns.inum", Mounts;
            TASK_CGROUPS: "task_struct.cgroups", Cgroups;
            CSS_SET_DEFAULT: "css_set.dfl_cgrp", Cgroups;
            CGROUP_KN: "cgroup.kn", Cgroups;
            KN_NAME: "kernfs_node.name", Cgroups;
            KN_PARENT: "kernfs_node.__parent|kernfs_node.parent", Cgroups;
            CSS_SET_SUBSYS: "css_set.subsys", PidsCgroup;
            CSS_CGROUP: "cgroup_subsys_state.cgroup", PidsCgroup;
        }
    };
}
