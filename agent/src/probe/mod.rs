//! What the kernel saw: who sent what to containerd, and what went from its directories.
//!
//! [`Probe::load`] brings the programs into the kernel, [`Probe::watch`] says which directories and sockets, and
//! [`Probe::run`] hands everything to a [`Sink`] in order. Captured bytes are borrowed from the ring and never printed.
//!
//! # Layout
//! `load` attaches, with the numbers that [`layout`] finds in the kernel's [`btf`]; `watch` keeps the kernel's maps right;
//! `ring` reads records, `process` says who it was, `resolve` which entry a path was; [`record`] and [`report`] are what comes out.

use std::{fmt, io, path::PathBuf, time::Duration};

use aya::{
    Ebpf, EbpfError,
    maps::{MapData, MapError, PerCpuArray, RingBuf},
};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

pub mod btf;
pub mod layout;
mod load;
mod process;
pub mod record;
pub mod report;
mod resolve;
mod ring;
mod run;
mod watch;

pub use report::{Hook, Report, State};
pub use run::Sink;
pub use watch::Watches;

use self::{process::Processes, watch::Watch};

/// How the kernel is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backend {
    /// The best one that loads.
    #[default]
    Auto,
    Trampoline,
    Tracepoint,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    pub backend: Backend,
    /// A power of two; costs twice that in resident memory, since the ring is mapped twice.
    pub request_ring_bytes: u32,
    /// As above.
    pub removal_ring_bytes: u32,
    /// Programs that are remembered from their exec on, 1.3 KiB of kernel memory each.
    pub programs: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            backend: Backend::Auto,
            request_ring_bytes: 4 << 20,
            removal_ring_bytes: 1 << 20,
            programs: 4096,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    #[error("this imgwarden was built without its eBPF object: build it with cargo xtask build")]
    NoObject,
    #[error("the {backend} backend is not available: {why}")]
    NotAvailable { backend: &'static str, why: &'static str },
    #[error("{name} is missing: give it to the agent (or run it as root)")]
    Capability { name: &'static str },
    #[error("which capabilities the agent has can't be read")]
    Capabilities(#[source] io::Error),
    #[error(transparent)]
    Btf(#[from] btf::BtfError),
    #[error("{what}: the kernel refused")]
    Refused { what: &'static str, source: EbpfError },
    #[error("neither sends nor removals can be seen: {}", reasons(report))]
    NothingSeen { report: Box<Report> },
    #[error("the eBPF object lacks the map {name}: it was built from other sources")]
    ObjectLacks { name: &'static str },
    #[error("the map {name}")]
    Map { name: &'static str, source: MapError },
    #[error("{}: no socket path, or its last component is longer than 63 bytes", path.display())]
    Socket { path: PathBuf },
    #[error("waiting for changes of watched directories")]
    Changes(#[source] io::Error),
    #[error("waiting for the kernel's records")]
    Ring(#[source] io::Error),
}

impl ProbeError {
    /// The capability that the agent lacks, if that is why.
    pub fn missing_capability(&self) -> Option<&'static str> {
        match self {
            Self::Capability { name } => Some(name),
            _ => None,
        }
    }
}

fn reasons(report: &Report) -> String {
    let reasons: Vec<String> = report
        .hooks
        .iter()
        .filter_map(|hook| match &hook.state {
            State::Missing { why } => Some(format!("{}: {why}", hook.name)),
            State::Attached { .. } => None,
        })
        .collect();
    reasons.join("; ")
}

/// The loaded programs. Dropping it detaches them.
pub struct Probe {
    programs: Ebpf,
    requests: RingBuf<MapData>,
    gone: RingBuf<MapData>,
    lost: PerCpuArray<MapData, u64>,
    processes: Processes,
    watch: Watch,
    report: Report,
}

impl fmt::Debug for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Probe").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Probe {
    /// Loads and attaches; what a hook's failure costs is in the report. Nothing is watched yet.
    pub fn load(options: &Options) -> Result<Self, ProbeError> {
        let load::Loaded { programs, requests, gone, watched, sockets, execs, lost, report } =
            load::load(options)?;
        Ok(Self {
            programs,
            requests,
            gone,
            lost,
            processes: Processes::new(execs),
            watch: Watch::new(watched, sockets),
            report,
        })
    }

    /// Watches these and nothing else. Must be called in a Tokio runtime.
    pub fn watch(&mut self, watches: &Watches) -> Result<(), ProbeError> {
        self.watch.set(watches)
    }

    pub fn report(&self) -> &Report {
        &self.report
    }

    /// Hands everything to `sink` until `cancel`.
    pub async fn run(self, sink: impl Sink, cancel: CancellationToken) -> Result<(), ProbeError> {
        let Self { programs, requests, gone, lost, processes, watch, report } = self;
        let requests = ring::readable(requests).map_err(ProbeError::Ring)?;
        let gone = ring::readable(gone).map_err(ProbeError::Ring)?;
        let ring_bytes = report.request_ring_bytes;
        let running = run::Running::new(requests, gone, lost, processes, watch, ring_bytes, sink);
        let done = running.run(cancel).await;
        drop(programs);
        done
    }
}

/// Now, on the clock of the kernel's records.
pub fn now() -> record::Boottime {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = Duration::from_secs(u64::try_from(now.tv_sec).unwrap_or(0));
    record::Boottime((seconds.as_nanos() as u64).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0)))
}
