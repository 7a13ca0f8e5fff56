//! The calls of one connection: takes its header blocks and DATA, emits a request when the first message of a stream
//! is complete. Keeps nothing of streams whose method is known and not told, and nothing of a stream after its request.

use std::{collections::BTreeMap, sync::Arc};

use super::{
    Counters, Limits, call,
    frame::FrameHeader,
    grpc::{Incoming, Message},
    hpack::{Head, HpackError, Path, Table},
    method::{Known, MethodSet},
    request::{Call, Header, Method, Request, Shape, Symbol},
    shape,
};
use crate::probe::record::{Boottime, Connection, Process};

/// gRPC's prefix of a message.
const PREFIX: usize = 5;

/// What is written into a request beside what the stream says.
pub(super) struct Sender<'a> {
    pub(super) connection: Connection,
    pub(super) at: Boottime,
    pub(super) process: &'a Arc<Process>,
    pub(super) limits: &'a Limits,
    pub(super) counters: &'a mut Counters,
    /// The next unused number of a table's epoch.
    pub(super) epoch: &'a mut u32,
    pub(super) out: &'a mut Vec<Request>,
}

impl Sender<'_> {
    pub(super) fn next_epoch(&mut self) -> u32 {
        *self.epoch = self.epoch.wrapping_add(1);
        *self.epoch
    }
}

#[derive(Clone, Copy)]
enum Target {
    Known(Known),
    Symbol(i64),
    Lost,
}

/// A stream whose first message is awaited.
struct Awaited {
    target: Target,
    namespace: Header,
    ruled_out: MethodSet,
    incoming: Incoming,
    /// Bytes of it may have been lost: what comes now has no certain place in the message.
    doubted: bool,
}

pub(super) struct Streams {
    table: Table,
    awaited: BTreeMap<u32, Awaited>,
    /// The highest stream that was begun.
    highest: u32,
    /// Insertions may have been missed without a trace.
    suspect: bool,
    /// Seen from the first byte, and no header block missed.
    whole: bool,
}

impl Streams {
    pub(super) fn new(epoch: u32, whole: bool) -> Self {
        Self { table: Table::new(epoch, whole), awaited: BTreeMap::new(), highest: 0, suspect: false, whole }
    }

    /// Bytes kept.
    pub(super) fn held(&self) -> usize {
        let awaited = |awaited: &Awaited| size_of::<Awaited>() + awaited.incoming.held();
        self.table.held() + self.awaited.values().map(awaited).sum::<usize>()
    }

    /// Bytes may have been lost without a trace.
    pub(super) fn suspect(&mut self) {
        self.suspect = true;
        for awaited in self.awaited.values_mut() {
            awaited.doubted = true;
        }
    }

    /// Frames were missed, header blocks perhaps among them.
    pub(super) fn broken(&mut self, sender: &mut Sender<'_>) {
        self.forget_the_table(sender);
        for awaited in self.awaited.values_mut() {
            awaited.doubted = true;
        }
        while let Some((stream, awaited)) = self
            .awaited
            .iter()
            .find(|(_, awaited)| !awaited.incoming.is_untouched())
            .map(|(s, _)| *s)
            .and_then(|stream| self.awaited.remove_entry(&stream))
        {
            self.emit(sender, stream, &awaited, Call::Lost);
        }
    }

    fn forget_the_table(&mut self, sender: &mut Sender<'_>) {
        self.table.begin_epoch(sender.next_epoch());
        self.suspect = false;
        self.whole = false;
    }

    /// Whether a DATA frame's payload is of interest.
    pub(super) fn wants(&self, header: FrameHeader) -> bool {
        let unseen = header.stream > self.highest
            && (self.suspect || !self.whole)
            && header.ends_stream()
            && header.length as usize <= PREFIX + Limits::OPAQUE;
        unseen || self.awaited.contains_key(&header.stream)
    }

    /// A stream's header block: a request's, or trailers. True if it is a request's, beyond doubt.
    pub(super) fn headers(
        &mut self,
        sender: &mut Sender<'_>,
        stream: u32,
        ends_stream: bool,
        block: &[u8],
    ) -> Result<bool, HpackError> {
        let head = self.decode(sender, block)?;
        if stream <= self.highest {
            if ends_stream {
                self.end(sender, stream);
            }
            return Ok(false);
        }
        let request = head.request;
        if request {
            self.begin(sender, stream, ends_stream, head);
        }
        Ok(request)
    }

    /// A stream's header block was lost.
    pub(super) fn headers_lost(&mut self, sender: &mut Sender<'_>, stream: u32, ends_stream: bool) {
        self.forget_the_table(sender);
        if stream > self.highest {
            let head = Head { path: Path::Lost, namespace: Header::Unknown, request: true, in_step: false };
            self.begin(sender, stream, ends_stream, head);
        } else if ends_stream {
            self.end(sender, stream);
        }
    }

    fn decode(&mut self, sender: &mut Sender<'_>, block: &[u8]) -> Result<Head, HpackError> {
        if self.suspect {
            let mut trial = self.table.clone();
            match trial.decode(block) {
                Ok(head) if head.in_step && head.request => {
                    self.table = trial;
                    self.suspect = false;
                    return Ok(head);
                }
                _ => self.forget_the_table(sender),
            }
        }
        let decoded = self.table.decode(block);
        if decoded.is_err() {
            self.forget_the_table(sender);
        }
        decoded
    }

    fn begin(&mut self, sender: &mut Sender<'_>, stream: u32, ends_stream: bool, head: Head) {
        self.highest = stream;
        let target = match head.path {
            Path::Known(method) if method.is_told() => Target::Known(method),
            Path::Symbol(slot) => Target::Symbol(slot),
            Path::Lost => Target::Lost,
            Path::Known(_) | Path::Other | Path::Absent => return,
        };
        if ends_stream {
            return;
        }
        if self.awaited.len() >= sender.limits.streams
            && let Some((oldest, awaited)) = self.awaited.pop_first()
        {
            sender.counters.streams_dropped += 1;
            self.emit(sender, oldest, &awaited, Call::Lost);
        }
        let limit = match target {
            Target::Known(_) => sender.limits.message,
            Target::Symbol(_) | Target::Lost => Limits::OPAQUE,
        };
        let awaited = Awaited {
            target,
            namespace: head.namespace,
            ruled_out: self.table.ruled_out(),
            incoming: Incoming::new(limit),
            doubted: false,
        };
        self.awaited.insert(stream, awaited);
    }

    /// Bytes of a stream that `wants` named. `whole`: a frame's data in one piece.
    pub(super) fn data(
        &mut self,
        sender: &mut Sender<'_>,
        stream: u32,
        bytes: &[u8],
        whole: bool,
        ends_stream: bool,
    ) {
        let Some(mut awaited) = self.awaited.remove(&stream) else {
            if whole && ends_stream {
                self.headless(sender, stream, bytes);
            }
            return;
        };
        let alone = whole && ends_stream && awaited.incoming.is_untouched() && is_one_message(bytes);
        if awaited.doubted && !alone {
            match ends_stream {
                true => self.emit(sender, stream, &awaited, Call::Lost),
                false => drop(self.awaited.insert(stream, awaited)),
            }
            return;
        }
        let target = awaited.target;
        match awaited.incoming.push(bytes) {
            Some(message) => {
                let call = called(target, message);
                self.emit(sender, stream, &awaited, call);
            }
            // The server never sees a message that was not sent in full.
            None if ends_stream => {}
            None => {
                if self.held() + awaited.incoming.held() > sender.limits.connection_bytes {
                    sender.counters.streams_dropped += 1;
                    self.emit(sender, stream, &awaited, Call::Lost);
                } else {
                    self.awaited.insert(stream, awaited);
                }
            }
        }
    }

    /// Bytes of a stream were lost.
    pub(super) fn data_lost(&mut self, sender: &mut Sender<'_>, stream: u32, ends_stream: bool) {
        if let Some(awaited) = self.awaited.get_mut(&stream) {
            awaited.doubted = true;
            if ends_stream {
                self.end(sender, stream);
            }
        }
    }

    /// The stream says no more.
    pub(super) fn end(&mut self, sender: &mut Sender<'_>, stream: u32) {
        if let Some(awaited) = self.awaited.remove(&stream)
            && awaited.doubted
        {
            self.emit(sender, stream, &awaited, Call::Lost);
        }
    }

    /// A frame that holds one message and ends a stream whose headers were not seen.
    fn headless(&mut self, sender: &mut Sender<'_>, stream: u32, bytes: &[u8]) {
        if stream > self.highest && is_one_message(bytes) {
            self.highest = stream;
            let awaited = Awaited {
                target: Target::Lost,
                namespace: Header::Unknown,
                ruled_out: MethodSet::default(),
                incoming: Incoming::new(0),
                doubted: false,
            };
            self.emit(sender, stream, &awaited, Call::Opaque(shape::of(&bytes[PREFIX..])));
        }
    }

    fn emit(&self, sender: &mut Sender<'_>, stream: u32, awaited: &Awaited, call: Call) {
        let Awaited { target, namespace, ruled_out, incoming: _, doubted: _ } = awaited;
        let counters = &mut *sender.counters;
        let connection = sender.connection;
        let method = match *target {
            Target::Known(method) => {
                counters.known += 1;
                Method::Path(method.path().into())
            }
            Target::Symbol(slot) => {
                counters.symbols += 1;
                Method::Symbol(Symbol { connection, slot })
            }
            Target::Lost => {
                counters.headless += 1;
                Method::Lost
            }
        };
        counters.unreadable += u64::from(call == Call::Lost);
        let ruled_out = match method {
            Method::Symbol(_) => *ruled_out,
            Method::Path(_) | Method::Lost => MethodSet::default(),
        };
        sender.out.push(Request {
            connection,
            stream,
            at: sender.at,
            process: Arc::clone(sender.process),
            method,
            namespace: namespace.clone(),
            call,
            whole: self.whole,
            ruled_out,
        });
    }
}

fn called(target: Target, message: Message<'_>) -> Call {
    match (target, message) {
        (_, Message::Unreadable) => Call::Lost,
        (Target::Known(method), Message::Whole(bytes)) => call::decode(method, bytes, false),
        (Target::Known(method), Message::Cut(bytes)) => call::decode(method, bytes, true),
        (_, Message::Whole(bytes)) => Call::Opaque(shape::of(bytes)),
        (_, Message::Cut(_)) => Call::Opaque(Shape::Other),
    }
}

/// Whether `bytes` are exactly one uncompressed gRPC message.
fn is_one_message(bytes: &[u8]) -> bool {
    match bytes.split_first_chunk::<PREFIX>() {
        Some(([0, length @ ..], message)) => u32::from_be_bytes(*length) as usize == message.len(),
        _ => false,
    }
}
