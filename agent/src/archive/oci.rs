//! OCI layout: `index.json` lists targets by digest; each is an index, of which this node's manifest is taken, or a
//! manifest.

use std::collections::BTreeMap;

use crate::{digest::Digest, inventory::image::Labels};

use super::{
    ArchivedBlob, ArchivedImage, Options,
    contents::{Contents, Found, Stored},
    document::{Config, DOCKER_INDEX, Manifest, OCI_INDEX, OCI_MANIFEST, Pointer, is_config, is_layer},
    error::{ArchiveProblem, Fault},
    image::{add, blob, chain, diff_ids, layer, note_platform, parse, parse_root},
    labels,
};

/// Indexes in indexes.
const NESTING: usize = 4;

/// Whose names count, where index.json and manifest.json disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// index.json's: there is an oci-layout.
    Index,
    /// manifest.json's, as containerd takes them when there is none.
    Saved,
}

/// The archive that images are looked up in.
struct Layout<'a> {
    contents: &'a Contents,
    root: &'a str,
    options: &'a Options,
    /// The names in a manifest.json, by image ID.
    saved: BTreeMap<Digest, Vec<String>>,
    names: Names,
    /// Packages of Zarf keep an image's name where others keep its base image's.
    zarf: bool,
}

/// The images of an archive. What is wrong with one doesn't cost the others.
pub(super) fn images(
    contents: &Contents,
    root: &str,
    entry: &str,
    saved: BTreeMap<Digest, Vec<String>>,
    names: Names,
    options: &Options,
    problems: &mut Vec<ArchiveProblem>,
) -> Result<Vec<ArchivedImage>, Fault> {
    let Found::File(name, stored) = contents.find(entry) else {
        return Err(Fault::Unrecognised { hint: None });
    };
    let index: Manifest = parse_root(contents, (name, stored), options)?;
    let pointers = index.manifests.unwrap_or_default();
    if pointers.is_empty() {
        return Err(Fault::NoImages { entry: entry.into() });
    }
    note_mismatches(contents, root, problems);
    let layout =
        Layout { contents, root, options, saved, names, zarf: contents.files.contains_key("zarf.yaml") };
    let mut images = Vec::new();
    for pointer in pointers.iter().filter(|pointer| !is_attestation(pointer)) {
        match layout.image(pointer, problems) {
            Ok(image) => add(&mut images, image, options)?,
            Err(problem) => problems.push(problem),
        }
    }
    Ok(images)
}

/// Every blob whose content isn't what its name says, needed or not.
fn note_mismatches(contents: &Contents, root: &str, problems: &mut Vec<ArchiveProblem>) {
    let directory = format!("{root}blobs/sha256/");
    for (name, stored) in contents.files.range(directory.clone()..) {
        let Some(file) = name.strip_prefix(&directory) else { break };
        if let Some(expected) = Digest::from_hex(file).ok().filter(|expected| *expected != stored.digest) {
            problems.push(ArchiveProblem::Mismatch {
                entry: name.clone(),
                offset: stored.offset,
                expected,
                found: stored.digest,
            });
        }
    }
}

/// A manifest that was chosen, and the indexes that lead to it.
struct Chosen<'a> {
    indexes: Vec<ArchivedBlob>,
    at: (&'a str, &'a Stored),
    media_type: String,
    config: Pointer,
    layers: Vec<Pointer>,
}

impl<'a> Layout<'a> {
    fn image(
        &self,
        pointer: &Pointer,
        problems: &mut Vec<ArchiveProblem>,
    ) -> Result<ArchivedImage, ArchiveProblem> {
        let named = self.named(pointer);
        let label = named.unwrap_or(&pointer.digest);
        let Chosen { indexes, at: manifest_at, media_type, config, layers } =
            self.choose(label, pointer, 0)?;
        let direct = indexes.is_empty();

        let config_at = self.blob(label, &config)?;
        let layers_at = layers.iter().map(|layer| self.blob(label, layer)).collect::<Result<Vec<_>, _>>()?;
        let parsed: Config = parse(self.contents, label, config_at, self.options)?;
        let diff_ids = diff_ids(label, &parsed, &layers_at)?;
        if direct {
            note_platform(label, &parsed, self.options, problems);
        }

        let digests: Vec<_> = layers_at.iter().map(|(_, stored)| stored.digest).collect();
        let mut blobs = indexes;
        blobs.push(blob(&media_type, manifest_at, labels::manifest(config_at.1.digest, &digests)));
        blobs.push(blob(&config.media_type, config_at, Labels::new()));
        blobs.extend(
            layers
                .iter()
                .zip(&layers_at)
                .zip(&diff_ids)
                .map(|((pointer, at), id)| layer(&pointer.media_type, *at, *id)),
        );
        let sources = labels::sources(&pointer.annotations);
        for blob in &mut blobs {
            blob.labels.extend(sources.clone());
        }
        let id = config_at.1.digest;
        Ok(ArchivedImage {
            names: self.names(named, id, problems),
            id,
            target: blobs[0].descriptor.clone(),
            genuine: true,
            blobs,
            chain: chain(&diff_ids),
        })
    }

    /// What index.json calls a target.
    fn named<'p>(&self, pointer: &'p Pointer) -> Option<&'p str> {
        let annotation = |key: &str| pointer.annotations.get(key).filter(|name| !name.is_empty());
        annotation("io.containerd.image.name")
            .or_else(|| annotation("org.opencontainers.image.ref.name"))
            .or_else(|| self.zarf.then(|| annotation("org.opencontainers.image.base.name")).flatten())
            .map(String::as_str)
    }

    /// The names that count.
    fn names(&self, named: Option<&str>, id: Digest, problems: &mut Vec<ArchiveProblem>) -> Vec<String> {
        let saved = self.saved.get(&id).map(Vec::as_slice).unwrap_or_default();
        // `latest` alone is a tag, as the OCI layout allows it, and would be another image's name if it were taken as one.
        let index = named.filter(|name| name.contains(['/', ':']));
        let image = || id.to_string();
        match (index, saved) {
            (None, []) => {
                problems.push(match named {
                    Some(text) => ArchiveProblem::BareTag { image: image(), text: text.into() },
                    None => ArchiveProblem::Nameless { image: image() },
                });
                Vec::new()
            }
            (None, saved) => saved.to_vec(),
            (Some(index), []) => vec![index.into()],
            (Some(index), saved) => {
                // Docker shortens names in manifest.json: `busybox:1` is `docker.io/library/busybox:1`.
                let same = |saved: &String| {
                    saved == index
                        || index.strip_suffix(saved.as_str()).is_some_and(|before| before.ends_with('/'))
                };
                if !saved.iter().any(same) {
                    problems.push(ArchiveProblem::NamesDiffer {
                        image: image(),
                        index: vec![index.into()],
                        manifest: saved.to_vec(),
                        used: match self.names {
                            Names::Index => "index.json",
                            Names::Saved => "manifest.json",
                        },
                    });
                }
                match self.names {
                    Names::Index => vec![index.into()],
                    Names::Saved => saved.to_vec(),
                }
            }
        }
    }

    /// The manifest for this node's platform.
    fn choose(&self, image: &str, pointer: &Pointer, depth: usize) -> Result<Chosen<'a>, ArchiveProblem> {
        let at = self.blob(image, pointer)?;
        let document: Manifest = parse(self.contents, image, at, self.options)?;
        let media_type = [&pointer.media_type, &document.media_type]
            .into_iter()
            .find(|media_type| !media_type.is_empty())
            .cloned()
            .unwrap_or_else(|| {
                if document.manifests.is_some() { OCI_INDEX.into() } else { OCI_MANIFEST.into() }
            });
        if let Some(children) = document.manifests {
            if depth == NESTING {
                return Err(ArchiveProblem::Nesting { image: image.into() });
            }
            let index = blob(&media_type, at, labels::index(&children));
            let mut chosen = self.child(image, &children, depth)?;
            chosen.indexes.insert(0, index);
            return Ok(chosen);
        }
        let artifact = |media_type: &str| ArchiveProblem::Artifact {
            image: image.into(),
            media_type: media_type.into(),
        };
        let config = document.config.ok_or_else(|| artifact(&media_type))?;
        if !is_config(&config.media_type) {
            return Err(artifact(&config.media_type));
        }
        if let Some(other) = document.layers.iter().find(|layer| !is_layer(&layer.media_type)) {
            return Err(artifact(&other.media_type));
        }
        Ok(Chosen { indexes: Vec::new(), at, media_type, config, layers: document.layers })
    }

    /// Of an index's children, the one that fits best and is there.
    fn child(&self, image: &str, children: &[Pointer], depth: usize) -> Result<Chosen<'a>, ArchiveProblem> {
        let mut fitting: Vec<_> = children
            .iter()
            .filter(|child| !is_attestation(child))
            .map(|child| (self.fit(image, child), child))
            .filter(|(fit, _)| *fit > 0)
            .collect();
        fitting.sort_by_key(|(fit, _)| std::cmp::Reverse(*fit));
        let mut first = None;
        for (_, child) in fitting {
            match self.choose(image, child, depth + 1) {
                Ok(chosen) => return Ok(chosen),
                Err(problem) => _ = first.get_or_insert(problem),
            }
        }
        Err(first.unwrap_or_else(|| ArchiveProblem::NoPlatform {
            image: image.into(),
            os: self.options.platform.os.into(),
            architecture: self.options.platform.architecture.into(),
        }))
    }

    /// How well a child fits. Without a platform of its own: an index may, a manifest says it in its config.
    fn fit(&self, image: &str, child: &Pointer) -> u8 {
        if let Some(platform) = &child.platform {
            return self.options.platform.fit(platform);
        }
        if matches!(child.media_type.as_str(), OCI_INDEX | DOCKER_INDEX) {
            return 1;
        }
        let config = || -> Result<Config, ArchiveProblem> {
            let manifest: Manifest = parse(self.contents, image, self.blob(image, child)?, self.options)?;
            match manifest.config {
                Some(config) => parse(self.contents, image, self.blob(image, &config)?, self.options),
                None => Err(ArchiveProblem::Absent { image: image.into(), what: "its config".into() }),
            }
        };
        config().map_or(0, |config| self.options.platform.fit(&config.platform))
    }

    /// The file with a pointer's content: under its name, or under any other.
    fn blob(&self, image: &str, pointer: &Pointer) -> Result<(&'a str, &'a Stored), ArchiveProblem> {
        let image = image.to_owned();
        let Ok(digest) = pointer.digest.parse::<Digest>() else {
            return Err(ArchiveProblem::Digest { image, digest: pointer.digest.clone() });
        };
        if let Some((name, stored)) = self.contents.by_digest(&digest) {
            return match stored.size == pointer.size {
                true => Ok((name, stored)),
                false => Err(ArchiveProblem::Size {
                    entry: name.into(),
                    offset: stored.offset,
                    expected: pointer.size,
                    found: stored.size,
                }),
            };
        }
        let what = format!("{}blobs/sha256/{}", self.root, digest.to_hex());
        Err(match self.contents.find(&what) {
            Found::File(entry, stored) if stored.sparse => {
                ArchiveProblem::Sparse { image, entry: entry.into() }
            }
            Found::File(..) => ArchiveProblem::Damaged { image, what },
            Found::Dangling => ArchiveProblem::Dangling { image, what },
            Found::Absent => ArchiveProblem::Absent { image, what },
        })
    }
}

/// Provenance and SBOMs that BuildKit puts beside the manifests.
fn is_attestation(pointer: &Pointer) -> bool {
    pointer.platform.as_ref().is_some_and(|platform| platform.os == "unknown")
        || pointer.annotations.contains_key("vnd.docker.reference.type")
}
