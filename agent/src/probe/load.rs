//! The programs into the kernel: each hook on its own, so that what one kernel refuses costs one hook.
//!
//! Takes the embedded object and the kernel's layout, gives the maps and a report. A refusal is final: nothing is tried twice.

use std::fs;

use aya::{
    Btf, Ebpf, EbpfLoader,
    maps::{HashMap, MapData, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, ProgramError},
};
use imgwarden_ebpf::Exec;
use rustix::thread::{CapabilitySet, capabilities};

use super::{
    Backend, Options, ProbeError,
    btf::Types,
    layout::{Layout, Need},
    report::{Hook, Report, State},
};

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/probe.o"));

/// Everything that the running probe needs. Dropping `programs` detaches.
pub(super) struct Loaded {
    pub programs: Ebpf,
    pub requests: RingBuf<MapData>,
    pub gone: RingBuf<MapData>,
    pub watched: HashMap<MapData, [u8; 16], [u8; 8]>,
    pub sockets: HashMap<MapData, [u8; 80], [u8; 4]>,
    pub execs: HashMap<MapData, [u8; 16], [u8; size_of::<Exec>()]>,
    pub lost: PerCpuArray<MapData, u64>,
    pub report: Report,
}

/// What is not seen by design, whatever attaches.
const UNSEEN: &[&str] = &[
    "io_uring: sends, unlinks and renames submitted through a ring",
    "sends by sendmmsg, splice and sendfile, and vectored sends of 32-bit processes",
    "files removed inside a snapshot, and truncation or over-mounting of what is watched",
];

const HOOKS: &[(&str, &[Need])] = &[
    ("sys_exit", &[Need::Process, Need::Descriptors]),
    ("sched_process_exec", &[Need::Process, Need::Descriptors, Need::Programs]),
    ("sched_process_exit", &[Need::Process, Need::Exits]),
];

pub(super) fn load(options: &Options) -> Result<Loaded, ProbeError> {
    if OBJECT.is_empty() {
        return Err(ProbeError::NoObject);
    }
    if options.backend == Backend::Trampoline {
        return Err(ProbeError::NotAvailable {
            backend: "trampoline",
            why: "its programs are not part of this build",
        });
    }
    let missing_capabilities = permitted()?;
    let types = Types::of_kernel()?;
    let btf = Btf::from_sys_fs()
        .map_err(|source| ProbeError::Refused { what: "reading BTF", source: source.into() })?;
    let layout = Layout::of(&types);

    let on = |needs: &[Need]| u32::from(layout.lacks(needs).is_none());
    let common = [Need::Process, Need::Descriptors];
    let typed = u32::from(types.enumerator("bpf_func_id", "BPF_FUNC_get_current_task_btf").is_ok());
    let settings = [
        ("TYPED", typed),
        ("SENDS", on(&[common[0], common[1], Need::Sends])),
        ("REMOVALS", on(&[common[0], common[1], Need::Removals])),
        ("OWN", own_pid()),
    ];
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(&btf))
        .map_max_entries("REQUESTS", options.request_ring_bytes)
        .map_max_entries("GONE", options.removal_ring_bytes)
        .map_max_entries("EXECS", options.programs);
    for (name, value) in layout.values.iter().chain(&settings) {
        loader.override_global(name, value, true);
    }
    let mut programs =
        loader.load(OBJECT).map_err(|source| ProbeError::Refused { what: "loading the object", source })?;

    let hooks: Vec<Hook> = HOOKS
        .iter()
        .map(|&(name, needs)| Hook {
            name,
            state: match layout.lacks(needs) {
                Some(why) => State::Missing { why: why.to_owned() },
                None => attach(&mut programs, name, &btf),
            },
        })
        .collect();
    let mut unseen: Vec<String> = UNSEEN.iter().map(|&text| text.to_owned()).collect();
    unseen.extend(layout.missing.iter().map(|(need, why)| format!("{need:?}: {why}")));
    if own_pid() == 0 {
        unseen
            .push("the host's processes by their pids: the agent runs in a pid namespace of its own".into());
    }
    let report = Report {
        backend: "tracepoint",
        trampoline: "not part of this build",
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        hooks,
        request_ring_bytes: options.request_ring_bytes,
        removal_ring_bytes: options.removal_ring_bytes,
        missing_capabilities,
        unseen,
    };
    if !report.hooks.iter().any(|hook| hook.name == "sys_exit" && hook.attached()) {
        return Err(ProbeError::NothingSeen { report: Box::new(report) });
    }
    Ok(Loaded {
        requests: map(&mut programs, "REQUESTS")?,
        gone: map(&mut programs, "GONE")?,
        watched: map(&mut programs, "WATCHED")?,
        sockets: map(&mut programs, "WATCHED_SOCKETS")?,
        execs: map(&mut programs, "EXECS")?,
        lost: map(&mut programs, "LOST")?,
        programs,
        report,
    })
}

fn map<T: TryFrom<aya::maps::Map, Error = aya::maps::MapError>>(
    programs: &mut Ebpf,
    name: &'static str,
) -> Result<T, ProbeError> {
    let map = programs.take_map(name).ok_or(ProbeError::ObjectLacks { name })?;
    T::try_from(map).map_err(|source| ProbeError::Map { name, source })
}

fn attach(programs: &mut Ebpf, name: &'static str, btf: &Btf) -> State {
    let mut attached = || -> Result<Option<u32>, ProgramError> {
        let program: &mut BtfTracePoint =
            programs.program_mut(name).ok_or(ProgramError::NotLoaded)?.try_into()?;
        program.load(name, btf)?;
        program.attach()?;
        Ok(program.info()?.verified_instruction_count())
    };
    match attached() {
        Ok(verified) => State::Attached { verified },
        Err(error) => State::Missing { why: refusal(&error) },
    }
}

/// A refusal in few words: the verifier's log is long, and what matters stands at its end.
fn refusal(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(inner) = source {
            text = format!("{text}: {inner}");
            source = inner.source();
        }
        return text;
    };
    let log = verifier_log.to_string();
    let log = log.trim().replace("\\n", "\n");
    let end: Vec<&str> = log.lines().rev().filter(|line| !line.trim().is_empty()).take(4).collect();
    if end.is_empty() {
        return format!(
            "{io_error}, without a word of the verifier: refused by policy (lockdown, seccomp or an LSM)"
        );
    }
    let end: Vec<&str> = end.into_iter().rev().collect();
    format!("{io_error}; the verifier: {}", end.join(" / "))
}

/// Refuses without what loading needs; names what only some look-ups need.
fn permitted() -> Result<Vec<&'static str>, ProbeError> {
    let has = capabilities(None).map_err(|error| ProbeError::Capabilities(error.into()))?.effective;
    if !has.contains(CapabilitySet::SYS_ADMIN) {
        for (capability, name) in [(CapabilitySet::BPF, "CAP_BPF"), (CapabilitySet::PERFMON, "CAP_PERFMON")] {
            if !has.contains(capability) {
                return Err(ProbeError::Capability { name });
            }
        }
    }
    let wished = [
        (CapabilitySet::SYS_PTRACE, "CAP_SYS_PTRACE (programs that are older than the agent)"),
        (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH (directories that only root may read)"),
    ];
    Ok(wished
        .into_iter()
        .filter(|(capability, _)| !has.contains(*capability))
        .map(|(_, name)| name)
        .collect())
}

/// The agent's pid as the kernel side sees it: in the initial pid namespace. 0 elsewhere: another process may have it.
fn own_pid() -> u32 {
    /// PROC_PID_INIT_INO, include/linux/proc_ns.h.
    const INITIAL: &str = "pid:[4026531836]";
    match fs::read_link("/proc/self/ns/pid") {
        Ok(namespace) if namespace.as_os_str() == INITIAL => std::process::id(),
        _ => 0,
    }
}
