//! The running kernel's numbers, set by the agent before the programs are loaded. `.rodata` is frozen, so the verifier
//! knows them as constants and drops the branches that they rule out.

use aya_ebpf::Global;
use imgwarden_ebpf::ABSENT;

macro_rules! globals {
    ($($name:ident: $path:literal, $need:ident;)*) => {
        $(#[unsafe(no_mangle)] pub static $name: Global<u32> = Global::new(ABSENT);)*
    };
}

imgwarden_ebpf::layout!(globals);

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident = $default:expr;)*) => {
        $($(#[$doc])* #[unsafe(no_mangle)] pub static $name: Global<u32> = Global::new($default);)*
    };
}

settings! {
    /// `enum cgroup_subsys_id.pids_cgrp_id`.
    PIDS_CGROUP = ABSENT;
    /// 1: `bpf_get_current_task_btf` is there (5.11), and what a task points at can be read without a helper call.
    TYPED = 0;
    SENDS = 0;
    REMOVALS = 0;
    /// The agent's own pid: its own sends are not news. 0: nobody is skipped.
    OWN = 0;
    REG_NR = ABSENT;
    REG_A0 = ABSENT;
    REG_A1 = ABSENT;
    REG_A2 = ABSENT;
    REG_A3 = ABSENT;
    /// Where a 32-bit call of a 64-bit kernel has its arguments; ABSENT where such calls are not looked at.
    REG_C0 = ABSENT;
    REG_C1 = ABSENT;
    REG_C2 = ABSENT;
    REG_C3 = ABSENT;
    /// `task_struct.thread_info.status`.
    TASK_STATUS = ABSENT;
}
