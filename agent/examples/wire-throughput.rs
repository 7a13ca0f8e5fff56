//! How fast `wire` steps over an import: 300 MB of DATA in frames of 16 KiB, in writes of 32 KiB, in parts of 8 KiB, with
//! an image's removal after each megabyte. `cargo run --release --package imgwarden --example wire-throughput`

use std::{sync::Arc, time::Instant};

use imgwarden::{
    probe::record::{Boottime, Connection, Process, ProcessKey, Program, Send},
    wire::{Limits, Wire, frame::PREFACE, method::Known},
};

const FRAME: usize = 16 * 1024;
const PART: usize = 8 * 1024;
const REMOVALS: u32 = 300;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    frame.extend([kind, flags]);
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

fn main() {
    let process = Arc::new(Process {
        key: ProcessKey { pid: 1, start: 1 },
        uid: 0,
        login_uid: None,
        session_id: None,
        comm: String::new(),
        program: Program::default(),
        cgroup: Vec::new(),
        host: None,
        parents: Vec::new(),
    });
    let mut writes = vec![PREFACE.to_vec()];
    let data = frame(0, 0, 1, &[0xa5; FRAME]);
    let path = Known::ImagesDelete.path().as_bytes();
    let block = [&[0x83, 0x86, 0x05, path.len() as u8], path].concat();
    for nth in 0..REMOVALS {
        writes.extend((0..32).map(|_| [&data[..], &data].concat()));
        let stream = nth * 2 + 3;
        let body = frame(0, 1, stream, b"\x00\x00\x00\x00\x05\x0a\x03a:1");
        writes.push([frame(1, 4, stream, &block), body].concat());
    }
    let bytes: usize = writes.iter().map(Vec::len).sum();

    let mut wire = Wire::new(Limits::default());
    let mut out = Vec::new();
    let begun = Instant::now();
    for (id, write) in (0..).zip(&writes) {
        for (nth, part) in write.chunks(PART).enumerate() {
            let send = Send {
                connection: Connection(1),
                write: id,
                at: Boottime(id),
                accepted: write.len() as u64,
                offset: (nth * PART) as u64,
                bytes: part,
                process: Arc::clone(&process),
            };
            wire.send(&send, &mut out);
        }
    }
    let took = begun.elapsed();
    println!(
        "{} MB and {} removals in {took:?}: {:.1} GB/s; {} removals told",
        bytes / 1_000_000,
        REMOVALS,
        bytes as f64 / took.as_secs_f64() / 1e9,
        out.len()
    );
    println!("{:?}", wire.counters());
}
