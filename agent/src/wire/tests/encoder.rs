//! An HPACK encoder that does what grpc-go's does: whatever has an entry is sent as its index, whatever has none is
//! sent in full and inserted, Huffman-coded where that is shorter. Checked against another decoder, block by block.

use std::collections::VecDeque;

use loona_hpack::{Decoder, encoder::encode_integer_into};

use crate::wire::huffman::code_of;

pub(super) struct Encoder {
    /// Newest first.
    entries: VecDeque<(String, String)>,
    max: usize,
    /// A size that is to be announced.
    resized: Option<usize>,
    huffman: bool,
    /// The names whose values are never inserted.
    pub(super) never: Vec<&'static str>,
    judge: Decoder<'static>,
}

const STATIC: [(&str, &str, usize); 5] = [
    (":method", "POST", 3),
    (":scheme", "http", 6),
    (":authority", "", 1),
    ("content-type", "", 31),
    ("user-agent", "", 58),
];

impl Encoder {
    pub(super) fn new(huffman: bool) -> Self {
        Self {
            entries: VecDeque::new(),
            max: 4096,
            resized: None,
            huffman,
            never: Vec::new(),
            judge: Decoder::new(),
        }
    }

    pub(super) fn resize(&mut self, size: usize) {
        self.resized = Some(size);
        self.max = size;
        self.make_room(0);
    }

    fn make_room(&mut self, size: usize) {
        while self.size() + size > self.max && self.entries.pop_back().is_some() {}
    }

    fn size(&self) -> usize {
        self.entries.iter().map(|(name, value)| name.len() + value.len() + 32).sum()
    }

    pub(super) fn encode(&mut self, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = Vec::new();
        if let Some(size) = self.resized.take() {
            encode_integer_into(size, 5, 0x20, &mut block).unwrap();
        }
        for (name, value) in headers {
            self.field(&mut block, name, value);
        }
        let decoded = self.judge.decode(&block).unwrap();
        let decoded: Vec<_> = decoded
            .iter()
            .map(|(name, value)| (std::str::from_utf8(name).unwrap(), std::str::from_utf8(value).unwrap()))
            .collect();
        assert_eq!(decoded, headers);
        block
    }

    fn field(&mut self, block: &mut Vec<u8>, name: &str, value: &str) {
        let fixed = STATIC.iter().find(|(n, v, _)| *n == name && *v == value);
        let entry = self.entries.iter().position(|(n, v)| n == name && v == value);
        if let Some(index) = fixed.map(|(.., index)| *index).or(entry.map(|nth| nth + 62)) {
            encode_integer_into(index, 7, 0x80, block).unwrap();
            return;
        }
        let named = STATIC.iter().find(|(n, ..)| *n == name).map(|(.., index)| *index);
        let named = named.or((name == ":path").then_some(5));
        let named = named.or_else(|| self.entries.iter().position(|(n, _)| n == name).map(|nth| nth + 62));
        let size = name.len() + value.len() + 32;
        // grpc-go does not insert what is larger than the table.
        let insert = size <= self.max && !self.never.contains(&name);
        let (prefix, mask) = if insert { (6, 0x40) } else { (4, 0) };
        encode_integer_into(named.unwrap_or(0), prefix, mask, block).unwrap();
        if named.is_none() {
            self.string(block, name);
        }
        self.string(block, value);
        if insert {
            self.make_room(size);
            self.entries.push_front((name.into(), value.into()));
        }
    }

    fn string(&self, block: &mut Vec<u8>, text: &str) {
        let coded = coded(text);
        if self.huffman && coded.len() < text.len() {
            encode_integer_into(coded.len(), 7, 0x80, block).unwrap();
            block.extend(coded);
        } else {
            encode_integer_into(text.len(), 7, 0, block).unwrap();
            block.extend(text.as_bytes());
        }
    }
}

fn coded(text: &str) -> Vec<u8> {
    let mut bits = Vec::new();
    for byte in text.bytes() {
        let (code, length) = code_of(byte);
        bits.extend((0..length).rev().map(|shift| code >> shift & 1 == 1));
    }
    bits.chunks(8)
        .map(|bits| (0..8).fold(0, |byte, nth| byte << 1 | u8::from(*bits.get(nth).unwrap_or(&true))))
        .collect()
}
