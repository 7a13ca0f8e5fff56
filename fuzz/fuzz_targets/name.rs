//! Any text is an image name, or is refused; a normal name stays as it is.

#![no_main]

use imgwarden::name::{normalise, repository};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(name) = normalise(text) {
        assert_eq!(normalise(&name).as_ref(), Ok(&name));
        assert!(repository(&name).is_ok());
    }
});
