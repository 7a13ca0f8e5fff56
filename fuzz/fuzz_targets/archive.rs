//! Archives: any bytes as a file, and any documents in a well-formed tar (random bytes hardly ever have a right header
//! checksum). Whatever is read is extracted, and what is called verified must hash to its digest.

#![no_main]

use std::{io, path::PathBuf, sync::LazyLock};

use imgwarden::{
    archive::{BlobSink, Depth, Limits, Options, extract, read},
    digest::Digest,
    inventory::image::Descriptor,
};
use libfuzzer_sys::fuzz_target;

/// In memory where the system has a place for it: the archive is read by path.
static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
    let shared = PathBuf::from("/dev/shm");
    let directory = if shared.is_dir() { shared } else { std::env::temp_dir() };
    directory.join(format!("imgwarden-fuzz-archive-{}", std::process::id()))
});

const NAMES: [&str; 6] = ["oci-layout", "index.json", "manifest.json", "config.json", "layer.tar", "BLOB"];

/// Parts of the input as the files of a tar: a part's first byte picks its name, `\xff` ends it.
fn tar(input: &[u8]) -> Vec<u8> {
    let mut tar = Vec::new();
    for part in input.split(|byte| *byte == 0xff) {
        let Some((pick, content)) = part.split_first() else { continue };
        let name = match NAMES[usize::from(*pick) % NAMES.len()] {
            "BLOB" => format!("blobs/sha256/{}", Digest::of(content).to_hex()),
            name => name.to_owned(),
        };
        let mut header = [0; 512];
        header[..name.len()].copy_from_slice(name.as_bytes());
        header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
        header[148..156].fill(b' ');
        header[156] = b'0';
        header[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        tar.extend_from_slice(&header);
        tar.extend_from_slice(content);
        tar.resize(tar.len().next_multiple_of(512), 0);
    }
    tar.resize(tar.len() + 1024, 0);
    tar
}

#[derive(Default)]
struct Check(Option<Digest>, Vec<u8>);

impl BlobSink for Check {
    fn begin(&mut self, descriptor: &Descriptor) -> io::Result<()> {
        (self.0, self.1) = (Some(descriptor.digest), Vec::new());
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.1.extend_from_slice(bytes);
        Ok(())
    }

    fn finish(&mut self, verified: bool) -> io::Result<()> {
        if verified {
            assert_eq!(self.0, Some(Digest::of(&self.1)));
        }
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((form, input)) = input.split_first() else { return };
    let bytes = if form % 2 == 0 { input.to_vec() } else { tar(input) };
    std::fs::write(&*FILE, bytes).expect("a temporary file can be written");
    // Small, so that a bomb is a finding of the limits and not of the fuzzer's clock.
    let limits = Limits { entries: 1000, unpacked: 16 << 20, window_log: 20, ..Limits::default() };
    let options = Options { limits, depth: Depth::Layers, ..Options::default() };
    if let Ok(archive) = read(&FILE, &options) {
        for image in &archive.images {
            let wanted: Vec<_> = image.blobs.iter().collect();
            let _ = extract(&archive.path, &archive.identity, &wanted, &options, &mut Check::default());
        }
    }
});
