//! The numbers of the running kernel that the programs are given: offsets of members, registers of calls.
//!
//! A member that the kernel does not have costs what needs it, which is said, and nothing else.

use imgwarden_ebpf::ABSENT;

use super::btf::Types;

/// What a member is needed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Who acted: nothing can be told without it.
    Process,
    /// The files behind descriptors: neither sends nor removals without it.
    Descriptors,
    Sends,
    Removals,
    /// Executable paths and arguments of processes that are gone.
    Programs,
    /// When a client ended.
    Exits,
    /// Login uid and session.
    Login,
    /// Whether a process is in a container's mount namespace.
    Mounts,
    /// The pod, on cgroup v2.
    Cgroups,
    /// The pod, on cgroup v1.
    PidsCgroup,
}

/// All constants by the names of the programs' globals.
#[derive(Debug)]
pub struct Layout {
    pub values: Vec<(&'static str, u32)>,
    /// What the kernel lacks: the need, and which member.
    pub missing: Vec<(Need, String)>,
}

macro_rules! members {
    ($($name:ident: $path:literal, $need:ident;)*) => {
        &[$((stringify!($name), $path, Need::$need)),*]
    };
}

const MEMBERS: &[(&str, &str, Need)] = imgwarden_ebpf::layout!(members);

/// `struct pt_regs`: the call's number and its first four arguments; then those of a 32-bit call.
#[cfg(target_arch = "x86_64")]
const REGISTERS: &[(&str, &str)] = &[
    ("REG_NR", "pt_regs.orig_ax"),
    ("REG_A0", "pt_regs.di"),
    ("REG_A1", "pt_regs.si"),
    ("REG_A2", "pt_regs.dx"),
    ("REG_A3", "pt_regs.r10"),
    ("REG_C0", "pt_regs.bx"),
    ("REG_C1", "pt_regs.cx"),
    ("REG_C2", "pt_regs.dx"),
    ("REG_C3", "pt_regs.si"),
];
#[cfg(target_arch = "aarch64")]
const REGISTERS: &[(&str, &str)] = &[
    ("REG_NR", "pt_regs.syscallno"),
    ("REG_A0", "pt_regs.orig_x0"),
    ("REG_A1", "pt_regs.regs[1]"),
    ("REG_A2", "pt_regs.regs[2]"),
    ("REG_A3", "pt_regs.regs[3]"),
];

/// Says of a task that its current call is a 32-bit one; no kernel without 32-bit calls has it.
#[cfg(target_arch = "x86_64")]
const STATUS: Option<&str> = Some("task_struct.thread_info.status");
#[cfg(not(target_arch = "x86_64"))]
const STATUS: Option<&str> = None;

impl Layout {
    pub fn of(types: &Types) -> Self {
        let mut values = Vec::new();
        let mut missing = Vec::new();
        for &(name, path, need) in MEMBERS {
            let value = types.offset(path).unwrap_or_else(|error| {
                missing.push((need, error.to_string()));
                ABSENT
            });
            values.push((name, value));
        }
        for &(name, path) in REGISTERS {
            let value = types.offset(path).unwrap_or_else(|error| {
                missing.push((Need::Descriptors, error.to_string()));
                missing.push((Need::Removals, error.to_string()));
                ABSENT
            });
            values.push((name, value));
        }
        values.push(("TASK_STATUS", STATUS.and_then(|path| types.offset(path).ok()).unwrap_or(ABSENT)));
        let pids = types.enumerator("cgroup_subsys_id", "pids_cgrp_id").unwrap_or_else(|error| {
            missing.push((Need::PidsCgroup, error.to_string()));
            ABSENT
        });
        values.push(("PIDS_CGROUP", pids));
        let mut this = Self { values, missing };
        // A group is used whole or not at all: the programs test one member of it.
        for (need, tested) in [
            (Need::Programs, &["MM_EXE"][..]),
            (Need::Mounts, &["MNT_NS_INUM"]),
            (Need::Cgroups, &["TASK_CGROUPS", "PIDS_CGROUP"]),
            (Need::PidsCgroup, &["PIDS_CGROUP"]),
            (Need::Login, &["TASK_LOGINUID", "TASK_SESSION"]),
        ] {
            if this.lacks(&[need]).is_some() {
                this.values
                    .iter_mut()
                    .filter(|(name, _)| tested.contains(name))
                    .for_each(|(_, value)| *value = ABSENT);
            }
        }
        this
    }

    /// Why something that has all of `needs` can't be done.
    pub fn lacks(&self, needs: &[Need]) -> Option<&str> {
        self.missing.iter().find(|(need, _)| needs.contains(need)).map(|(_, what)| what.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_kernel_has_every_member() {
        let layout = Layout::of(&Types::of_kernel().unwrap());
        assert_eq!(layout.missing, []);
        // PIDS_CGROUP, TASK_STATUS, the registers and the members.
        assert_eq!(layout.values.len(), MEMBERS.len() + REGISTERS.len() + 2);
        assert!(layout.values.iter().all(|(_, value)| *value < 1 << 16));
    }

    #[test]
    fn a_kernel_without_a_type_lacks_what_needs_it() {
        let mut none = Vec::from(0xeb9fu16.to_ne_bytes());
        none.extend([1, 0, 24, 0, 0, 0]);
        none.extend([0; 16]);
        let layout = Layout::of(&Types::parse(none).unwrap());
        assert_eq!(layout.lacks(&[Need::Cgroups]), Some("the kernel has no task_struct.cgroups"));
        assert!(layout.values.iter().all(|(_, value)| *value == ABSENT));
    }
}
