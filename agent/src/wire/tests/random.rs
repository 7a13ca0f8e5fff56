//! Random clients of grpc-go's kind, seen in random pieces, from a random moment on, with random losses. What
//! is told must be right, or said to be unknown; without losses and from the first byte it must be everything.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use prost::Message as _;

use super::{Client, encoder::Encoder, frame, message};
use crate::wire::{
    frame::PREFACE,
    method::Known,
    request::{Call, Header, Method, Request, Shape, Symbol},
};

/// One call of a random client.
#[derive(Debug, Clone)]
struct Plan {
    method: usize,
    image: u8,
    namespace: Option<u8>,
    timeout: Option<u16>,
    /// Sizes of the DATA frames that its message is cut into; the last takes the rest.
    pieces: Vec<u8>,
    padded: bool,
    /// Where the header block is cut in two frames.
    continued: Option<u8>,
    resize: Option<u16>,
}

/// What was really sent.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    path: &'static str,
    namespace: Header,
    call: Option<Call>,
    image: String,
}

/// How the agent gets to see it.
#[derive(Debug, Clone)]
struct View {
    /// Sizes of writes, again and again; if there are none, each write is one frame, or the frames of one header block.
    writes: Vec<u16>,
    part: usize,
    /// The first write that is seen, of 256.
    attach: u8,
    /// Every part whose turn in this list is true is lost, if the list is not empty.
    lost: Vec<bool>,
}

/// The bytes of a client, by frame.
type Frames = Vec<Vec<u8>>;

const METHODS: [&str; 8] = [
    Known::RemoveImage.path(),
    Known::ImageStatus.path(),
    Known::PullImage.path(),
    Known::ImagesDelete.path(),
    Known::ImagesGet.path(),
    Known::ContentDelete.path(),
    "/containerd.services.content.v1.Content/Write",
    "/runtime.v1.RuntimeService/ListContainers",
];

fn plan() -> impl Strategy<Value = Plan> {
    (
        (0..METHODS.len(), 0_u8..6, proptest::option::of(0_u8..3), proptest::option::of(0_u16..200)),
        proptest::collection::vec(any::<u8>(), 0..3),
        any::<bool>(),
        proptest::option::weighted(0.2, any::<u8>()),
        proptest::option::weighted(0.05, prop_oneof![Just(0_u16), 0_u16..4096]),
    )
        .prop_map(|((method, image, namespace, timeout), pieces, padded, continued, resize)| Plan {
            method,
            image,
            namespace,
            timeout,
            pieces,
            padded,
            continued,
            resize,
        })
}

fn view(
    attach: impl Strategy<Value = u8>,
    lost: impl Strategy<Value = Vec<bool>>,
) -> impl Strategy<Value = View> {
    (
        prop_oneof![proptest::collection::vec(prop_oneof![1_u16..40, 1_u16..3000], 1..20), Just(Vec::new()),],
        prop_oneof![1_usize..400, Just(10_000)],
        attach,
        lost,
    )
        .prop_map(|(writes, part, attach, lost)| View { writes, part, attach, lost })
}

fn body(method: usize, image: &str) -> (Vec<u8>, Option<Call>) {
    let image_owned = || image.to_owned();
    let spec = || Some(k8s_cri::v1::ImageSpec { image: image_owned(), ..Default::default() });
    match method {
        0 => (
            k8s_cri::v1::RemoveImageRequest { image: spec() }.encode_to_vec(),
            Some(Call::RemoveImage { image: image_owned() }),
        ),
        1 => (k8s_cri::v1::ImageStatusRequest { image: spec(), verbose: false }.encode_to_vec(), None),
        2 => {
            let auth = k8s_cri::v1::AuthConfig { password: "hunter2".into(), ..Default::default() };
            let request =
                k8s_cri::v1::PullImageRequest { image: spec(), auth: Some(auth), sandbox_config: None };
            (request.encode_to_vec(), Some(Call::PullImage { image: image_owned() }))
        }
        3 => (
            [&[0x0a, image.len() as u8][..], image.as_bytes()].concat(),
            Some(Call::ImagesDelete { name: image_owned(), sync: false }),
        ),
        5 => (
            [&[0x0a, image.len() as u8][..], image.as_bytes()].concat(),
            Some(Call::ContentDelete { digest: image_owned() }),
        ),
        6 => (vec![0x5a; 3000], None),
        _ => ([&[0x0a, image.len() as u8][..], image.as_bytes()].concat(), None),
    }
}

/// The client's bytes, and what its streams were. `order`: which of the streams that are under way goes on.
fn frames_of(plans: &[Plan], order: &[u8]) -> (Frames, BTreeMap<u32, Sent>) {
    let mut encoder = Encoder::new(order[0] % 4 != 0);
    if order[0] % 5 == 0 {
        encoder.never = vec![":path", ":authority"];
    }
    let mut frames = vec![PREFACE.to_vec(), frame(4, 0, 0, &[])];
    let mut sent = BTreeMap::new();
    let mut under_way: Vec<(u32, Vec<Vec<u8>>, bool)> = Vec::new();
    let mut plans = plans.iter();
    let mut next_stream = 1;
    for turn in 0.. {
        let turn = usize::from(order[turn % order.len()]);
        if under_way.len() < 1 + turn % 3
            && let Some(plan) = plans.next()
        {
            let stream = next_stream;
            next_stream += 2;
            let image = format!("registry.example/image-{}:1", plan.image);
            if let Some(size) = plan.resize {
                encoder.resize(usize::from(size));
            }
            let namespace = plan.namespace.map(|nth| format!("ns{nth}"));
            let timeout = plan.timeout.map(|micros| format!("{micros}u"));
            let path = METHODS[plan.method];
            let mut headers = vec![
                (":method", "POST"),
                (":scheme", "http"),
                (":path", path),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("user-agent", "grpc-go/1.67.1"),
                ("te", "trailers"),
            ];
            headers.extend(timeout.as_deref().map(|timeout| ("grpc-timeout", timeout)));
            headers.extend(namespace.as_deref().map(|namespace| ("containerd-namespace", namespace)));
            let block = encoder.encode(&headers);
            match plan.continued.map(|at| usize::from(at) % block.len()) {
                Some(at) => {
                    let block = [frame(1, 0, stream, &block[..at]), frame(9, 4, stream, &block[at..])];
                    frames.push(block.concat());
                }
                None => frames.push(frame(1, 4, stream, &block)),
            }
            let (body, call) = body(plan.method, &image);
            let message = message(&body);
            let mut rest = &message[..];
            let mut pieces = Vec::new();
            for piece in &plan.pieces {
                let (first, after) = rest.split_at(usize::from(*piece).min(rest.len()));
                pieces.push(first.to_vec());
                rest = after;
            }
            pieces.push(rest.to_vec());
            pieces.reverse();
            under_way.push((stream, pieces, plan.padded));
            let namespace = namespace.map_or(Header::Absent, Header::Known);
            sent.insert(stream, Sent { path, namespace, call, image });
        } else if under_way.is_empty() {
            break;
        } else {
            let nth = turn % under_way.len();
            let (stream, pieces, padded) = &mut under_way[nth];
            let mut payload = pieces.pop().unwrap();
            let mut flags = u8::from(pieces.is_empty());
            if *padded {
                payload = [&[4][..], &payload, &[0; 4]].concat();
                flags |= 8;
            }
            frames.push(frame(0, flags, *stream, &payload));
            if pieces.is_empty() {
                under_way.remove(nth);
            }
        }
    }
    (frames, sent)
}

fn seen(frames: &Frames, view: &View) -> Client {
    let mut client = Client::new();
    let bytes = frames.concat();
    let mut writes = Vec::new();
    let mut rest = &bytes[..];
    for size in view.writes.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (write, after) = rest.split_at(usize::from(*size).min(rest.len()));
        writes.push(write);
        rest = after;
    }
    if view.writes.is_empty() {
        writes = frames.iter().map(Vec::as_slice).collect();
    }
    let attach = usize::from(view.attach) * writes.len() / 256;
    let mut losses = view.lost.iter().copied().cycle();
    for write in &writes[attach..] {
        let mut missed = 0;
        let mut parts = Vec::new();
        for _ in write.chunks(view.part) {
            let lost = losses.next().unwrap_or(false);
            missed += u64::from(lost);
            parts.push(!lost);
        }
        client.write_parts(write, view.part, |nth| parts[nth]);
        // The ring says so at the next record at the latest.
        client.wire.lost(missed);
    }
    client
}

/// Whether what was told is right as far as it goes.
fn check(told: &[Request], sent: &BTreeMap<u32, Sent>) -> Result<(), TestCaseError> {
    let mut symbols = HashMap::<Symbol, &str>::new();
    let mut streams = Vec::new();
    for request in told {
        let Some(sent) = sent.get(&request.stream) else {
            return Err(TestCaseError::fail(format!("stream {} was never begun", request.stream)));
        };
        prop_assert!(!streams.contains(&request.stream), "stream {} was told twice", request.stream);
        streams.push(request.stream);
        match &request.method {
            Method::Path(path) => prop_assert_eq!(path, sent.path),
            Method::Symbol(symbol) => {
                let path = symbols.entry(*symbol).or_insert(sent.path);
                prop_assert_eq!(*path, sent.path);
                for method in request.ruled_out.iter() {
                    prop_assert_ne!(method.path(), sent.path);
                }
            }
            Method::Lost => {}
        }
        if request.namespace != Header::Unknown {
            prop_assert_eq!(&request.namespace, &sent.namespace);
        }
        match &request.call {
            Call::Lost | Call::Opaque(Shape::Other) => {}
            Call::Opaque(Shape::ImageSpec { image: name } | Shape::Name { name }) => {
                prop_assert_eq!(name, &sent.image);
            }
            call => prop_assert_eq!(Some(call), sent.call.as_ref()),
        }
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_connection_seen_whole_is_told_whole(
        plans in proptest::collection::vec(plan(), 1..20),
        order in proptest::collection::vec(any::<u8>(), 1..20),
        view in view(Just(0), Just(Vec::new())),
    ) {
        let (frames, sent) = frames_of(&plans, &order);
        let client = seen(&frames, &view);
        check(&client.out, &sent)?;
        let mut told: Vec<_> = client
            .out
            .iter()
            .map(|request| (request.stream, request.namespace.clone(), Some(request.call.clone())))
            .collect();
        told.sort_by_key(|(stream, ..)| *stream);
        let expected: Vec<_> = sent
            .into_iter()
            .filter(|(_, sent)| sent.call.is_some())
            .map(|(stream, sent)| (stream, sent.namespace, sent.call))
            .collect();
        prop_assert_eq!(told, expected);
        let counters = client.wire.counters();
        prop_assert_eq!((counters.broken, counters.holes, counters.symbols, counters.headless), (0, 0, 0, 0));
    }

    #[test]
    fn attached_in_the_middle_what_is_told_is_right(
        plans in proptest::collection::vec(plan(), 1..30),
        order in proptest::collection::vec(any::<u8>(), 1..20),
        view in view(1_u8.., Just(Vec::new())),
    ) {
        let (frames, sent) = frames_of(&plans, &order);
        check(&seen(&frames, &view).out, &sent)?;
    }

    #[test]
    fn whatever_is_lost_what_is_told_is_right(
        plans in proptest::collection::vec(plan(), 1..30),
        order in proptest::collection::vec(any::<u8>(), 1..20),
        view in view(
            prop_oneof![Just(0), any::<u8>()],
            proptest::collection::vec(proptest::bool::weighted(0.1), 1..60),
        ),
    ) {
        let (frames, sent) = frames_of(&plans, &order);
        check(&seen(&frames, &view).out, &sent)?;
    }

    #[test]
    fn any_bytes_are_survived(
        writes in proptest::collection::vec((proptest::collection::vec(any::<u8>(), 0..200), 1_usize..50, any::<u8>()), 0..20),
        opened in any::<bool>(),
    ) {
        let mut client = Client::new();
        if opened {
            client.write(PREFACE);
        }
        for (bytes, part, lost) in writes {
            client.write_parts(&bytes, part, |nth| lost >> (nth % 8) & 1 == 0);
            client.wire.lost(u64::from(lost % 3));
        }
        let limits = super::Limits::default();
        prop_assert!(client.wire.counters().held <= limits.bytes);
    }
}
