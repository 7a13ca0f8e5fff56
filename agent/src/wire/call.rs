//! The calls that matter, from their messages. Takes a method and the captured bytes of its first message, emits the
//! few strings that say what is asked for; every other field is stepped over.

use super::{
    method::Known,
    protobuf::{Fields, Malformed, Value},
    request::Call,
};

/// Strings of a request are cut here, in bytes.
const LONGEST: usize = 1024;
/// How many strings of a list are kept.
const MOST: usize = 64;

/// Decodes `message`, of which `cut` says that its end was not kept: what then stands at its beginning is believed
/// only where nothing later can change it.
pub(super) fn decode(method: Known, message: &[u8], cut: bool) -> Call {
    let decoded = match cut {
        false => whole(method, message),
        true => beginning(method, message),
    };
    decoded.unwrap_or(Call::Lost)
}

fn whole(method: Known, message: &[u8]) -> Result<Call, Malformed> {
    Ok(match method {
        Known::RemoveImage | Known::RemoveImageAlpha => Call::RemoveImage { image: nested(message, 1, 1)? },
        Known::PullImage | Known::PullImageAlpha => Call::PullImage { image: nested(message, 1, 1)? },
        Known::ImagesCreate => Call::ImagesCreate { name: nested(message, 1, 1)? },
        Known::ImagesUpdate => {
            Call::ImagesUpdate { name: nested(message, 1, 1)?, fields: list(message, 2, 1)? }
        }
        Known::ImagesDelete => Call::ImagesDelete { name: string(message, 1)?, sync: flag(message, 2)? },
        Known::ContentDelete => Call::ContentDelete { digest: string(message, 1)? },
        Known::ContentUpdate => Call::ContentUpdate { digest: nested(message, 1, 1)? },
        Known::SnapshotsRemove => {
            Call::SnapshotsRemove { snapshotter: string(message, 1)?, key: string(message, 2)? }
        }
        Known::SnapshotsCleanup => Call::SnapshotsCleanup { snapshotter: string(message, 1)? },
        Known::LeasesDelete => Call::LeasesDelete { id: string(message, 1)? },
        Known::LeasesDeleteResource => {
            Call::LeasesDeleteResource { id: string(message, 1)?, resource: nested(message, 2, 1)? }
        }
        Known::Transfer => Call::Transfer { names: destination(message)? },
        Known::NamespacesDelete => Call::NamespacesDelete { name: string(message, 1)? },
        Known::ImageStatus
        | Known::ImageStatusAlpha
        | Known::ImagesGet
        | Known::ContentInfo
        | Known::SnapshotsStat => return Err(Malformed),
    })
}

/// Of the messages that may be long (labels, a pod's annotations, credentials) the name stands first.
fn beginning(method: Known, message: &[u8]) -> Result<Call, Malformed> {
    let first = |bytes| Fields::of(bytes).next().ok_or(Malformed)?;
    let (1, Value::Bytes(inner)) = first(message).or_else(|_| open_field(message))? else {
        return Err(Malformed);
    };
    let (1, Value::Bytes(name)) = first(inner)? else { return Err(Malformed) };
    let name = text(name)?;
    match method {
        Known::PullImage | Known::PullImageAlpha => Ok(Call::PullImage { image: name }),
        Known::ImagesCreate => Ok(Call::ImagesCreate { name }),
        Known::ContentUpdate => Ok(Call::ContentUpdate { digest: name }),
        _ => Err(Malformed),
    }
}

/// Field 1 where its end lies behind the cut: a message whose beginning is all that there is.
fn open_field(message: &[u8]) -> Result<(u32, Value<'_>), Malformed> {
    let [0x0a, rest @ ..] = message else { return Err(Malformed) };
    let length = rest.iter().take(10).position(|byte| byte & 0x80 == 0).ok_or(Malformed)?;
    Ok((1, Value::Bytes(&rest[length + 1..])))
}

fn text(bytes: &[u8]) -> Result<String, Malformed> {
    let text = std::str::from_utf8(bytes).map_err(|_| Malformed)?;
    Ok(text[..text.floor_char_boundary(LONGEST)].to_owned())
}

/// The last of a field's values, as every protobuf reader takes it.
fn last(message: &[u8], number: u32) -> Result<Option<Value<'_>>, Malformed> {
    let mut last = None;
    for field in Fields::of(message) {
        match field? {
            (n, value) if n == number => last = Some(value),
            _ => {}
        }
    }
    Ok(last)
}

fn string(message: &[u8], number: u32) -> Result<String, Malformed> {
    match last(message, number)? {
        Some(Value::Bytes(bytes)) => text(bytes),
        None => Ok(String::new()),
        Some(_) => Err(Malformed),
    }
}

fn flag(message: &[u8], number: u32) -> Result<bool, Malformed> {
    match last(message, number)? {
        Some(Value::Varint(flag)) => Ok(flag != 0),
        None => Ok(false),
        Some(_) => Err(Malformed),
    }
}

/// The messages of field `outer`: a reader merges them.
fn messages(message: &[u8], outer: u32) -> Result<Vec<&[u8]>, Malformed> {
    let mut messages = Vec::new();
    for field in Fields::of(message) {
        match field? {
            (n, Value::Bytes(bytes)) if n == outer => messages.push(bytes),
            (n, _) if n == outer => return Err(Malformed),
            _ => {}
        }
    }
    if messages.len() > MOST {
        return Err(Malformed);
    }
    Ok(messages)
}

/// String `inner` of message `outer`.
fn nested(message: &[u8], outer: u32, inner: u32) -> Result<String, Malformed> {
    let mut found = String::new();
    for bytes in messages(message, outer)? {
        match last(bytes, inner)? {
            Some(Value::Bytes(bytes)) => found = text(bytes)?,
            Some(_) => return Err(Malformed),
            None => {}
        }
    }
    Ok(found)
}

/// The repeated string `inner` of message `outer`.
fn list(message: &[u8], outer: u32, inner: u32) -> Result<Vec<String>, Malformed> {
    let mut found = Vec::new();
    for bytes in messages(message, outer)? {
        for field in Fields::of(bytes) {
            match field? {
                (n, Value::Bytes(bytes)) if n == inner && found.len() < MOST => found.push(text(bytes)?),
                (n, _) if n == inner => return Err(Malformed),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// The names of a transfer's destination if that is an image store: its own and its extra references (which may be
/// prefixes). Another destination (a registry, a stream) names no image of this node, and its fields hold secrets.
fn destination(message: &[u8]) -> Result<Vec<String>, Malformed> {
    let Some(Value::Bytes(any)) = last(message, 2)? else { return Ok(Vec::new()) };
    // The type is `containerd.types.transfer.ImageStore`, with or without a host before it.
    if !string(any, 1)?.ends_with("containerd.types.transfer.ImageStore") {
        return Ok(Vec::new());
    }
    let Some(Value::Bytes(store)) = last(any, 2)? else { return Ok(Vec::new()) };
    let mut names = vec![string(store, 1)?];
    for field in Fields::of(store) {
        if let (6, Value::Bytes(reference)) = field?
            && names.len() < MOST
        {
            names.push(string(reference, 1)?);
        }
    }
    names.retain(|name| !name.is_empty());
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use containerd_client::services::v1 as native;
    use k8s_cri::{v1, v1alpha2};
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    fn labels() -> HashMap<String, String> {
        HashMap::from([("io.cri-containerd.image".into(), "managed".into())])
    }

    fn target() -> Option<containerd_client::types::Descriptor> {
        Some(containerd_client::types::Descriptor { digest: "sha256:0".into(), ..Default::default() })
    }

    fn image(name: &str) -> Option<native::Image> {
        Some(native::Image { name: name.into(), labels: labels(), target: target(), ..Default::default() })
    }

    fn check(method: Known, message: &impl Message, expected: Call) {
        assert_eq!(decode(method, &message.encode_to_vec(), false), expected);
    }

    #[test]
    fn what_clients_encode_is_decoded() {
        let spec = v1::ImageSpec {
            image: "a:1".into(),
            annotations: labels(),
            user_specified_image: "b".into(),
            ..Default::default()
        };
        let removal = || Call::RemoveImage { image: "a:1".into() };
        check(Known::RemoveImage, &v1::RemoveImageRequest { image: Some(spec.clone()) }, removal());
        let old = v1alpha2::ImageSpec { image: "a:1".into(), annotations: labels() };
        check(Known::RemoveImageAlpha, &v1alpha2::RemoveImageRequest { image: Some(old) }, removal());
        let pull = v1::PullImageRequest {
            image: Some(spec),
            auth: Some(v1::AuthConfig { username: "u".into(), ..Default::default() }),
            sandbox_config: Some(v1::PodSandboxConfig { hostname: "h".into(), ..Default::default() }),
        };
        check(Known::PullImage, &pull, Call::PullImage { image: "a:1".into() });
        let create = native::CreateImageRequest { image: image("a:1"), ..Default::default() };
        check(Known::ImagesCreate, &create, Call::ImagesCreate { name: "a:1".into() });
        let mask = prost_types::FieldMask { paths: vec!["target".into(), "labels".into()] };
        let update = native::UpdateImageRequest {
            image: image("a:1"),
            update_mask: Some(mask.clone()),
            ..Default::default()
        };
        let fields = vec!["target".into(), "labels".into()];
        check(Known::ImagesUpdate, &update, Call::ImagesUpdate { name: "a:1".into(), fields });
        let delete = native::DeleteImageRequest { name: "a:1".into(), sync: true, target: target() };
        check(Known::ImagesDelete, &delete, Call::ImagesDelete { name: "a:1".into(), sync: true });
        let delete = native::DeleteContentRequest { digest: "sha256:0".into() };
        check(Known::ContentDelete, &delete, Call::ContentDelete { digest: "sha256:0".into() });
        let update = native::UpdateRequest {
            info: Some(native::Info { digest: "sha256:0".into(), labels: labels(), ..Default::default() }),
            update_mask: Some(mask),
        };
        check(Known::ContentUpdate, &update, Call::ContentUpdate { digest: "sha256:0".into() });
        let snapshotter = || "overlayfs".to_owned();
        let remove =
            native::snapshots::RemoveSnapshotRequest { snapshotter: snapshotter(), key: "sha256:0".into() };
        let expected = Call::SnapshotsRemove { snapshotter: snapshotter(), key: "sha256:0".into() };
        check(Known::SnapshotsRemove, &remove, expected);
        let cleanup = native::snapshots::CleanupRequest { snapshotter: snapshotter() };
        check(Known::SnapshotsCleanup, &cleanup, Call::SnapshotsCleanup { snapshotter: snapshotter() });
        let delete = native::DeleteRequest { id: "l".into(), sync: true };
        check(Known::LeasesDelete, &delete, Call::LeasesDelete { id: "l".into() });
        let resource = Some(native::Resource { id: "r".into(), r#type: "content".into() });
        let delete = native::DeleteResourceRequest { id: "l".into(), resource };
        let expected = Call::LeasesDeleteResource { id: "l".into(), resource: "r".into() };
        check(Known::LeasesDeleteResource, &delete, expected);
        let delete = native::DeleteNamespaceRequest { name: "k8s.io".into() };
        check(Known::NamespacesDelete, &delete, Call::NamespacesDelete { name: "k8s.io".into() });
    }

    fn transfer(type_url: &str, value: Vec<u8>) -> native::TransferRequest {
        let destination = Some(prost_types::Any { type_url: type_url.into(), value });
        native::TransferRequest { destination, ..Default::default() }
    }

    #[test]
    fn a_transfer_names_what_its_image_store_is_to_hold() {
        use containerd_client::types::transfer::{ImageReference, ImageStore};
        let reference =
            ImageReference { name: "docker.io/app".into(), is_prefix: true, ..Default::default() };
        let store = ImageStore {
            name: "a:1".into(),
            labels: labels(),
            extra_references: vec![reference],
            ..Default::default()
        };
        let message = transfer("containerd.types.transfer.ImageStore", store.encode_to_vec());
        let names = vec!["a:1".into(), "docker.io/app".into()];
        check(Known::Transfer, &message, Call::Transfer { names });
    }

    #[test]
    fn a_transfer_to_a_registry_names_nothing() {
        let message = transfer("containerd.types.transfer.OCIRegistry", b"\x0a\x06secret".to_vec());
        check(Known::Transfer, &message, Call::Transfer { names: Vec::new() });
    }

    #[test]
    fn of_a_message_without_its_end_only_a_name_that_nothing_can_change_is_believed() {
        let create = native::CreateImageRequest { image: image("a:1"), ..Default::default() }.encode_to_vec();
        let beginning = &create[..12];
        assert_eq!(decode(Known::ImagesCreate, beginning, true), Call::ImagesCreate { name: "a:1".into() });
        assert_eq!(decode(Known::ImagesUpdate, beginning, true), Call::Lost);
        assert_eq!(decode(Known::ImagesCreate, beginning, false), Call::Lost);
    }

    #[test]
    fn the_last_of_several_values_counts_as_it_does_for_containerd() {
        let message = b"\x0a\x01a\x0a\x01b";
        assert_eq!(
            decode(Known::ImagesDelete, message, false),
            Call::ImagesDelete { name: "b".into(), sync: false }
        );
    }

    proptest! {
        #[test]
        fn any_message_is_decoded_or_lost(
            method in proptest::sample::select(Known::ALL),
            message in proptest::collection::vec(any::<u8>(), 0..200),
            cut in any::<bool>(),
        ) {
            let _ = decode(method, &message, cut);
        }
    }
}
