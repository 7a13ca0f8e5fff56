//! The Huffman code of HPACK (RFC 7541, appendix B). Takes coded bytes, emits the decoded ones one by one to the
//! caller, so that a value that must not be kept can be measured without being written anywhere.

use super::hpack::HpackError;

/// The end-of-string symbol, which never occurs in a valid string.
const EOS: usize = 256;
const LONGEST: usize = 30;

/// The code is canonical: the lengths alone, in order of symbol, define it.
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, //
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, //
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, //
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, //
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, //
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, //
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, //
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, //
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, //
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, //
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, //
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, //
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, //
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, //
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, //
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, //
    30,
];

/// By code length: the first code, how many there are, and where their symbols begin in `symbols`.
struct Canonical {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    begin: [usize; LONGEST + 1],
    symbols: [u16; 257],
}

const CODE: Canonical = canonical();

const fn canonical() -> Canonical {
    let mut code = Canonical { first: [0; 31], count: [0; 31], begin: [0; 31], symbols: [0; LENGTHS.len()] };
    let mut next = 0;
    let mut placed = 0;
    let mut length = 1;
    while length <= LONGEST {
        next <<= 1;
        code.first[length] = next;
        code.begin[length] = placed;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] as usize == length {
                code.symbols[placed] = symbol as u16;
                placed += 1;
                next += 1;
                code.count[length] += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    code
}

/// Decodes `coded` and gives each byte to `each`.
pub(super) fn decode(coded: &[u8], mut each: impl FnMut(u8)) -> Result<(), HpackError> {
    let mut code: u32 = 0;
    let mut length = 0;
    for byte in coded {
        for shift in (0..8).rev() {
            code = code << 1 | u32::from(byte >> shift & 1);
            length += 1;
            if length > LONGEST {
                return Err(HpackError::Huffman);
            }
            let nth = code.wrapping_sub(CODE.first[length]);
            if nth < CODE.count[length] {
                let symbol = CODE.symbols[CODE.begin[length] + nth as usize];
                if usize::from(symbol) == EOS {
                    return Err(HpackError::Huffman);
                }
                each(symbol as u8);
                code = 0;
                length = 0;
            }
        }
    }
    // Padding is the beginning of EOS: ones, fewer than a byte.
    if length > 7 || code != (1 << length) - 1 {
        return Err(HpackError::Huffman);
    }
    Ok(())
}

/// The code of `byte` and its length in bits.
#[cfg(test)]
pub(super) fn code_of(byte: u8) -> (u32, usize) {
    let length = usize::from(LENGTHS[usize::from(byte)]);
    let begin = CODE.begin[length];
    let nth = CODE.symbols[begin..].iter().position(|symbol| *symbol == u16::from(byte)).unwrap();
    (CODE.first[length] + nth as u32, length)
}

#[cfg(test)]
mod tests {
    use loona_hpack::huffman::HuffmanDecoder;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn agrees_with_another_decoder(coded in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut ours = Vec::new();
            let result = decode(&coded, |byte| ours.push(byte));
            match HuffmanDecoder::new().decode(&coded) {
                Ok(theirs) => {
                    prop_assert_eq!(result, Ok(()));
                    prop_assert_eq!(ours, theirs);
                }
                Err(_) => prop_assert!(result.is_err()),
            }
        }
    }

    #[test]
    fn decodes_the_example_of_the_rfc() {
        let coded = hex::decode("f1e3c2e5f23a6ba0ab90f4ff").unwrap();
        let mut text = Vec::new();
        decode(&coded, |byte| text.push(byte)).unwrap();
        assert_eq!(text, b"www.example.com");
    }
}
