//! What both forms share: documents, configs, and whether layers are what a config says.

use serde::de::DeserializeOwned;
use sha2::Digest as _;

use crate::{
    digest::Digest,
    inventory::image::{Descriptor, Labels},
};

use super::{
    ArchivedBlob, ArchivedImage, Options, Place,
    contents::{Contents, Stored, Unpacked},
    document::Config,
    error::{ArchiveProblem, Fault},
    labels,
};

/// Chain IDs, bottom first: the first is its diff ID, each other the digest of `<chain below> <diff ID>`.
pub(super) fn chain(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut below: Option<Digest> = None;
    let next = |diff_id: &Digest| {
        let id = match below {
            None => *diff_id,
            Some(below) => {
                let mut sha256 = sha2::Sha256::new();
                sha256.update(format!("{below} {diff_id}"));
                Digest::from_bytes(sha256.finalize().into())
            }
        };
        below = Some(id);
        id
    };
    diff_ids.iter().map(next).collect()
}

/// A document that one image needs.
pub(super) fn parse<T: DeserializeOwned>(
    contents: &Contents,
    image: &str,
    (name, stored): (&str, &Stored),
    options: &Options,
) -> Result<T, ArchiveProblem> {
    let why = match contents.document(name, stored, options) {
        Ok(bytes) => match serde_json::from_slice(bytes) {
            Ok(document) => return Ok(document),
            Err(error) => error.to_string(),
        },
        Err(fault) => fault.to_string(),
    };
    Err(ArchiveProblem::Document { image: image.into(), entry: name.into(), offset: stored.offset, why })
}

/// A document without which there is no archive.
pub(super) fn parse_root<T: DeserializeOwned>(
    contents: &Contents,
    (name, stored): (&str, &Stored),
    options: &Options,
) -> Result<T, Fault> {
    serde_json::from_slice(contents.document(name, stored, options)?).map_err(|source| Fault::Document {
        entry: name.into(),
        offset: stored.offset,
        source,
    })
}

/// The config's diff IDs, when the layers are those.
pub(super) fn diff_ids(
    image: &str,
    config: &Config,
    layers: &[(&str, &Stored)],
) -> Result<Vec<Digest>, ArchiveProblem> {
    let ids = &config.rootfs.diff_ids;
    let image = || image.to_owned();
    if ids.len() != layers.len() {
        return Err(ArchiveProblem::LayerCount { image: image(), layers: layers.len(), diff_ids: ids.len() });
    }
    let mut checked = Vec::with_capacity(ids.len());
    for (text, (name, stored)) in ids.iter().zip(layers) {
        let expected: Digest =
            text.parse().map_err(|_| ArchiveProblem::Digest { image: image(), digest: text.clone() })?;
        let (entry, offset) = ((*name).to_owned(), stored.offset);
        match &stored.unpacked {
            Unpacked::To(found) if *found != expected => {
                return Err(ArchiveProblem::DiffId {
                    image: image(),
                    entry,
                    offset,
                    expected,
                    found: *found,
                });
            }
            Unpacked::Fails(why) => {
                return Err(ArchiveProblem::Layer { image: image(), entry, offset, why: why.clone() });
            }
            Unpacked::To(_) | Unpacked::NotTried => checked.push(expected),
        }
    }
    Ok(checked)
}

/// A blob that lies in the archive.
pub(super) fn blob(media_type: &str, (name, stored): (&str, &Stored), labels: Labels) -> ArchivedBlob {
    ArchivedBlob {
        descriptor: Descriptor { media_type: media_type.into(), digest: stored.digest, size: stored.size },
        labels,
        diff_id: None,
        place: Place::Entry { name: name.into(), offset: stored.offset },
    }
}

/// A layer that lies in the archive.
pub(super) fn layer(media_type: &str, at: (&str, &Stored), diff_id: Digest) -> ArchivedBlob {
    let labels = [(labels::UNCOMPRESSED.to_owned(), diff_id.to_string())].into();
    ArchivedBlob { diff_id: Some(diff_id), ..blob(media_type, at, labels) }
}

/// Says when an image is for another platform. containerd imports it all the same, and emulation may run it.
pub(super) fn note_platform(
    image: &str,
    config: &Config,
    options: &Options,
    problems: &mut Vec<ArchiveProblem>,
) {
    let platform = &config.platform;
    if options.platform.fit(platform) == 0 {
        problems.push(ArchiveProblem::ForeignPlatform {
            image: image.into(),
            os: platform.os.clone(),
            architecture: platform.architecture.clone(),
        });
    }
}

/// Adds an image. One target under several names is one image, and so are its blobs.
pub(super) fn add(
    images: &mut Vec<ArchivedImage>,
    mut image: ArchivedImage,
    options: &Options,
) -> Result<(), Fault> {
    if let Some(same) = images.iter_mut().find(|same| same.target.digest == image.target.digest) {
        image.names.retain(|name| !same.names.contains(name));
        same.names.append(&mut image.names);
        return Ok(());
    }
    if images.len() >= options.limits.images {
        return Err(Fault::Images { limit: options.limits.images });
    }
    let mut seen = std::collections::HashSet::new();
    image.blobs.retain(|blob| seen.insert(blob.descriptor.digest));
    images.push(image);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chain_ids_are_those_of_containerd() {
        let (a, b, c) = (Digest::of(b"a"), Digest::of(b"b"), Digest::of(b"c"));
        let chain = chain(&[a, b, c]);
        let second = Digest::of(format!("{a} {b}").as_bytes());
        assert_eq!(chain, [a, second, Digest::of(format!("{second} {c}").as_bytes())]);
    }
}
