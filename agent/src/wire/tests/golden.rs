//! Bytes that real clients sent, and small scenarios built of them.

use k8s_cri::v1;
use prost::Message as _;

use super::{Client, frame, message, process};
use crate::{
    probe::record::Boottime,
    wire::{
        frame::PREFACE,
        method::Known,
        request::{Call, Header, Method, Shape, Symbol},
    },
};

/// The first header fields of a connection's first call of a method, as grpc-go wrote them: POST, http, the path as a
/// Huffman-coded literal that is inserted.
const FIRST_USE: [(Known, &str); 7] = [
    (Known::RemoveImage, "8386459a62cb6a49a92afdc2be4a47317716cee62158da5a4fdcb9291cc5"),
    (Known::RemoveImageAlpha, "8386459f62cb6a49a92afdc23a2b9c625f252398bb8b677310ac6d2d27ee5c948e62ff"),
    (Known::ImagesDelete, "8386459f6087a9233545b245d05b3b988542e6a473150bf70af9291cc54317cb41525f"),
    (Known::ImagesUpdate, "8386459f6087a9233545b245d05b3b988542e6a473150bf70af9291cc5431c2b90692f"),
    (Known::ContentDelete, "838645a06087a9233545b245d05b3b988542e43d492d495fb857bc7a925a92c5f2d05497"),
    (
        Known::SnapshotsRemove,
        "838645a36087a9233545b245d05b3b988542e8a875a273a50bf70afbaa1d689ce9431b4b49fb97",
    ),
    (Known::LeasesDelete, "8386459f6087a9233545b245d05b3b988542f414682a17ee15f394682a18be5a0a92ff"),
];

fn first_use(method: Known) -> Vec<u8> {
    let (_, hexed) = FIRST_USE.iter().find(|(known, _)| *known == method).unwrap();
    let mut block = hex::decode(hexed).unwrap();
    // :authority, content-type, user-agent: literals that are inserted; te: the same with a literal name.
    for (index, value) in [(0x41, "localhost"), (0x5f, "application/grpc"), (0x7a, "grpc-go/1.67.1")] {
        block.extend([index, value.len() as u8]);
        block.extend(value.as_bytes());
    }
    block.extend(b"\x40\x02te\x08trailers");
    block
}

/// Any later call of the same method: `83 86` and indices.
const LATER: [u8; 7] = [0x83, 0x86, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];

fn remove(image: &str) -> Vec<u8> {
    let image = v1::ImageSpec { image: image.into(), ..Default::default() };
    message(&v1::RemoveImageRequest { image: Some(image) }.encode_to_vec())
}

fn removal(image: &str) -> Call {
    Call::RemoveImage { image: image.into() }
}

fn path(method: Known) -> Method {
    Method::Path(method.path().into())
}

fn whole_client() -> Client {
    let mut client = Client::new();
    client.write(PREFACE);
    client.write(&frame(4, 0, 0, &[]));
    client
}

#[test]
fn a_first_use_and_a_later_use_are_the_same_method() {
    for (method, _) in FIRST_USE {
        let mut client = whole_client();
        client.write(&frame(1, 4, 1, &first_use(method)));
        client.write(&frame(0, 1, 1, &message(&[])));
        client.write(&[frame(1, 4, 3, &LATER), frame(0, 1, 3, &message(&[]))].concat());
        let told: Vec<_> = client.told().into_iter().map(|(stream, method, ..)| (stream, method)).collect();
        assert_eq!(told, [(1, path(method)), (3, path(method))]);
        assert!(client.wire.counters().whole == 1 && client.wire.counters().broken == 0);
    }
}

#[test]
fn a_whole_connection_tells_everything_of_a_removal() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write(&frame(0, 1, 1, &remove("sha256:abc")));
    let [request] = &client.out[..] else { panic!("{:?}", client.out) };
    assert_eq!(request.connection, client.connection);
    assert_eq!(request.at, Boottime(4));
    assert_eq!(request.process, client.process);
    assert_eq!((request.whole, request.ruled_out.is_empty()), (true, true));
    let expected = vec![(1, path(Known::RemoveImage), Header::Absent, removal("sha256:abc"))];
    assert_eq!(client.told(), expected);
}

#[test]
fn attached_in_the_middle_a_later_use_is_a_symbol_until_the_method_is_sent_in_full() {
    let mut client = Client::new();
    client.write(&[frame(1, 4, 31, &LATER), frame(0, 1, 31, &remove("a:1"))].concat());
    client.write(&[frame(1, 4, 33, &LATER), frame(0, 1, 33, &remove("a:2"))].concat());
    let told = client.told();
    let [(31, Method::Symbol(symbol), Header::Unknown, Call::Opaque(shape)), (33, second, ..)] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(shape, &Shape::ImageSpec { image: "a:1".into() });
    assert_eq!(second, &Method::Symbol(*symbol));

    // The next call inserts five entries: the old path's index grows by as many, its symbol stays.
    client.write(&frame(1, 4, 35, &first_use(Known::RemoveImageAlpha)));
    client.write(&frame(0, 1, 35, &remove("a:3")));
    let later = [0x83, 0x86, 0xc2 + 5, 0xc1, 0xc0, 0xbf, 0xbe];
    client.write(&[frame(1, 4, 37, &later), frame(0, 1, 37, &remove("a:4"))].concat());
    client.write(&[frame(1, 4, 39, &LATER), frame(0, 1, 39, &remove("a:5"))].concat());
    assert!(client.out[1].ruled_out.contains(Known::RemoveImageAlpha));
    assert!(!client.out[1].ruled_out.contains(Known::RemoveImage));
    let told = client.told();
    assert_eq!(told[0], (35, path(Known::RemoveImageAlpha), Header::Absent, removal("a:3")));
    assert_eq!(told[1].1, Method::Symbol(*symbol));
    // A symbol is the only header that is not known: the namespace is not hidden.
    assert_eq!(told[1].2, Header::Absent);
    assert_eq!(told[2], (39, path(Known::RemoveImageAlpha), Header::Absent, removal("a:5")));
}

#[test]
fn after_a_hole_in_headers_old_and_new_symbols_never_collide() {
    let mut client = Client::new();
    client.write(&[frame(1, 4, 31, &LATER), frame(0, 1, 31, &remove("a:1"))].concat());
    // The second write's header block is not seen.
    client.write_parts(&frame(1, 4, 33, &first_use(Known::RemoveImage)), 9, |part| part == 0);
    client.write(&frame(0, 1, 33, &remove("a:2")));
    client.write(&[frame(1, 4, 35, &LATER), frame(0, 1, 35, &remove("a:3"))].concat());
    let told = client.told();
    let [(31, Method::Symbol(old), ..), (33, Method::Lost, ..), (35, Method::Symbol(new), ..)] = &told[..]
    else {
        panic!("{told:?}")
    };
    assert_ne!(old, new);
    assert_eq!((client.wire.counters().holes, client.wire.counters().broken), (1, 0));
}

#[test]
fn after_lost_parts_a_connection_that_missed_nothing_proves_it() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write(&frame(0, 1, 1, &remove("a:1")));
    client.wire.lost(3);
    client.write(&[frame(1, 4, 3, &LATER), frame(0, 1, 3, &remove("a:2"))].concat());
    assert_eq!(client.told().last(), Some(&(3, path(Known::RemoveImage), Header::Absent, removal("a:2"))));
}

#[test]
fn after_lost_parts_a_connection_that_missed_headers_knows_nothing_any_more() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write(&frame(0, 1, 1, &remove("a:1")));
    // Images/Delete and its entries were inserted unseen: its later use looks like RemoveImage's.
    client.wire.lost(1);
    client.write(
        &[frame(1, 4, 5, &[0x83, 0x86, 0xbe, 0xc1, 0xc0, 0xbf, 0xbf]), frame(0, 1, 5, &remove("a:2"))]
            .concat(),
    );
    let told = client.told();
    assert!(
        matches!(told[1], (5, Method::Symbol(Symbol { .. }), Header::Unknown, Call::Opaque(_))),
        "{told:?}"
    );
}

#[test]
fn literals_without_huffman_and_index_are_read_too() {
    let mut client = whole_client();
    let mut block = vec![0x83, 0x86];
    let path_text = Known::ImagesDelete.path();
    block.extend([0x04, path_text.len() as u8]);
    block.extend(path_text.as_bytes());
    block.extend(b"\x00\x14containerd-namespace\x06k8s.io");
    client.write(&frame(1, 4, 1, &block));
    client.write(&frame(0, 1, 1, &message(b"\x0a\x03a:1\x10\x01")));
    let call = Call::ImagesDelete { name: "a:1".into(), sync: true };
    let expected = vec![(1, path(Known::ImagesDelete), Header::Known("k8s.io".into()), call)];
    assert_eq!(client.told(), expected);
}

#[test]
fn padding_priority_continuation_and_trailers_are_stepped_over() {
    let mut client = whole_client();
    let block = first_use(Known::RemoveImage);
    let (first, rest) = block.split_at(20);
    let payload = [&[3][..], &[0, 0, 0, 0, 16], first, &[0; 3]].concat();
    client.write(&frame(1, 0x8 | 0x20, 1, &payload));
    client.write(&frame(9, 0, 1, rest));
    client.write(&frame(9, 4, 1, &[]));
    let body = remove("a:1");
    client.write(&frame(0, 8, 1, &[&[2][..], &body[..7], &[0; 2]].concat()));
    client.write(&frame(8, 0, 0, &[0, 0, 1, 0]));
    client.write(&frame(0, 8, 1, &[&[0][..], &body[7..]].concat()));
    client.write(&frame(1, 5, 1, b"\x40\x01x\x01y"));
    client.write(&frame(7, 0, 0, &[0; 8]));
    assert_eq!(client.told(), [(1, path(Known::RemoveImage), Header::Absent, removal("a:1"))]);
    assert_eq!(client.wire.counters().broken, 0);
}

#[test]
fn a_call_that_was_cancelled_before_its_message_was_complete_is_none() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write(&frame(0, 0, 1, &remove("a:1")[..8]));
    client.write(&frame(3, 0, 1, &[0, 0, 0, 8]));
    assert_eq!(client.told(), []);
}

#[test]
fn a_hole_inside_data_that_nobody_wants_costs_nothing() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write(&frame(0, 1, 1, &remove("a:1")));
    client.write_parts(&frame(0, 0, 99, &[0; 9000]), 1000, |part| part != 3 && part != 9);
    client.write(&[frame(1, 4, 3, &LATER), frame(0, 1, 3, &remove("a:2"))].concat());
    let expected = (3, path(Known::RemoveImage), Header::Absent, removal("a:2"));
    assert_eq!(client.told().last(), Some(&expected));
    let counters = client.wire.counters();
    assert_eq!((counters.holes, counters.broken), (2, 0));
}

#[test]
fn a_hole_in_a_message_loses_the_message_and_not_the_method() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.write_parts(&frame(0, 1, 1, &remove("registry.example/image:1")), 10, |part| part != 2);
    assert_eq!(client.told(), [(1, path(Known::RemoveImage), Header::Absent, Call::Lost)]);
}

#[test]
fn attached_inside_a_frame_the_next_write_that_begins_one_is_found() {
    let data = frame(0, 0, 9, &[0x61; 16384]);
    let mut client = Client::new();
    client.write(&data[5000..]);
    client.write(&data[..8000]);
    client.write(&data[8000..]);
    client
        .write(&[frame(1, 4, 11, &first_use(Known::RemoveImage)), frame(0, 1, 11, &remove("a:1"))].concat());
    assert_eq!(client.told(), [(11, path(Known::RemoveImage), Header::Absent, removal("a:1"))]);
    assert_eq!(client.wire.counters().midstream, 1);
}

#[test]
fn an_inode_that_is_used_again_is_a_new_connection() {
    let mut client = whole_client();
    client.write(&frame(1, 4, 1, &first_use(Known::RemoveImage)));
    client.process = process(200);
    client.write(PREFACE);
    client.write(
        &[frame(1, 4, 1, &first_use(Known::ImagesDelete)), frame(0, 1, 1, &message(b"\x0a\x01a"))].concat(),
    );
    let call = Call::ImagesDelete { name: "a".into(), sync: false };
    assert_eq!(client.told(), [(1, path(Known::ImagesDelete), Header::Absent, call)]);
}
