//! docker-archive: `manifest.json` lists configs and layers by file name; there is no manifest in the registry's sense,
//! so the one is made that containerd would make (core/images/archive/importer.go).

use std::{collections::BTreeMap, sync::Arc};

use crate::{digest::Digest, inventory::image::Descriptor};

use super::{
    ArchivedBlob, ArchivedImage, Options, Place,
    compression::Compression,
    contents::{Contents, Found, Stored},
    document::{
        Config, DOCKER_CONFIG, DOCKER_LAYER, DOCKER_LAYER_GZIP, DOCKER_MANIFEST, MadeManifest, MadePointer,
        Saved,
    },
    error::{ArchiveProblem, Fault},
    image::{add, blob, chain, diff_ids, layer, note_platform, parse, parse_root},
    labels,
};

/// What manifest.json lists.
pub(super) fn saved(contents: &Contents, entry: &str, options: &Options) -> Result<Vec<Saved>, Fault> {
    let Found::File(name, stored) = contents.find(entry) else {
        return Err(Fault::Unrecognised { hint: None });
    };
    let saved: Vec<Saved> = parse_root(contents, (name, stored), options)?;
    match saved.is_empty() {
        true => Err(Fault::NoImages { entry: entry.into() }),
        false => Ok(saved),
    }
}

/// The tags in manifest.json, by image ID, for an archive that has an index.json too. What can't be read has none.
pub(super) fn names(
    contents: &Contents,
    root: &str,
    entry: &str,
    options: &Options,
) -> BTreeMap<Digest, Vec<String>> {
    let mut names = BTreeMap::<_, Vec<String>>::new();
    for image in saved(contents, entry, options).unwrap_or_default() {
        if let Found::File(_, config) = contents.find(&format!("{root}{}", image.config)) {
            names.entry(config.digest).or_default().extend(image.repo_tags);
        }
    }
    names
}

/// The images of an archive. What is wrong with one doesn't cost the others.
pub(super) fn images(
    contents: &Contents,
    root: &str,
    saved: Vec<Saved>,
    options: &Options,
    problems: &mut Vec<ArchiveProblem>,
) -> Result<Vec<ArchivedImage>, Fault> {
    let mut images = Vec::new();
    for saved in saved {
        let label = saved.repo_tags.first().unwrap_or(&saved.config).clone();
        match image(contents, root, &label, saved, options, problems) {
            Ok(image) => {
                if image.names.is_empty() {
                    problems.push(ArchiveProblem::Nameless { image: image.id.to_string() });
                }
                add(&mut images, image, options)?;
            }
            Err(problem) => problems.push(problem),
        }
    }
    Ok(images)
}

fn image(
    contents: &Contents,
    root: &str,
    label: &str,
    saved: Saved,
    options: &Options,
    problems: &mut Vec<ArchiveProblem>,
) -> Result<ArchivedImage, ArchiveProblem> {
    let config_at = file(contents, root, label, &saved.config)?;
    if let Some(expected) = digest_in(config_at.0).filter(|expected| *expected != config_at.1.digest) {
        return Err(mismatch(config_at, expected));
    }
    let config: Config = parse(contents, label, config_at, options)?;
    let layers =
        saved.layers.iter().map(|name| file(contents, root, label, name)).collect::<Result<Vec<_>, _>>()?;
    let diff_ids = diff_ids(label, &config, &layers)?;
    for (at, diff_id) in layers.iter().zip(&diff_ids) {
        // Layers are named by their own digest or by what they unpack to, where the name is a digest at all.
        let expected = digest_in(at.0).filter(|expected| *expected != at.1.digest && expected != diff_id);
        if let Some(expected) = expected {
            return Err(mismatch(*at, expected));
        }
    }
    note_platform(label, &config, options, problems);

    let config_digest = config_at.1.digest;
    let (bytes, digests) = made_manifest(config_at.1, &layers)?;
    let target = Descriptor {
        media_type: DOCKER_MANIFEST.into(),
        digest: Digest::of(&bytes),
        size: bytes.len() as u64,
    };
    let manifest = ArchivedBlob {
        descriptor: target.clone(),
        labels: labels::manifest(config_digest, &digests),
        diff_id: None,
        place: Place::Made(bytes),
    };
    let mut blobs = vec![manifest, blob(DOCKER_CONFIG, config_at, Default::default())];
    blobs.extend(layers.iter().zip(&diff_ids).map(|(at, diff_id)| layer(media_type(at.1), *at, *diff_id)));
    Ok(ArchivedImage {
        names: saved.repo_tags,
        id: config_digest,
        target,
        genuine: false,
        blobs,
        chain: chain(&diff_ids),
    })
}

/// A compressed layer is a gzip one for containerd, zstd too: the digest depends on it.
fn media_type(layer: &Stored) -> &'static str {
    match layer.compression {
        Compression::None => DOCKER_LAYER,
        Compression::Gzip | Compression::Zstd | Compression::Lz4 | Compression::Bzip2 => DOCKER_LAYER_GZIP,
    }
}

fn made_manifest(
    config: &Stored,
    layers: &[(&str, &Stored)],
) -> Result<(Arc<[u8]>, Vec<Digest>), ArchiveProblem> {
    let pointer = |media_type, stored: &Stored| MadePointer {
        media_type,
        digest: stored.digest.to_string(),
        size: stored.size,
    };
    let made = MadeManifest {
        schema_version: 2,
        media_type: DOCKER_MANIFEST,
        config: pointer(DOCKER_CONFIG, config),
        layers: layers.iter().map(|(_, stored)| pointer(media_type(stored), stored)).collect(),
    };
    // Texts and numbers: there is nothing in it that could fail.
    let bytes = serde_json::to_vec(&made).map_err(|error| ArchiveProblem::Document {
        image: config.digest.to_string(),
        entry: "the manifest made of it".into(),
        offset: config.offset,
        why: error.to_string(),
    })?;
    Ok((bytes.into(), layers.iter().map(|(_, stored)| stored.digest).collect()))
}

fn file<'a>(
    contents: &'a Contents,
    root: &str,
    image: &str,
    name: &str,
) -> Result<(&'a str, &'a Stored), ArchiveProblem> {
    let (image, what) = (image.to_owned(), format!("{root}{name}"));
    match contents.find(&what) {
        Found::File(entry, stored) if stored.sparse => {
            Err(ArchiveProblem::Sparse { image, entry: entry.into() })
        }
        Found::File(entry, stored) => Ok((entry, stored)),
        Found::Dangling => Err(ArchiveProblem::Dangling { image, what }),
        Found::Absent => Err(ArchiveProblem::Absent { image, what }),
    }
}

fn mismatch((name, stored): (&str, &Stored), expected: Digest) -> ArchiveProblem {
    ArchiveProblem::Mismatch { entry: name.into(), offset: stored.offset, expected, found: stored.digest }
}

/// The digest that a file's name claims: `sha256:<hex>` (crane), `<hex>.json`, `<hex>.tar`, `<hex>.tar.gz`,
/// `blobs/sha256/<hex>`. The directories of old `docker save` files are other numbers.
fn digest_in(name: &str) -> Option<Digest> {
    let file = name.rsplit_once('/').map_or(name, |(_, file)| file);
    let stem = file.split_once('.').map_or(file, |(stem, _)| stem);
    Digest::from_hex(stem.strip_prefix("sha256:").unwrap_or(stem)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_claim_a_digest() {
        let hex = "0a".repeat(32);
        let digest = Digest::from_hex(&hex).unwrap();
        for name in ["sha256:HEX", "HEX.json", "HEX.tar", "HEX.tar.gz", "blobs/sha256/HEX", "images/HEX.json"]
        {
            assert_eq!(digest_in(&name.replace("HEX", &hex)), Some(digest), "{name}");
        }
        for name in ["HEX/layer.tar", "config.json", "HEX0.json", "layer.tar"] {
            assert_eq!(digest_in(&name.replace("HEX", &hex)), None, "{name}");
        }
    }
}
