//! Any writes of any connections, in parts, with holes, losses and exits: nothing panics, nothing grows.
#![no_main]

use std::sync::Arc;

use arbitrary::Arbitrary;
use imgwarden::{
    probe::record::{Boottime, Connection, Process, ProcessKey, Program, Send},
    wire::{Limits, Wire, frame::PREFACE},
};
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
enum Step {
    Preface { connection: u8 },
    /// A frame with a header that fits, in parts; those whose bit is set are lost.
    Frame { connection: u8, kind: u8, flags: u8, stream: u8, payload: Vec<u8>, part: u8, lost: u8 },
    Bytes { connection: u8, bytes: Vec<u8>, part: u8, lost: u8 },
    /// A part that says of itself whatever it likes.
    Odd { connection: u8, write: u8, accepted: u64, offset: u64, bytes: Vec<u8> },
    Lost,
    Exited { process: u8 },
}

fn process(nth: u8) -> Arc<Process> {
    Arc::new(Process {
        key: ProcessKey { pid: u32::from(nth), start: 0 },
        uid: 0,
        login_uid: None,
        session_id: None,
        comm: String::new(),
        program: Program::default(),
        cgroup: Vec::new(),
        host: None,
        parents: Vec::new(),
    })
}

fuzz_target!(|steps: Vec<Step>| {
    let limits = Limits { connections: 4, bytes: 64 << 10, connection_bytes: 32 << 10, streams: 4, message: 8 << 10 };
    let mut wire = Wire::new(limits);
    let mut out = Vec::new();
    let mut writes = 1000;
    for step in steps {
        writes += 1;
        let mut write = |connection: u8, bytes: &[u8], part: u8, lost: u8| {
            for (nth, piece) in bytes.chunks(usize::from(part).max(1)).enumerate() {
                if lost >> (nth % 8) & 1 == 0 || lost == u8::MAX {
                    let send = Send {
                        connection: Connection(u64::from(connection % 8)),
                        write: writes,
                        at: Boottime(writes),
                        accepted: bytes.len() as u64,
                        offset: (nth * usize::from(part).max(1)) as u64,
                        bytes: piece,
                        process: process(connection % 3),
                    };
                    wire.send(&send, &mut out);
                }
            }
        };
        match step {
            Step::Preface { connection } => write(connection, PREFACE, 24, 0),
            Step::Frame { connection, kind, flags, stream, payload, part, lost } => {
                let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
                bytes.extend([kind % 11, flags & 0x2d, 0, 0, 0, stream % 16]);
                bytes.extend(payload);
                write(connection, &bytes, part, lost);
            }
            Step::Bytes { connection, bytes, part, lost } => write(connection, &bytes, part, lost),
            Step::Odd { connection, write, accepted, offset, bytes } => {
                let send = Send {
                    connection: Connection(u64::from(connection % 8)),
                    write: u64::from(write),
                    at: Boottime(writes),
                    accepted,
                    offset,
                    bytes: &bytes,
                    process: process(connection % 3),
                };
                wire.send(&send, &mut out);
            }
            Step::Lost => wire.lost(1),
            Step::Exited { process } => wire.exited(ProcessKey { pid: u32::from(process % 3), start: 0 }),
        }
        let counters = wire.counters();
        assert!(counters.connections <= limits.connections);
        assert!(counters.held <= limits.bytes);
        out.clear();
    }
});
