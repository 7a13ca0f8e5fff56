//! HPACK as far as it can be known from the side. Takes the header blocks of one connection in order, emits the path
//! and the namespace of each. An index into entries inserted before the agent attached becomes a symbol, never a
//! guess. Values of other headers are measured (their sizes drive the table's eviction) and never kept.

use std::{collections::VecDeque, sync::Arc};

use super::{
    huffman,
    method::{Known, MethodSet},
    request::Header,
};

/// What every connection begins with (RFC 9113, 6.5.2).
const DEFAULT_TABLE: usize = 4096;
/// A client may announce a bigger table; what lies beyond this is given up, which costs knowledge, not truth.
const LARGEST_TABLE: usize = 16 * 1024;
/// An index no table can have.
const LARGEST_INDEX: u64 = 1 << 16;
/// Names longer than the ones that matter aren't compared.
const LONGEST_NAME: usize = 32;
/// containerd's own limit for a namespace is 76.
const LONGEST_NAMESPACE: usize = 256;
/// The distance between the symbols of two epochs.
const EPOCH: i64 = 1 << 32;

/// Why a header block can't be decoded: it is not HPACK, or not of this connection's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HpackError {
    #[error("the header block ends inside a field")]
    Short,
    #[error("a number of the header block is too large")]
    Number,
    #[error("a string of the header block is not Huffman-coded as it says")]
    Huffman,
    #[error("the header block uses index {0}, which the table can't have")]
    Index(u64),
    #[error("the table's size is changed inside a header block")]
    Resize,
}

/// What a header block says of `:path`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Path {
    /// There is none: trailers.
    #[default]
    Absent,
    Known(Known),
    /// A path that is none of the known methods'. Its text is not kept.
    Other,
    /// An entry from before the agent attached: the symbol's slot.
    Symbol(i64),
    /// There is one, but its entry was given up.
    Lost,
}

/// What matters of one header block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub path: Path,
    pub namespace: Header,
    /// Whether it begins a gRPC request: `:method` is POST or can't be told.
    pub request: bool,
    /// Whether it shows that no insertion was missed: where the connection's blocks have their content type, an
    /// index met the table's only entry of that name, and the path is where it always is. Every missed insertion
    /// shifts all indices.
    pub in_step: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Name {
    Method,
    Path,
    ContentType,
    Namespace,
    Other,
    /// The name is an entry from before the agent attached.
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Value {
    NotKept,
    Path(Option<Known>),
    Post,
    Namespace(Arc<str>),
}

#[derive(Debug, Clone)]
struct Entry {
    name: Name,
    value: Value,
    name_size: usize,
    /// As RFC 7541, 4.1 counts, a lower bound if the name is unknown.
    size: usize,
}

enum Field {
    Known(Name, Value),
    /// An entry from before the agent attached: the symbol's slot.
    Symbol(i64),
    /// An entry that was given up.
    Lost,
}

/// One connection's table, as its client's encoder sees it.
#[derive(Debug, Clone)]
pub struct Table {
    /// Newest first.
    entries: VecDeque<Entry>,
    size: usize,
    max: usize,
    /// Whether `max` is the encoder's: it may have announced another one before the agent attached.
    max_exact: bool,
    /// Since the epoch began.
    inserted: u64,
    epoch: u32,
    /// Whether every live entry was inserted in this epoch.
    complete: bool,
    /// Paths sent as literals to be inserted: no older entry that is still alive is one of them.
    ruled_out: MethodSet,
    /// Which field of a request `:path` is. One client library keeps one order.
    path_position: Option<usize>,
    content_type_position: Option<usize>,
}

impl Table {
    /// `epoch`: different for every table of a `Wire`. `complete`: nothing was inserted before.
    pub fn new(epoch: u32, complete: bool) -> Self {
        Self {
            entries: VecDeque::new(),
            size: 0,
            max: DEFAULT_TABLE,
            max_exact: complete,
            inserted: 0,
            epoch,
            complete,
            ruled_out: MethodSet::default(),
            path_position: None,
            content_type_position: None,
        }
    }

    /// What no symbol of a request that is sent now can be: an encoder uses an entry that it has.
    pub fn ruled_out(&self) -> MethodSet {
        self.ruled_out
    }

    /// What the table takes in memory, in bytes.
    pub fn held(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
    }

    /// Insertions may have been missed: every entry inserted so far is at an unknown place from here on.
    pub fn begin_epoch(&mut self, epoch: u32) {
        let Self { path_position, content_type_position, .. } = *self;
        *self = Self { path_position, content_type_position, ..Self::new(epoch, false) };
    }

    /// Decodes the next header block. After an error the table can't be used: begin an epoch.
    pub fn decode(&mut self, block: &[u8]) -> Result<Head, HpackError> {
        let mut input = Input(block);
        let mut head = Reading::default();
        while let Some(first) = input.0.first().copied() {
            let field = match first {
                0x80.. => {
                    let index = input.number(7)?;
                    head.in_step |= self.content_type_position == Some(head.position)
                        && self.meets_the_content_type(index);
                    self.field(index)?
                }
                0x40.. => self.literal(&mut input, 6, true)?,
                0x20.. => {
                    let size = input.number(5)?;
                    if head.position > 0 {
                        return Err(HpackError::Resize);
                    }
                    self.resize(size);
                    continue;
                }
                _ => self.literal(&mut input, 4, false)?,
            };
            head.field(field, self.path_position);
        }
        head.in_step &= head.path_at.is_some() && head.path_at == self.path_position;
        self.path_position = head.path_at.or(self.path_position);
        self.content_type_position = head.content_type_at.or(self.content_type_position);
        Ok(head.finish())
    }

    fn resize(&mut self, size: u64) {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        self.max = size.min(LARGEST_TABLE);
        self.max_exact = size <= LARGEST_TABLE;
        self.evict(0);
        if size == 0 {
            // The older entries are gone with ours: whatever is indexed from here on was seen.
            self.inserted = 0;
            self.complete = true;
            self.ruled_out = MethodSet::default();
        }
    }

    /// Makes room for `size` more bytes.
    fn evict(&mut self, size: usize) {
        while self.size.saturating_add(size) > self.max {
            match self.entries.pop_back() {
                Some(entry) => self.size -= entry.size,
                None => break,
            }
        }
    }

    fn entry(&self, index: u64) -> Result<Result<&Entry, Field>, HpackError> {
        let nth = index - STATIC.len() as u64 - 1;
        match usize::try_from(nth).ok().and_then(|nth| self.entries.get(nth)) {
            Some(entry) => Ok(Ok(entry)),
            None if nth < self.inserted => Ok(Err(Field::Lost)),
            None if self.complete || nth > LARGEST_INDEX => Err(HpackError::Index(index)),
            None => {
                let before = (self.inserted as i64) - (nth as i64) - 1;
                Ok(Err(Field::Symbol(before - i64::from(self.epoch) * EPOCH)))
            }
        }
    }

    fn field(&self, index: u64) -> Result<Field, HpackError> {
        match usize::try_from(index).ok().and_then(|index| STATIC.get(index.wrapping_sub(1))) {
            Some(name) => {
                let value = if index == 3 { Value::Post } else { Value::NotKept };
                Ok(match named(name.as_bytes()) {
                    // `/` and `/index.html`
                    Name::Path => Field::Known(Name::Path, Value::Path(None)),
                    name => Field::Known(name, value),
                })
            }
            None if index == 0 => Err(HpackError::Index(0)),
            None => Ok(match self.entry(index)? {
                Ok(entry) => Field::Known(entry.name, entry.value.clone()),
                Err(unknown) => unknown,
            }),
        }
    }

    fn meets_the_content_type(&self, index: u64) -> bool {
        index > STATIC.len() as u64
            && matches!(self.entry(index), Ok(Ok(entry)) if entry.name == Name::ContentType)
            && self.entries.iter().filter(|entry| entry.name == Name::ContentType).count() == 1
    }

    fn literal(&mut self, input: &mut Input<'_>, prefix: u32, insert: bool) -> Result<Field, HpackError> {
        let index = input.number(prefix)?;
        let (name, name_size) = match index {
            0 => {
                let text = input.string::<LONGEST_NAME>()?;
                (text.bytes().map_or(Name::Other, named), text.size)
            }
            _ => match usize::try_from(index).ok().and_then(|index| STATIC.get(index - 1)) {
                Some(name) => (named(name.as_bytes()), name.len()),
                None => match self.entry(index)? {
                    Ok(entry) => (entry.name, entry.name_size),
                    Err(_) => (Name::Unknown, 0),
                },
            },
        };
        let (value, value_size) = match name {
            Name::Path => {
                let text = input.string::<{ Known::LONGEST }>()?;
                (Value::Path(text.text().and_then(Known::from_path)), text.size)
            }
            Name::Namespace => {
                let text = input.string::<LONGEST_NAMESPACE>()?;
                (text.text().map_or(Value::NotKept, |text| Value::Namespace(text.into())), text.size)
            }
            Name::Method => {
                let text = input.string::<4>()?;
                (if text.bytes() == Some(b"POST") { Value::Post } else { Value::NotKept }, text.size)
            }
            Name::ContentType | Name::Other | Name::Unknown => (Value::NotKept, input.string::<0>()?.size),
        };
        if insert {
            if let Value::Path(Some(method)) = value {
                self.ruled_out.insert(method);
            }
            self.insert(Entry { name, value: value.clone(), name_size, size: name_size + value_size + 32 });
        }
        Ok(Field::Known(name, value))
    }

    fn insert(&mut self, mut entry: Entry) {
        self.evict(entry.size);
        if entry.size > self.max && self.max_exact {
            // RFC 7541, 4.4: too big an entry empties the table and is not inserted.
            self.inserted = 0;
            self.complete = true;
            return;
        }
        // Only its place matters where the encoder's table may be bigger than ours.
        entry.size = entry.size.min(self.max);
        self.size += entry.size;
        self.inserted += 1;
        self.entries.push_front(entry);
    }
}

/// The fields of one block, as they come.
#[derive(Default)]
struct Reading {
    position: usize,
    path: Path,
    path_at: Option<usize>,
    content_type_at: Option<usize>,
    /// The first symbol, and the symbol where the path was in earlier blocks.
    first_symbol: Option<i64>,
    symbol_at_path: Option<i64>,
    symbols: usize,
    lost: usize,
    unnamed: usize,
    namespace: Option<Header>,
    method: Option<bool>,
    in_step: bool,
}

impl Reading {
    fn field(&mut self, field: Field, path_position: Option<usize>) {
        match field {
            Field::Known(Name::Path, value) => {
                self.path_at = Some(self.position);
                self.path = match value {
                    Value::Path(Some(method)) => Path::Known(method),
                    _ => Path::Other,
                };
            }
            // containerd reads the first of several.
            Field::Known(Name::Namespace, value) => {
                self.namespace.get_or_insert(match value {
                    Value::Namespace(text) => Header::Known(text.as_ref().into()),
                    _ => Header::Unknown,
                });
            }
            Field::Known(Name::Method, value) => self.method = Some(value == Value::Post),
            Field::Known(Name::Unknown, _) => self.unnamed += 1,
            Field::Known(Name::ContentType, _) => self.content_type_at = Some(self.position),
            Field::Known(Name::Other, _) => {}
            Field::Symbol(slot) => {
                self.symbols += 1;
                self.first_symbol.get_or_insert(slot);
                if path_position == Some(self.position) {
                    self.symbol_at_path = Some(slot);
                }
            }
            Field::Lost => self.lost += 1,
        }
        self.position += 1;
    }

    fn finish(self) -> Head {
        let hidden = self.symbols + self.lost + self.unnamed;
        let path = match (self.path, self.symbol_at_path.or(self.first_symbol)) {
            (Path::Absent, _) if self.lost > 0 => Path::Lost,
            // gRPC's clients that index paths (Go, C) send the path before anything else that has an entry.
            (Path::Absent, Some(slot)) => Path::Symbol(slot),
            (Path::Absent, None) if self.unnamed > 0 => Path::Lost,
            (path, _) => path,
        };
        let others_hidden = hidden - usize::from(matches!(path, Path::Symbol(_)));
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None if others_hidden > 0 => Header::Unknown,
            None => Header::Absent,
        };
        let request = path != Path::Absent && self.method.unwrap_or(hidden > 0);
        Head { path, namespace, request, in_step: self.in_step }
    }
}

/// The rest of a header block.
struct Input<'a>(&'a [u8]);

/// A decoded string if it has at most `N` bytes, and its size in any case. Wiped: it may be of a secret.
struct Text<const N: usize> {
    bytes: zeroize::Zeroizing<[u8; N]>,
    size: usize,
}

impl<const N: usize> Text<N> {
    fn bytes(&self) -> Option<&[u8]> {
        self.bytes.get(..self.size)
    }

    fn text(&self) -> Option<&str> {
        let text = std::str::from_utf8(self.bytes()?).ok()?;
        text.bytes().all(|byte| byte.is_ascii_graphic()).then_some(text)
    }
}

impl<'a> Input<'a> {
    fn byte(&mut self) -> Result<u8, HpackError> {
        let (first, rest) = self.0.split_first().ok_or(HpackError::Short)?;
        self.0 = rest;
        Ok(*first)
    }

    /// RFC 7541, 5.1.
    fn number(&mut self, prefix: u32) -> Result<u64, HpackError> {
        let most = (1_u64 << prefix) - 1;
        let mut number = u64::from(self.byte()?) & most;
        if number < most {
            return Ok(number);
        }
        for shift in (0..28).step_by(7) {
            let byte = self.byte()?;
            number += u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(HpackError::Number)
    }

    /// RFC 7541, 5.2.
    fn string<const N: usize>(&mut self) -> Result<Text<N>, HpackError> {
        let coded = self.0.first().ok_or(HpackError::Short)? & 0x80 != 0;
        let size = usize::try_from(self.number(7)?).map_err(|_| HpackError::Number)?;
        let (string, rest) = self.0.split_at_checked(size).ok_or(HpackError::Short)?;
        self.0 = rest;
        let mut text = Text { bytes: zeroize::Zeroizing::new([0; N]), size: 0 };
        let mut each = |byte| {
            if let Some(place) = text.bytes.get_mut(text.size) {
                *place = byte;
            }
            text.size += 1;
        };
        match coded {
            true => huffman::decode(string, each)?,
            false => string.iter().copied().for_each(&mut each),
        }
        Ok(text)
    }
}

fn named(name: &[u8]) -> Name {
    match name {
        b":method" => Name::Method,
        b":path" => Name::Path,
        b"content-type" => Name::ContentType,
        b"containerd-namespace" => Name::Namespace,
        _ => Name::Other,
    }
}

/// The names of the static table (RFC 7541, appendix A). Of its values only `:method: POST` matters.
const STATIC: [&str; 61] = [
    ":authority",
    ":method",
    ":method",
    ":path",
    ":path",
    ":scheme",
    ":scheme",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    ":status",
    "accept-charset",
    "accept-encoding",
    "accept-language",
    "accept-ranges",
    "accept",
    "access-control-allow-origin",
    "age",
    "allow",
    "authorization",
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-length",
    "content-location",
    "content-range",
    "content-type",
    "cookie",
    "date",
    "etag",
    "expect",
    "expires",
    "from",
    "host",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "last-modified",
    "link",
    "location",
    "max-forwards",
    "proxy-authenticate",
    "proxy-authorization",
    "range",
    "referer",
    "refresh",
    "retry-after",
    "server",
    "set-cookie",
    "strict-transport-security",
    "transfer-encoding",
    "user-agent",
    "vary",
    "via",
    "www-authenticate",
];
