//! Secrets cross the socket; none may be found in anything that can be printed.

use k8s_cri::v1;
use prost::Message as _;

use super::{Client, encoder::Encoder, frame, message};
use crate::wire::frame::PREFACE;

const MARKER: &str = "xyzzy-marker-4711";

fn calls() -> Vec<(&'static str, Vec<u8>)> {
    let spec = || Some(v1::ImageSpec { image: "registry.example/app:1".into(), ..Default::default() });
    let auth = v1::AuthConfig {
        username: MARKER.into(),
        password: MARKER.into(),
        identity_token: MARKER.into(),
        ..Default::default()
    };
    let pull = v1::PullImageRequest { image: spec(), auth: Some(auth), sandbox_config: None };
    let env = v1::KeyValue { key: "TOKEN".into(), value: MARKER.into() };
    let config = v1::ContainerConfig { image: spec(), envs: vec![env], ..Default::default() };
    let create =
        v1::CreateContainerRequest { pod_sandbox_id: "p".into(), config: Some(config), sandbox_config: None };
    let exec = v1::ExecSyncRequest { container_id: MARKER.into(), cmd: vec![MARKER.into()], timeout: 1 };
    vec![
        ("/runtime.v1.ImageService/PullImage", pull.encode_to_vec()),
        ("/runtime.v1.RuntimeService/CreateContainer", create.encode_to_vec()),
        ("/runtime.v1.RuntimeService/ExecSync", exec.encode_to_vec()),
    ]
}

/// All that the client says, `repeat` times, seen from write `first` on, and everything of it that can be printed.
fn printed(first: usize, cut_every: usize) -> (usize, String) {
    let mut client = Client::new();
    let mut encoder = Encoder::new(true);
    let mut writes = vec![PREFACE.to_vec()];
    for (nth, (path, body)) in calls().into_iter().cycle().take(9).enumerate() {
        let block = encoder.encode(&[
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("authorization", MARKER),
            (MARKER, "x"),
        ]);
        let stream = nth as u32 * 2 + 1;
        writes.push([frame(1, 4, stream, &block), frame(0, 1, stream, &message(&body))].concat());
    }
    let mut text = String::new();
    for write in &writes[first..] {
        for part in write.chunks(cut_every) {
            client.write(part);
            text += &format!("{:#?}{:?}", client.wire, client.out);
        }
    }
    (client.out.len(), text)
}

#[test]
fn a_secret_is_in_nothing_that_can_be_printed() {
    for first in 0..7 {
        for cut_every in [30, 100, 10_000] {
            let (requests, text) = printed(first, cut_every);
            assert!(requests > 0, "attached at {first}, cut every {cut_every}: nothing told");
            assert!(!text.contains(MARKER), "attached at {first}, cut every {cut_every}");
        }
    }
}
