//! From the rings to the sink, in the order of the acts.
//!
//! The removal ring is read first and the request ring up to the removals' times, so that a send that caused a removal
//! always arrives before it. Sleeps until the kernel wakes it.

use imgwarden_ebpf::{LOST_EXECS, LOST_PATHS, LOST_REMOVALS, LOST_SENDS, LOST_UNREADABLE};
use std::{collections::VecDeque, sync::Arc};

use aya::maps::{MapData, PerCpuArray, RingBuf};
use tokio::{
    io::unix::AsyncFd,
    time::{MissedTickBehavior, interval},
};
use tokio_util::sync::CancellationToken;

use super::{
    ProbeError, now,
    process::Processes,
    record::{Boottime, Connection, Gap, Process, ProcessKey, Program, Record, Removal, Send},
    resolve::resolve,
    ring::{self, Gone, Part, process_key},
    watch::{INTERVAL, Watch},
};

/// The share of the request ring that is handed on in one turn. What was sent after a loss lies a whole ring behind what
/// was sent before it: so the loss is told, at the next turn, before anything that came after it.
const TURN: usize = 2;
/// What a record takes in the ring beside its bytes.
const RECORD: usize = 8;
/// A record's time is taken some microseconds before the ring has it.
const IN_FLIGHT: u64 = 1_000_000;

/// Takes what the kernel saw. Calls must be short: the ring fills meanwhile.
pub trait Sink: std::marker::Send {
    fn send(&mut self, send: Send<'_>);
    fn record(&mut self, record: Record);
    /// Both rings were found empty: everything before `at` was delivered.
    fn drained(&mut self, at: Boottime);
}

pub(super) struct Running<S> {
    requests: AsyncFd<RingBuf<MapData>>,
    gone: AsyncFd<RingBuf<MapData>>,
    lost: PerCpuArray<MapData, u64>,
    /// The losses that were told, by slot.
    told: Vec<(u32, Gap, u64)>,
    processes: Processes,
    watch: Watch,
    pending: VecDeque<Gone>,
    /// Bytes of the request ring that are handed on in one turn.
    turn: usize,
    sink: S,
}

impl<S: Sink> Running<S> {
    pub(super) fn new(
        requests: AsyncFd<RingBuf<MapData>>,
        gone: AsyncFd<RingBuf<MapData>>,
        lost: PerCpuArray<MapData, u64>,
        processes: Processes,
        watch: Watch,
        ring_bytes: u32,
        sink: S,
    ) -> Self {
        let told = vec![
            (LOST_SENDS, Gap::Sends, 0),
            (LOST_REMOVALS, Gap::Removals, 0),
            (LOST_PATHS, Gap::Removals, 0),
            (LOST_UNREADABLE, Gap::Unreadable, 0),
            (LOST_EXECS, Gap::Execs, 0),
        ];
        let turn = ring_bytes as usize / TURN;
        Self { requests, gone, lost, told, processes, watch, pending: VecDeque::new(), turn, sink }
    }

    pub(super) async fn run(mut self, cancel: CancellationToken) -> Result<(), ProbeError> {
        let mut slow = interval(INTERVAL);
        slow.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let ended = tokio::select! {
                biased;
                () = cancel.cancelled() => true,
                ready = self.gone.readable() => {
                    ready.map_err(ProbeError::Ring)?.clear_ready();
                    false
                }
                ready = self.requests.readable() => {
                    ready.map_err(ProbeError::Ring)?.clear_ready();
                    false
                }
                changed = self.watch.changed() => {
                    changed?;
                    self.watch.refresh()?;
                    continue;
                }
                _ = slow.tick() => {
                    self.watch.refresh()?;
                    false
                }
            };
            // Readiness was taken off before the rings are read: what comes after the last look wakes again.
            while !self.drain()? {
                tokio::task::yield_now().await;
            }
            if ended {
                return Ok(());
            }
        }
    }

    /// Hands on what the rings hold; false when there is more.
    fn drain(&mut self) -> Result<bool, ProbeError> {
        self.tell_losses()?;
        let Self { requests, gone, processes, watch, pending, turn, sink, .. } = self;
        let began = now();
        while let Some(item) = gone.get_mut().next() {
            pending.extend(ring::gone(&item));
        }
        let mut empty = false;
        let mut moved = false;
        let mut taken = 0;
        while taken < *turn {
            let Some(item) = requests.get_mut().next() else {
                empty = true;
                break;
            };
            taken += item.len() + RECORD;
            let Some(part) = ring::part(&item) else { continue };
            while pending.front().is_some_and(|gone| gone.at() < part.head.at)
                && let Some(gone) = pending.pop_front()
            {
                moved |= deliver(gone, processes, watch, sink);
            }
            hand_on(part, processes, sink);
        }
        if empty {
            while let Some(gone) = pending.pop_front() {
                moved |= deliver(gone, processes, watch, sink);
            }
        }
        if moved {
            watch.refresh()?;
        }
        if empty {
            self.tell_losses()?;
            self.sink.drained(Boottime(began.0.saturating_sub(IN_FLIGHT)));
        }
        Ok(empty)
    }

    /// Hands on what the kernel counted as lost since the last time.
    fn tell_losses(&mut self) -> Result<(), ProbeError> {
        let Self { lost, told, sink, .. } = self;
        for (slot, what, before) in told {
            let counts = lost.get(slot, 0).map_err(|source| ProbeError::Map { name: "LOST", source })?;
            let count: u64 = counts.iter().sum();
            if count > *before {
                sink.record(Record::Gap { what: *what, count: count - *before });
                *before = count;
            }
        }
        Ok(())
    }
}

fn hand_on<S: Sink>(part: Part<'_>, processes: &mut Processes, sink: &mut S) {
    let Part { stamp, head, bytes } = part;
    let key = ProcessKey { pid: head.process.pid, start: head.process.start };
    let process = match stamp {
        Some(stamp) => processes.of(&stamp),
        None => processes.known(key).unwrap_or_else(|| Arc::new(unknown(key))),
    };
    sink.send(Send {
        connection: Connection(head.connection),
        write: head.write,
        at: Boottime(head.at),
        accepted: head.accepted,
        offset: head.offset,
        bytes,
        process,
    });
}

/// A process of which only the identity is left: the part that told more was pushed out by hundreds of others.
fn unknown(key: ProcessKey) -> Process {
    Process {
        key,
        uid: u32::MAX,
        login_uid: None,
        session_id: None,
        comm: String::new(),
        program: Program::default(),
        cgroup: Vec::new(),
        host: None,
        parents: Vec::new(),
    }
}

/// Whether a watched directory itself may have gone.
fn deliver<S: Sink>(gone: Gone, processes: &mut Processes, watch: &Watch, sink: &mut S) -> bool {
    match gone {
        Gone::Exit(exit) => {
            let key = ProcessKey { pid: exit.process.pid, start: exit.process.start };
            sink.record(Record::Exited { key, at: Boottime(exit.at) });
            false
        }
        Gone::Removal { stamp, head, path } => {
            let chain: Vec<ProcessKey> = std::iter::once(&stamp.process)
                .chain(stamp.parents.iter().take_while(|kin| kin.key.pid != 0))
                .map(process_key)
                .collect();
            let Some((entry, how)) = resolve(watch, &head, &path, &chain) else { return false };
            let process = processes.of(&stamp);
            sink.record(Record::Removal(Removal { at: Boottime(head.at), process, entry, how }));
            entry == super::record::Entry::Directory
        }
    }
}
