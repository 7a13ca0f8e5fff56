//! What an ELF file's headers say.

use std::{fs, path::Path};

use anyhow::{Context as _, Result};
use object::{
    Endianness,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};

/// Whether a program runs without an interpreter, so without any library of the machine.
pub(crate) fn is_static(path: &Path) -> Result<bool> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    let parse = || -> object::Result<bool> {
        let header = FileHeader64::<Endianness>::parse(&*bytes)?;
        let endian = header.endian()?;
        let segments = header.program_headers(endian, &*bytes)?;
        Ok(!segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP))
    };
    parse().with_context(|| format!("{} is no 64-bit ELF program", path.display()))
}
