//! What clients may do to the agent's memory.

use super::{Client, encoder::Encoder, frame, process};
use crate::{
    probe::record::Connection,
    wire::{Limits, frame::PREFACE, method::Known},
};

fn open(client: &mut Client, connection: u64, pid: u32) -> Encoder {
    client.connection = Connection(connection);
    client.process = process(pid);
    client.write(PREFACE);
    Encoder::new(false)
}

fn headers(encoder: &mut Encoder, stream: u32) -> Vec<u8> {
    let path = Known::ImagesCreate.path();
    frame(1, 4, stream, &encoder.encode(&[(":method", "POST"), (":path", path)]))
}

#[test]
fn of_too_many_connections_the_idlest_of_the_greediest_process_goes() {
    let mut client = Client::new();
    let limits = Limits::default();
    open(&mut client, 1, 1);
    for connection in 2..=limits.connections as u64 {
        open(&mut client, connection, 2);
    }
    // The oldest of the greedy process speaks: now its second is the idlest.
    client.connection = Connection(2);
    client.write(&frame(6, 0, 0, &[0; 8]));
    open(&mut client, 10_000, 3);
    let kept = |client: &Client, connection| client.wire.connections.contains_key(&Connection(connection));
    assert!(kept(&client, 1) && kept(&client, 2) && !kept(&client, 3) && kept(&client, 10_000));
    let counters = client.wire.counters();
    assert_eq!((counters.connections, counters.evicted), (limits.connections, 1));
}

#[test]
fn a_process_that_is_gone_takes_its_connections_along() {
    let mut client = Client::new();
    open(&mut client, 1, 1);
    open(&mut client, 2, 2);
    client.wire.exited(process(1).key);
    assert_eq!(client.wire.counters().connections, 1);
    client.wire.exited(process(2).key);
    assert_eq!((client.wire.counters().connections, client.wire.counters().held), (0, 0));
}

#[test]
fn unfinished_messages_are_bounded_for_one_connection_and_for_all() {
    let mut client = Client::new();
    let limits = Limits::default();
    for connection in 0..100 {
        let mut encoder = open(&mut client, connection, 1);
        for stream in (1..100).step_by(2) {
            client.write(&headers(&mut encoder, stream));
            // A message of 16 MiB is announced and never finished.
            client.write(&frame(0, 0, stream, &[0, 1, 0, 0, 0, 0x0a]));
            let held = client.wire.counters().held;
            assert!(held <= limits.bytes, "{held}");
        }
    }
    let counters = client.wire.counters();
    assert!(counters.evicted > 0 && counters.streams_dropped > 0, "{counters:?}");
}

#[test]
fn streams_that_never_send_are_bounded_and_told_as_lost() {
    let mut client = Client::new();
    let limits = Limits::default();
    let mut encoder = open(&mut client, 1, 1);
    for nth in 0..=limits.streams as u32 {
        client.write(&headers(&mut encoder, nth * 2 + 1));
    }
    assert_eq!(client.out.len(), 1);
    assert_eq!(client.wire.counters().streams_dropped, 1);
}

#[test]
fn a_huge_header_block_is_lost_and_takes_no_memory() {
    let mut client = Client::new();
    open(&mut client, 1, 1);
    client.write(&frame(1, 0, 1, &[0x83; 16_000]));
    for _ in 0..200 {
        client.write(&frame(9, 0, 1, &[0x83; 16_000]));
        assert!(client.wire.counters().held < 256 << 10);
    }
    client.write(&frame(9, 4, 1, &[0x83]));
    assert_eq!(client.wire.counters().broken, 0);
}
