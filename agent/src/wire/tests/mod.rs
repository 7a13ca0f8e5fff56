//! Scenarios: given these bytes on a connection, then these requests.

mod captured;
mod encoder;
mod golden;
mod random;

use std::sync::Arc;

use super::{
    Limits, Wire,
    request::{Call, Header, Method, Request},
};
use crate::probe::record::{Boottime, Connection, Process, ProcessKey, Program, Send};

pub(super) const HERE: Connection = Connection(7);

pub(super) fn process(pid: u32) -> Arc<Process> {
    Arc::new(Process {
        key: ProcessKey { pid, start: 1 },
        uid: 0,
        login_uid: None,
        session_id: None,
        comm: "client".into(),
        program: Program::default(),
        cgroup: Vec::new(),
        host: Some(true),
        parents: Vec::new(),
    })
}

/// A wire and one client's connection to it.
pub(super) struct Client {
    pub(super) wire: Wire,
    pub(super) connection: Connection,
    pub(super) process: Arc<Process>,
    writes: u64,
    pub(super) out: Vec<Request>,
}

impl Client {
    pub(super) fn new() -> Self {
        Self {
            wire: Wire::new(Limits::default()),
            connection: HERE,
            process: process(100),
            writes: 0,
            out: Vec::new(),
        }
    }

    /// One write, seen in one part.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.write_parts(bytes, bytes.len().max(1), |_| true);
    }

    /// One write in parts of `size`, of which only those that `seen` says are seen.
    pub(super) fn write_parts(&mut self, bytes: &[u8], size: usize, mut seen: impl FnMut(usize) -> bool) {
        self.writes += 1;
        for (nth, part) in bytes.chunks(size).enumerate() {
            if seen(nth) {
                let send = Send {
                    connection: self.connection,
                    write: self.writes,
                    at: Boottime(self.writes),
                    accepted: bytes.len() as u64,
                    offset: (nth * size) as u64,
                    bytes: part,
                    process: Arc::clone(&self.process),
                };
                self.wire.send(&send, &mut self.out);
            }
        }
    }

    /// What came out since the last time, without the fields that say who and when.
    pub(super) fn told(&mut self) -> Vec<(u32, Method, Header, Call)> {
        self.out
            .drain(..)
            .map(|request| {
                let Request {
                    connection: _,
                    stream,
                    at: _,
                    process: _,
                    method,
                    namespace,
                    call,
                    whole: _,
                    ruled_out: _,
                } = request;
                (stream, method, namespace, call)
            })
            .collect()
    }
}

pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A gRPC message.
pub(super) fn message(body: &[u8]) -> Vec<u8> {
    let mut message = vec![0];
    message.extend((body.len() as u32).to_be_bytes());
    message.extend(body);
    message
}
