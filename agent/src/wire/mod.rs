//! Requests, rebuilt from the bytes that clients sent to containerd's socket. Takes parts of writes as the kernel
//! accepted them, emits the gRPC calls that can cost or bring an image. Nothing of a call's body is kept but the few
//! strings that say what is asked for; what can't be known from the side is said to be unknown, never guessed.
//!
//! [`connection`] turns parts of writes into bytes and holes, [`frame`] these into header blocks and DATA, [`hpack`]
//! the blocks into paths, [`streams`] both into requests by means of [`grpc`] (messages), [`call`] (known methods) and
//! [`shape`] (unknown ones).

mod call;
mod connection;
pub mod frame;
mod grpc;
pub mod hpack;
mod huffman;
pub mod method;
mod protobuf;
pub mod request;
mod shape;
mod streams;
#[cfg(test)]
mod tests;

use std::{
    collections::{HashMap, hash_map::Entry},
    fmt,
};

use crate::probe::record::{Connection, ProcessKey, Send};

use self::{connection::Connection as Tracked, request::Request, streams::Sender};

/// What is kept at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Connections.
    pub connections: usize,
    /// Bytes of all connections together.
    pub bytes: usize,
    /// Bytes of one connection.
    pub connection_bytes: usize,
    /// Streams of one connection whose message is awaited.
    pub streams: usize,
    /// Bytes of the beginning of a known method's message.
    pub message: usize,
}

impl Limits {
    /// Bytes of an unknown method's message; longer ones are not looked at.
    pub const OPAQUE: usize = 1024;
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 512,
            bytes: 4 << 20,
            connection_bytes: 256 << 10,
            streams: 256,
            message: 64 << 10,
        }
    }
}

/// What was seen and what was not, since the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    /// Connections that are tracked now.
    pub connections: usize,
    /// Bytes that they take now.
    pub held: usize,
    /// Connections seen from their first byte.
    pub whole: u64,
    /// Connections first seen later.
    pub midstream: u64,
    /// Connections forgotten because there were too many, or too big.
    pub evicted: u64,
    /// Bytes missing inside a connection, by occurrence.
    pub holes: u64,
    /// Times that the place of the next frame became unknown.
    pub broken: u64,
    /// Times that it was found again.
    pub resyncs: u64,
    /// Streams given up because their connection had too many, or too big ones.
    pub streams_dropped: u64,
    /// Requests whose method is known.
    pub known: u64,
    /// Requests whose method is a symbol.
    pub symbols: u64,
    /// Requests whose header block was lost.
    pub headless: u64,
    /// Requests (of any of these kinds) whose message was lost or can't be read.
    pub unreadable: u64,
}

/// All connections to the watched sockets.
pub struct Wire {
    limits: Limits,
    connections: HashMap<Connection, Tracked>,
    counters: Counters,
    epoch: u32,
}

impl Wire {
    pub fn new(limits: Limits) -> Self {
        Self { limits, connections: HashMap::new(), counters: Counters::default(), epoch: 0 }
    }

    /// Takes a part of a write; adds the requests that it completes to `out`.
    pub fn send(&mut self, send: &Send<'_>, out: &mut Vec<Request>) {
        let Self { limits, connections, counters, epoch } = self;
        let mut sender = Sender {
            connection: send.connection,
            at: send.at,
            process: &send.process,
            limits,
            counters,
            epoch,
            out,
        };
        let (tracked, before) = match connections.entry(send.connection) {
            Entry::Occupied(entry) => {
                let tracked = entry.into_mut();
                let held = tracked.held();
                (tracked, held)
            }
            Entry::Vacant(entry) => (entry.insert(Tracked::new(send, &mut sender)), 0),
        };
        tracked.send(send, &mut sender);
        let after = tracked.held();
        self.counters.held = self.counters.held.saturating_sub(before) + after;
        if self.connections.len() > self.limits.connections {
            self.evict(|_| 1);
        }
        while self.counters.held > self.limits.bytes && !self.connections.is_empty() {
            self.evict(Tracked::held);
        }
        self.counters.connections = self.connections.len();
    }

    /// The process is gone, and all its sends were taken.
    pub fn exited(&mut self, key: ProcessKey) {
        let Self { connections, counters, .. } = self;
        connections.retain(|_, tracked| tracked.process.key != key);
        counters.connections = connections.len();
        counters.held = connections.values().map(Tracked::held).sum();
    }

    /// The ring lost `count` parts, nobody knows of which connections: each has to prove that it missed nothing.
    pub fn lost(&mut self, count: u64) {
        if count > 0 {
            self.connections.values_mut().for_each(Tracked::suspect);
            self.counters.held = self.connections.values().map(Tracked::held).sum();
        }
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Forgets the idlest connection of the process that has most by `weight`.
    fn evict(&mut self, weight: impl Fn(&Tracked) -> usize) {
        let mut weights = HashMap::<ProcessKey, usize>::new();
        for tracked in self.connections.values() {
            *weights.entry(tracked.process.key).or_default() += weight(tracked);
        }
        let most = weights.values().copied().max().unwrap_or_default();
        let idlest = self
            .connections
            .iter()
            .filter(|(_, tracked)| weights.get(&tracked.process.key) == Some(&most))
            .min_by_key(|(connection, tracked)| (tracked.last, **connection))
            .map(|(connection, _)| *connection);
        if let Some(tracked) = idlest.and_then(|connection| self.connections.remove(&connection)) {
            self.counters.held = self.counters.held.saturating_sub(tracked.held());
            self.counters.evicted += 1;
        }
    }
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { limits, connections: _, counters, epoch: _ } = self;
        f.debug_struct("Wire").field("limits", limits).field("counters", counters).finish_non_exhaustive()
    }
}
