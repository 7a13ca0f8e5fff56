//! What the message of an unknown method looks like. Takes at most 1 KiB of captured bytes, emits the strings that
//! could be names of images, blobs, snapshots or leases, and nothing that has not the form of one.

use super::{
    protobuf::{Fields, Malformed, Value},
    request::Shape,
};

/// Longer strings are no names.
const LONGEST: usize = 512;

pub(super) fn of(message: &[u8]) -> Shape {
    shape(message).unwrap_or(Shape::Other)
}

fn shape(message: &[u8]) -> Result<Shape, Malformed> {
    let (mut first, mut second, mut more) = (None, None, 0);
    for field in Fields::of(message) {
        match field? {
            (1, Value::Bytes(bytes)) if first.is_none() => first = Some(bytes),
            (2, Value::Bytes(bytes)) if second.is_none() => second = Some(bytes),
            // `verbose` of ImageStatus, `sync` of Images/Delete and Leases/Delete.
            (2, Value::Varint(_)) => {}
            // PullImage's sandbox, the target of Images/Delete.
            (3, Value::Bytes(_)) => more += 1,
            _ => return Ok(Shape::Other),
        }
    }
    let Some(first) = first else { return Ok(Shape::Other) };
    if let Some(image) = image(first) {
        return Ok(Shape::ImageSpec { image });
    }
    match (name(first), second) {
        (Some(name), None) => Ok(Shape::Name { name }),
        (Some(first), Some(second)) if more == 0 => match key(second) {
            Some(second) => Ok(Shape::Pair { first, second }),
            None => Ok(Shape::Other),
        },
        _ => Ok(Shape::Other),
    }
}

/// The image of a CRI ImageSpec: 1 image, 2 annotations, 18 user_specified_image, 19 runtime_handler, 20 image_ref.
fn image(spec: &[u8]) -> Option<String> {
    let mut image = None;
    for field in Fields::of(spec) {
        match field.ok()? {
            (1, Value::Bytes(bytes)) if image.is_none() => image = Some(name(bytes)?),
            (2 | 18 | 19 | 20, Value::Bytes(_)) => {}
            _ => return None,
        }
    }
    image
}

/// An image reference, a digest, a lease's or a namespace's id.
fn name(bytes: &[u8]) -> Option<String> {
    named(bytes, b"._-/:@")
}

/// A snapshot's key: containerd's unpacker puts a space into its own.
fn key(bytes: &[u8]) -> Option<String> {
    named(bytes, b"._-/:@ ")
}

fn named(bytes: &[u8], more: &[u8]) -> Option<String> {
    let fits = (1..=LONGEST).contains(&bytes.len())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || more.contains(byte));
    fits.then(|| String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use containerd_client::services::v1 as native;
    use k8s_cri::v1;
    use proptest::prelude::*;
    use prost::Message;

    use super::*;

    const IMAGE: &str = "sha256:5b0bcabd1ed22e9fb1310cf6c2dec7cdef19f0ad69efa1f392e94a4333501270";

    fn check(message: &impl Message, expected: Shape) {
        assert!(of(&message.encode_to_vec()) == expected);
    }

    fn spec() -> Option<v1::ImageSpec> {
        Some(v1::ImageSpec { image: IMAGE.into(), runtime_handler: "runc".into(), ..Default::default() })
    }

    #[test]
    fn calls_on_an_image_by_cri_have_one_shape() {
        let expected = || Shape::ImageSpec { image: IMAGE.into() };
        check(&v1::RemoveImageRequest { image: spec() }, expected());
        check(&v1::ImageStatusRequest { image: spec(), verbose: true }, expected());
        let auth = Some(v1::AuthConfig { password: "x".into(), ..Default::default() });
        check(&v1::PullImageRequest { image: spec(), auth, sandbox_config: None }, expected());
    }

    #[test]
    fn calls_on_a_name_have_one_shape() {
        let expected = || Shape::Name { name: "registry.example/app:1".into() };
        let name = || "registry.example/app:1".to_owned();
        check(&native::GetImageRequest { name: name() }, expected());
        let target = Some(containerd_client::types::Descriptor { size: 3, ..Default::default() });
        check(&native::DeleteImageRequest { name: name(), sync: true, target }, expected());
        check(&native::DeleteContentRequest { digest: name() }, expected());
    }

    #[test]
    fn calls_on_a_snapshot_have_one_shape() {
        let (snapshotter, key) = ("overlayfs".to_owned(), format!("extract-1-x {IMAGE}"));
        let expected = Shape::Pair { first: snapshotter.clone(), second: key.clone() };
        check(&native::snapshots::RemoveSnapshotRequest { snapshotter, key }, expected);
    }

    #[test]
    fn other_calls_have_none() {
        let container = v1::ContainerConfig { image: spec(), ..Default::default() };
        check(
            &v1::CreateContainerRequest {
                pod_sandbox_id: "p".into(),
                config: Some(container),
                sandbox_config: None,
            },
            Shape::Other,
        );
        let image = Some(native::Image {
            name: IMAGE.into(),
            target: Some(Default::default()),
            ..Default::default()
        });
        check(&native::CreateImageRequest { image, ..Default::default() }, Shape::Other);
        check(&native::DeleteImageRequest { name: "two words".into(), ..Default::default() }, Shape::Other);
        check(&v1::ListImagesRequest::default(), Shape::Other);
    }

    proptest! {
        #[test]
        fn any_message_has_a_shape_or_none(message in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Shape::ImageSpec { image } = of(&message) {
                prop_assert!(image.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }
}
