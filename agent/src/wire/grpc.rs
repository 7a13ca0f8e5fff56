//! gRPC's framing: takes the DATA of one stream, emits its first message. A message that lies in one piece is lent
//! as it lies; otherwise its beginning is kept, in memory that is wiped when it is let go.

use zeroize::Zeroizing;

/// Flag and length.
const PREFIX: usize = 5;

/// The first message of a stream.
#[derive(Clone, Copy)]
pub(super) enum Message<'a> {
    Whole(&'a [u8]),
    /// It was sent in full, but only its beginning was kept.
    Cut(&'a [u8]),
    /// Compressed, or no gRPC at all.
    Unreadable,
}

/// A message that is being sent.
pub(super) struct Incoming {
    prefix: [u8; PREFIX],
    prefix_have: usize,
    /// Bytes of the message that were sent.
    seen: usize,
    kept: Zeroizing<Vec<u8>>,
    /// How many bytes of a message to keep.
    limit: usize,
}

impl Incoming {
    pub(super) fn new(limit: usize) -> Self {
        Self { prefix: [0; PREFIX], prefix_have: 0, seen: 0, kept: Zeroizing::default(), limit }
    }

    /// Bytes kept.
    pub(super) fn held(&self) -> usize {
        self.kept.capacity()
    }

    /// Whether nothing of the message has come yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.prefix_have == 0
    }

    /// The stream's next bytes; the message once it is complete.
    pub(super) fn push<'a>(&'a mut self, bytes: &'a [u8]) -> Option<Message<'a>> {
        let wanted = (PREFIX - self.prefix_have).min(bytes.len());
        let (prefix, bytes) = bytes.split_at(wanted);
        self.prefix[self.prefix_have..self.prefix_have + wanted].copy_from_slice(prefix);
        self.prefix_have += wanted;
        if self.prefix_have < PREFIX {
            return None;
        }
        let [flag, length @ ..] = self.prefix;
        let length = u32::from_be_bytes(length) as usize;
        if flag != 0 {
            return Some(Message::Unreadable);
        }
        if self.seen == 0
            && let Some(message) = bytes.get(..length)
        {
            return Some(match message.get(..self.limit) {
                Some(beginning) if length > self.limit => Message::Cut(beginning),
                _ => Message::Whole(message),
            });
        }
        let size = length.min(self.limit);
        if self.kept.capacity() < size {
            // All at once: a buffer that grows leaves unwiped copies behind.
            self.kept = Zeroizing::new(Vec::with_capacity(size));
        }
        let bytes = &bytes[..bytes.len().min(length - self.seen)];
        self.seen += bytes.len();
        let room = (size - self.kept.len()).min(bytes.len());
        self.kept.extend_from_slice(&bytes[..room]);
        (self.seen == length).then(|| match length > self.limit {
            true => Message::Cut(&self.kept),
            false => Message::Whole(&self.kept),
        })
    }
}
