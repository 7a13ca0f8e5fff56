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
