//! One client's connection: takes the parts of its writes as they come, finds the holes between them, and drives the
//! frames and the streams. Keeps of captured bytes only what an unfinished header block or an awaited message needs.

use std::sync::Arc;

use super::{
    frame::{Event, Frames, PREFACE},
    streams::{Sender, Streams},
};
use crate::probe::record::{Boottime, Process, Send};

/// The write that is being seen.
struct Write {
    id: u64,
    accepted: u64,
    /// Up to where its bytes were seen or given up.
    seen: u64,
}

pub(super) struct Connection {
    /// The last sender.
    pub(super) process: Arc<Process>,
    /// When it sent last.
    pub(super) last: Boottime,
    write: Option<Write>,
    frames: Frames,
    streams: Streams,
    /// Whether frames were found before: the next time is a resynchronisation.
    found: bool,
}

impl Connection {
    /// A connection of which `send` is the first that is seen.
    pub(super) fn new(send: &Send<'_>, sender: &mut Sender<'_>) -> Self {
        let frames = Frames::new(send.bytes, send.offset == 0);
        let whole = !frames.is_seeking();
        match whole {
            true => sender.counters.whole += 1,
            false => sender.counters.midstream += 1,
        }
        Self {
            process: Arc::clone(&send.process),
            last: send.at,
            write: None,
            frames,
            streams: Streams::new(sender.next_epoch(), whole),
            found: whole,
        }
    }

    /// What it takes in memory, in bytes.
    pub(super) fn held(&self) -> usize {
        size_of::<Self>() + self.frames.held() + self.streams.held()
    }

    /// The ring lost parts of sends, perhaps of this connection.
    pub(super) fn suspect(&mut self) {
        self.frames.suspect();
        self.streams.suspect();
    }

    pub(super) fn send(&mut self, send: &Send<'_>, sender: &mut Sender<'_>) {
        let Send { write: id, accepted, offset, bytes, .. } = *send;
        self.last = send.at;
        if self.write.as_ref().is_none_or(|write| write.id != id) {
            if let Some(write) = self.write.take() {
                self.hole(write.accepted.saturating_sub(write.seen), sender);
            }
            self.write = Some(Write { id, accepted, seen: 0 });
        }
        let Some(write) = &mut self.write else { return };
        let end = offset.saturating_add(bytes.len() as u64).min(write.accepted);
        let missing = offset.min(write.accepted).saturating_sub(write.seen);
        let again = write.seen.saturating_sub(offset);
        let starts = write.seen == 0 && offset == 0;
        write.seen = write.seen.max(end);
        self.hole(missing, sender);
        let fresh = end.saturating_sub(offset).saturating_sub(again);
        let first = usize::try_from(again).unwrap_or(usize::MAX);
        let fresh = bytes.get(first..).and_then(|rest| rest.get(..usize::try_from(fresh).ok()?));
        let bytes = fresh.unwrap_or_default();
        if starts {
            self.start(send, bytes, sender);
        }
        self.process = Arc::clone(&send.process);
        self.bytes(bytes, sender);
    }

    /// A write starts with `bytes`.
    fn start(&mut self, send: &Send<'_>, bytes: &[u8], sender: &mut Sender<'_>) {
        let other = self.process.key != send.process.key;
        if bytes.starts_with(PREFACE)
            && (other || !self.frames.certain || self.frames.is_between_frames())
            && self.frames.is_open()
        {
            // The inode was given to a new connection.
            let write = self.write.take();
            *self = Self { write, ..Self::new(send, sender) };
        } else if !self.frames.certain && self.frames.restart(bytes) {
            sender.counters.broken += 1;
            self.streams.broken(sender);
        }
        if self.frames.is_seeking() && self.frames.seek(bytes) {
            sender.counters.resyncs += u64::from(self.found);
            self.found = true;
        }
    }

    fn hole(&mut self, length: u64, sender: &mut Sender<'_>) {
        if length == 0 {
            return;
        }
        sender.counters.holes += 1;
        if let Some(event) = self.frames.hole(length) {
            self.event(event, sender);
        }
    }

    fn bytes(&mut self, mut bytes: &[u8], sender: &mut Sender<'_>) {
        while let Some(event) = self.frames.next(&mut bytes, |header| self.streams.wants(header)) {
            self.event(event, sender);
        }
    }

    fn event(&mut self, event: Event<'_>, sender: &mut Sender<'_>) {
        let streams = &mut self.streams;
        match event {
            Event::Block { stream, ends_stream, block } => {
                match streams.headers(sender, stream, ends_stream, block.bytes()) {
                    Ok(true) => self.frames.certain = true,
                    // What was taken for a frame may be anything.
                    Ok(false) if self.frames.certain => {}
                    Ok(false) | Err(_) => {
                        self.frames.lose();
                        self.event(Event::Broken, sender);
                    }
                }
            }
            Event::BlockLost { stream, ends_stream } => {
                streams.headers_lost(sender, stream, ends_stream);
            }
            Event::Data { stream, bytes, whole, ends_stream } => {
                streams.data(sender, stream, bytes, whole, ends_stream);
            }
            Event::DataLost { stream, ends_stream } => streams.data_lost(sender, stream, ends_stream),
            Event::Reset { stream } => streams.end(sender, stream),
            Event::Broken => {
                sender.counters.broken += 1;
                streams.broken(sender);
            }
        }
    }
}
