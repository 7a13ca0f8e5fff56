//! Any sequence of header blocks, with epochs begun in between.
#![no_main]

use imgwarden::wire::hpack::{Path, Table};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (bool, Vec<Vec<u8>>)| {
    let (complete, blocks) = input;
    let mut table = Table::new(1, complete);
    for (epoch, block) in (2..).zip(&blocks) {
        match table.decode(block) {
            Ok(head) => {
                if let Path::Symbol(slot) = head.path {
                    assert!(slot < 0);
                }
            }
            Err(_) => table.begin_epoch(epoch),
        }
        assert!(table.held() <= 256 << 10);
    }
});
