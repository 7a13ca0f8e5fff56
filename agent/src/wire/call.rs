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
