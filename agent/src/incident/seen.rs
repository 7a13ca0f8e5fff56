//! From the kernel's records to what the stage takes: the probe's sink, with `wire` in it.
//!
//! Captured bytes end here: `wire` reads them where they lie in the ring, and only requests go on.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;

use crate::{
    probe::{
        Sink,
        record::{Boottime, Gap, ProcessKey, Record, Removal, Send},
    },
    wire::{Counters, Limits, Wire, request::Request},
};

/// What was seen, in the order in which it happened.
#[derive(Debug)]
pub enum Seen {
    Request(Request),
    Removal(Removal),
    Exited {
        key: ProcessKey,
        at: Boottime,
    },
    Gap {
        what: Gap,
        count: u64,
    },
    /// Connections or requests that could not be decoded, or for which there was no room.
    Undecoded {
        count: u64,
    },
}

/// What could not be handed over.
#[derive(Debug, Default)]
pub struct Dropped(AtomicU64);

impl Dropped {
    /// How many since the last time it was asked.
    pub fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Recogniser {
    wire: Wire,
    requests: Vec<Request>,
    seen: mpsc::Sender<Seen>,
    dropped: Arc<Dropped>,
    /// What could not be decoded, as far as it was told.
    undecoded: u64,
}

impl Recogniser {
    pub fn new(seen: mpsc::Sender<Seen>) -> (Self, Arc<Dropped>) {
        let dropped = Arc::new(Dropped::default());
        let wire = Wire::new(Limits::default());
        (Self { wire, requests: Vec::new(), seen, dropped: Arc::clone(&dropped), undecoded: 0 }, dropped)
    }

    fn hand_over(&self, seen: Seen) {
        // The ring must be drained whatever the stage does: what it has no room for is counted.
        if self.seen.try_send(seen).is_err() {
            self.dropped.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Sink for Recogniser {
    fn send(&mut self, send: Send<'_>) {
        let mut requests = std::mem::take(&mut self.requests);
        self.wire.send(&send, &mut requests);
        for request in requests.drain(..) {
            self.hand_over(Seen::Request(request));
        }
        self.requests = requests;
    }

    fn record(&mut self, record: Record) {
        match record {
            Record::Removal(removal) => self.hand_over(Seen::Removal(removal)),
            Record::Exited { key, at } => {
                self.wire.exited(key);
                self.hand_over(Seen::Exited { key, at });
            }
            Record::Gap { what, count } => {
                if what == Gap::Sends {
                    self.wire.lost(count);
                }
                self.hand_over(Seen::Gap { what, count });
            }
        }
    }

    fn drained(&mut self, _at: Boottime) {
        // A connection that was forgotten is most often one that was closed: that it was not shows as broken later.
        let Counters { broken, streams_dropped, .. } = self.wire.counters();
        let undecoded = broken + streams_dropped;
        if undecoded > self.undecoded {
            self.hand_over(Seen::Undecoded { count: undecoded - self.undecoded });
            self.undecoded = undecoded;
        }
    }
}
