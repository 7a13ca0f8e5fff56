//! Any bytes are a manifest, an index or a config, or are refused.

#![no_main]

use imgwarden::inventory::document::{Config, Document};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(document) = Document::parse(bytes) {
        let _ = document.gc_labels();
    }
    if let Ok(config) = Config::parse(bytes) {
        let _ = config.chain();
    }
});
