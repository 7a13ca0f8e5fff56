//! Which system calls matter, by number; one table an architecture.

#[cfg(bpf_target_arch = "x86_64")]
pub use x86_64::*;

#[cfg(bpf_target_arch = "aarch64")]
pub use aarch64::*;

/// What a system call does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// (fd, buffer, length): write, sendto.
    Write,
    /// (fd, segments, count): writev, pwritev2.
    Vector,
    /// (fd, message): sendmsg.
    Message,
    /// (path): unlink, rmdir.
    Unlink,
    /// (dirfd, path): unlinkat.
    UnlinkAt,
    /// (old, new): rename.
    Rename,
    /// (dirfd, old, dirfd, new): renameat, renameat2.
    RenameAt,
    None,
}

#[cfg(bpf_target_arch = "x86_64")]
mod x86_64 {
    use super::Call;

    #[inline(always)]
    pub fn native(number: u64) -> Call {
        match number {
            1 | 44 => Call::Write,
            20 | 328 => Call::Vector,
            46 => Call::Message,
            84 | 87 => Call::Unlink,
            263 => Call::UnlinkAt,
            82 => Call::Rename,
            264 | 316 => Call::RenameAt,
            _ => Call::None,
        }
    }

    /// `int 0x80` and 32-bit processes. Their vectored sends have another memory layout and are not seen.
    #[inline(always)]
    pub fn compat(number: u64) -> Call {
        match number {
            4 | 369 => Call::Write,
            10 | 40 => Call::Unlink,
            38 => Call::Rename,
            301 => Call::UnlinkAt,
            302 | 353 => Call::RenameAt,
            _ => Call::None,
        }
    }

    /// TS_COMPAT of `thread_info.status`.
    pub const COMPAT: u32 = 2;
}

#[cfg(bpf_target_arch = "aarch64")]
mod aarch64 {
    use super::Call;

    #[inline(always)]
    pub fn native(number: u64) -> Call {
        match number {
            64 | 206 => Call::Write,
            66 | 287 => Call::Vector,
            211 => Call::Message,
            35 => Call::UnlinkAt,
            38 | 276 => Call::RenameAt,
            _ => Call::None,
        }
    }

    /// 32-bit processes are not looked at.
    #[inline(always)]
    pub fn compat(_number: u64) -> Call {
        Call::None
    }

    pub const COMPAT: u32 = 0;
}
