//! The attach points. What they do stands in `sock` (sends), `fs` (removals), `exec` (programs and exits).
//!
//! Each loads on its own. None changes what the kernel does, none sleeps.
#![no_std]
#![no_main]

mod calls;
mod emit;
mod exec;
mod fs;
mod layout;
mod maps;
mod memory;
mod sock;
mod task;

use aya_ebpf::{EbpfContext, macros::btf_tracepoint, programs::BtfTracePointContext};
use imgwarden_ebpf::{ABSENT, AWAY, OVER, UNLINKED};

use crate::{
    calls::{COMPAT, Call, compat, native},
    layout::*,
    memory::{Address, current, typed},
};

/// Hook: `sys_exit(struct pt_regs *regs, long ret)`, unchanged since 4.17; typed since 5.5.
///
/// Why this one: at the exit the result is known and the kernel has just touched the buffer, the arguments still stand
/// in the registers, and one program sees every call of every ABI. Not sleepable on any kernel.
/// Read: the call's number and arguments; then sockets, paths. When it fails: neither sends nor removals are seen.
#[btf_tracepoint(function = "sys_exit")]
pub fn sys_exit(ctx: BtfTracePointContext) -> i32 {
    let regs: Address = argument(&ctx, 0) as Address;
    let ret = argument(&ctx, 1) as i64;
    if ret < 0 {
        return 0;
    }
    let number = register(regs, REG_NR.load()) & 0xffff_ffff;
    let (as_native, as_compat) = (native(number), compat(number));
    if as_native == Call::None && as_compat == Call::None {
        return 0;
    }
    let call = if TASK_STATUS.load() != ABSENT
        && typed::<u32>(current(), TASK_STATUS.load()).unwrap_or(0) & COMPAT != 0
    {
        Arguments {
            call: as_compat,
            a: [REG_C0.load(), REG_C1.load(), REG_C2.load(), REG_C3.load()]
                .map(|offset| register(regs, offset) & 0xffff_ffff),
        }
    } else {
        Arguments {
            call: as_native,
            a: [REG_A0.load(), REG_A1.load(), REG_A2.load(), REG_A3.load()]
                .map(|offset| register(regs, offset)),
        }
    };
    returned(&call, ret as u64);
    0
}

/// Hook: `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`, typed since 5.5.
///
/// Why this one: the new image stands (argv can be read) and the old one's names are still in `bprm`; it is too late for
/// the process to undo it. When it fails: programs are known only while their process lives.
#[btf_tracepoint(function = "sched_process_exec")]
pub fn sched_process_exec(ctx: BtfTracePointContext) -> i32 {
    exec::started(argument(&ctx, 2) as Address);
    0
}

/// Hook: `sched_process_exit(struct task_struct *p[, bool group_dead])`, typed since 5.5.
///
/// Why this one: the thread count has been taken down already, the identity still stands. When it fails: requests of
/// processes that are gone are candidates until they time out.
#[btf_tracepoint(function = "sched_process_exit")]
pub fn sched_process_exit(ctx: BtfTracePointContext) -> i32 {
    exec::ended(argument(&ctx, 0) as Address);
    0
}

struct Arguments {
    call: Call,
    a: [u64; 4],
}

/// A call that matters has returned `ret` without an error.
#[inline(always)]
fn returned(arguments: &Arguments, ret: u64) {
    let &Arguments { call, a: [a, b, c, d] } = arguments;
    match call {
        Call::Write | Call::Vector | Call::Message => {
            if SENDS.load() == 1 && ret > 0 {
                sock::sent(call, a, b, c, ret);
            }
        }
        _ if REMOVALS.load() == 0 => {}
        Call::Unlink => fs::removed(CWD, a, UNLINKED, 0),
        Call::UnlinkAt => fs::removed(a, b, UNLINKED, 0),
        Call::Rename => {
            fs::removed(CWD, a, AWAY, 0);
            fs::removed(CWD, b, OVER, a);
        }
        Call::RenameAt => {
            fs::removed(a, b, AWAY, 0);
            fs::removed(c, d, OVER, b);
        }
        Call::None => {}
    }
}

/// AT_FDCWD as an argument register holds it.
const CWD: u64 = -100i64 as u64;

/// A tracepoint's argument, straight from the context: the verifier then knows its type.
#[inline(always)]
fn argument(ctx: &BtfTracePointContext, n: usize) -> u64 {
    // SAFETY: the verifier checks the index against the tracepoint's prototype.
    unsafe { *ctx.as_ptr().cast::<u64>().add(n) }
}

#[inline(always)]
fn register(regs: Address, offset: u32) -> u64 {
    // SAFETY: the verifier checks the offset against `struct pt_regs`.
    unsafe { core::ptr::read_volatile(regs.add(offset as usize).cast::<u64>()) }
}

#[cfg(not(test))]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
