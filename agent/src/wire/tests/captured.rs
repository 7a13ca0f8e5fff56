//! What the real `ctr` wrote (tests/captures/wire).

use super::Client;
use crate::wire::request::{Call, Header, Method, Request};

const IMPORT: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.6-import.writes");
const TAG_1_6: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.6-tag.writes");
const TAG_1_7: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.7-tag.writes");
const LABEL: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.6-label.writes");
const RM_1_6: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.6-rm.writes");
const RM_1_7: &[u8] = include_bytes!("../../../../tests/captures/wire/ctr-1.7-rm.writes");

fn writes(mut capture: &[u8]) -> Vec<&[u8]> {
    let mut writes = Vec::new();
    while let Some((length, rest)) = capture.split_first_chunk() {
        let (write, rest) = rest.split_at(u32::from_be_bytes(*length) as usize);
        writes.push(write);
        capture = rest;
    }
    writes
}

fn told(capture: &[u8], first: usize) -> Vec<Request> {
    let mut client = Client::new();
    for write in &writes(capture)[first..] {
        client.write(write);
    }
    let counters = client.wire.counters();
    assert_eq!((counters.broken, counters.holes, counters.unreadable), (0, 0, 0));
    client.out
}

/// The calls, all of which are in `k8s.io` and on a connection seen whole.
fn calls(capture: &[u8]) -> Vec<Call> {
    let each = |request: Request| {
        assert!(request.whole && matches!(request.method, Method::Path(_)));
        assert_eq!(request.namespace, Header::Known("k8s.io".into()));
        request.call
    };
    told(capture, 0).into_iter().map(each).collect()
}

#[test]
fn rm_is_one_delete_for_each_name() {
    for capture in [RM_1_6, RM_1_7] {
        let delete =
            |name: &str| Call::ImagesDelete { name: format!("registry.example/{name}"), sync: false };
        assert_eq!(calls(capture), [delete("app:1"), delete("app:2"), delete("absent:3")]);
    }
}

#[test]
fn tag_and_import_create_the_name_and_let_their_lease_go() {
    let lease = |id: &str| Call::LeasesDelete { id: id.into() };
    let create = |name: &str| Call::ImagesCreate { name: format!("registry.example/{name}") };
    assert_eq!(calls(TAG_1_6), [create("app:2"), lease("725092217-5h2P")]);
    assert_eq!(calls(TAG_1_7), [create("app:2"), lease("66283104-6x_Y")]);
    let content = |digest: &str| Call::ContentUpdate { digest: digest.into() };
    let update = Call::ImagesUpdate { name: "registry.example/app:1".into(), fields: vec!["target".into()] };
    assert_eq!(
        calls(IMPORT),
        [
            content("sha256:ee6502cbbd876d9412e8256061ea3c7b8151562e99eb5bf9c525dd6e84c19ad6"),
            content("sha256:662a20c156b9c02c73dbcd18542cab6a76d77b005067ea1531317464b32dfe88"),
            update,
            create("app:1"),
            lease("140315825-mC0h"),
        ]
    );
}

#[test]
fn a_pin_is_an_update_of_one_label() {
    let fields = vec!["labels.io.cri-containerd.pinned".into()];
    assert_eq!(calls(LABEL), [Call::ImagesUpdate { name: "registry.example/app:1".into(), fields }]);
}

#[test]
fn attached_at_any_write_nothing_is_told_that_was_not_said() {
    for capture in [IMPORT, TAG_1_6, TAG_1_7, LABEL, RM_1_6, RM_1_7] {
        let whole = told(capture, 0);
        for first in 1..writes(capture).len() {
            for late in told(capture, first) {
                let Some(request) = whole.iter().find(|request| request.stream == late.stream) else {
                    // Of a method that is not told: it can't have been recognised as one that is.
                    assert!(!matches!(late.method, Method::Path(_)), "{late:?}");
                    continue;
                };
                match late.method {
                    Method::Path(_) => {
                        assert_eq!((&late.method, &late.call), (&request.method, &request.call))
                    }
                    Method::Symbol(_) | Method::Lost => assert!(matches!(late.call, Call::Opaque(_))),
                }
                assert!(late.namespace == request.namespace || late.namespace == Header::Unknown);
            }
        }
    }
}
