//! Any text is a config, or is refused with an error that can be printed.

#![no_main]

use imgwarden::config::Config;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = toml::from_str::<Config>(text) {
        let _ = error.to_string();
    }
});
