//! Odd archives, each as some tool or some hand has made it.

use super::*;

const NAME: &str = "docker.io/demo/app:1";

/// Read whole: one image of this name and ID, nothing wrong, everything comes out.
fn assert_good(bytes: &[u8], image: &Image, names: &[&str], problems: &[&str]) -> Archive {
    let placed = place(bytes);
    let archive = read(&placed.path, &Options { depth: Depth::Layers, ..Options::default() })
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(texts(&archive), problems);
    assert_eq!(archive.images.len(), 1);
    assert_eq!(archive.images[0].names, names);
    assert_eq!(archive.images[0].id, image.id());
    assert_eq!(archive.images[0].chain.len(), image.layers.len());
    assert_eq!(extract_all(&placed.path, &archive), archive.images[0].blobs.len());
    archive
}

fn texts(archive: &Archive) -> Vec<String> {
    archive.problems.iter().map(|problem| problem.to_string().replace('"', "")).collect()
}

/// No image, and damage that is described so.
fn assert_refused(bytes: &[u8], problem: &str) {
    let archive = read_bytes(bytes).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(archive.images, []);
    assert!(archive.problems.iter().any(ArchiveProblem::is_damage));
    assert!(texts(&archive).iter().any(|text| text.contains(problem)), "{problem}: {:?}", archive.problems);
}

fn assert_fault(bytes: &[u8], text: &str) {
    let error = read_bytes(bytes).map(|archive| archive.problems).unwrap_err();
    assert!(error.fault.to_string().contains(text), "{text}: {error}");
}

#[test]
fn an_oci_layout_has_a_genuine_target_and_all_labels() {
    let image = Image::new("a", 2);
    let archive = assert_good(&image.oci(NAME), &image, &[NAME], &[]);
    let found = &archive.images[0];
    assert!(found.genuine);
    assert_eq!(found.target.digest, Digest::of(&image.manifest()));
    let layers: Vec<_> = image.layers.iter().map(|layer| Digest::of(&gzip(layer)).to_string()).collect();
    assert_eq!(
        found.blobs[0].labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(),
        [
            ("containerd.io/gc.ref.content.config", image.id().to_string().as_str()),
            ("containerd.io/gc.ref.content.l.0", layers[0].as_str()),
            ("containerd.io/gc.ref.content.l.1", layers[1].as_str()),
        ]
    );
    assert_eq!(found.blobs[2].labels["containerd.io/uncompressed"], Digest::of(&image.layers[0]).to_string());
}

#[test]
fn a_docker_archive_has_the_manifest_that_containerd_makes() {
    let image = Image::new("a", 1);
    let archive = assert_good(&image.docker(&json!([NAME])), &image, &[NAME], &[]);
    let found = &archive.images[0];
    assert!(!found.genuine);
    let Place::Made(bytes) = &found.blobs[0].place else { panic!("{:?}", found.blobs[0].place) };
    let expected = format!(
        r#"{{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.v2+json","config":{{"mediaType":"application/vnd.docker.container.image.v1+json","digest":"{}","size":{}}},"layers":[{{"mediaType":"application/vnd.docker.image.rootfs.diff.tar","digest":"{}","size":{}}}]}}"#,
        image.id(),
        image.config.len(),
        Digest::of(&image.layers[0]),
        image.layers[0].len()
    );
    assert_eq!(std::str::from_utf8(bytes).unwrap(), expected);
}

#[test]
fn crane_names_configs_by_digest_and_compresses_layers() {
    let image = Image::new("a", 1);
    let (config, layer) = (image.id().to_string(), gzip(&image.layers[0]));
    let file = format!("{}.tar.gz", Digest::of(&layer).to_hex());
    let saved = json!([{"Config": config, "RepoTags": [NAME], "Layers": [file]}]);
    let tar = |layer: &[u8]| {
        Tar::new()
            .file("manifest.json", &serde_json::to_vec(&saved).unwrap())
            .file(&config, &image.config)
            .file("._manifest.json", b"AppleDouble")
            .file(&file, layer)
            .bytes()
    };
    let archive = assert_good(&tar(&layer), &image, &[NAME], &[]);
    assert_eq!(
        archive.images[0].blobs[2].descriptor.media_type,
        "application/vnd.docker.image.rootfs.diff.tar.gzip"
    );
    assert_refused(&tar(&gzip(b"something else")), "unpacks to");
}

#[test]
fn layers_may_be_links_before_or_after_their_target() {
    let image = Image::new("a", 1);
    let layer = format!("{}.tar", Digest::of(&image.layers[0]).to_hex());
    for kind in [tar::EntryType::Symlink, tar::EntryType::Link] {
        let target = if kind == tar::EntryType::Symlink { format!("../{layer}") } else { layer.clone() };
        let saved = json!([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["old/layer.tar"]}]);
        let tar = Tar::new()
            .link(kind, "old/layer.tar", &target)
            .link(tar::EntryType::Symlink, "unused", "nowhere")
            .file(&layer, &image.layers[0])
            .file("config.json", &image.config)
            .file("manifest.json", &serde_json::to_vec(&saved).unwrap());
        assert_good(&tar.bytes(), &image, &[NAME], &[]);
    }
    let saved = json!([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]);
    let looped = Tar::new()
        .link(tar::EntryType::Symlink, "layer.tar", "layer2.tar")
        .link(tar::EntryType::Symlink, "layer2.tar", "layer.tar")
        .file("config.json", &image.config)
        .file("manifest.json", &serde_json::to_vec(&saved).unwrap());
    assert_refused(&looped.bytes(), "layer.tar is a link that leads nowhere");
}

#[test]
fn everything_may_lie_in_one_directory_or_behind_a_dot() {
    let image = Image::new("a", 1);
    for root in ["./", "bundle/", "images/"] {
        let tar = image.blobs(layout(Tar::new(), root), root);
        let tar = tar.file(&format!("{root}index.json"), &index(&[named(&image.manifest(), NAME)]));
        assert_good(&tar.bytes(), &image, &[NAME], &[]);
    }
    let two = Tar::new().file("a/index.json", b"{}").file("b/index.json", b"{}");
    assert_fault(&two.bytes(), "several image archives in one: \"a\" and \"b\"");
}

#[test]
fn a_zarf_package_names_images_by_their_base() {
    let image = Image::new("a", 1);
    let mut named = pointer("application/vnd.oci.image.manifest.v1+json", &image.manifest());
    named["annotations"] = json!({"org.opencontainers.image.base.name": NAME});
    let tar =
        image.blobs(layout(Tar::new(), "images/"), "images/").file("images/index.json", &index(&[named]));
    let nameless = format!("image {} has no name: it can be found by its ID only", image.id());
    let plain = Tar(tar::Builder::new(tar.0.get_ref().clone()));
    assert_good(&plain.bytes(), &image, &[], &[&nameless]);
    assert_good(&tar.file("zarf.yaml", b"kind: ZarfPackageConfig\n").bytes(), &image, &[NAME], &[]);
}

#[test]
fn names_that_are_none() {
    let image = Image::new("a", 1);
    let nameless = format!("image {} has no name: it can be found by its ID only", image.id());
    assert_good(&image.docker(&Value::Null), &image, &[], &[&nameless]);
    assert_good(&image.docker(&json!([])), &image, &[], &[&nameless]);
    let mut tag = pointer("application/vnd.oci.image.manifest.v1+json", &image.manifest());
    tag["annotations"] = json!({"org.opencontainers.image.ref.name": "latest"});
    let tar = image.blobs(layout(Tar::new(), ""), "").file("index.json", &index(&[tag]));
    let bare = format!(
        "image {} is called latest, which is a tag without a repository: it can be found by its ID only",
        image.id()
    );
    assert_good(&tar.bytes(), &image, &[], &[&bare]);
    // Names that no registry would take are names all the same.
    for name in ["docker.io/Demo/Café:1", "index.docker.io/rancher/pause:3.5", "localhost:5000/a\u{1b}[2J:1"]
    {
        assert_good(&image.oci(name), &image, &[name], &[]);
    }
}

#[test]
fn two_lists_that_disagree_about_names() {
    let image = Image::new("a", 1);
    let digest = |bytes: &[u8]| format!("blobs/sha256/{}", Digest::of(bytes).to_hex());
    let saved = |tags: Value| {
        let layers: Vec<_> = image.layers.iter().map(|layer| digest(&gzip(layer))).collect();
        serde_json::to_vec(&json!([{"Config": digest(&image.config), "RepoTags": tags, "Layers": layers}]))
            .unwrap()
    };
    let both = |tar: Tar, tags| {
        image
            .blobs(tar, "")
            .file("manifest.json", &saved(tags))
            .file("index.json", &index(&[named(&image.manifest(), NAME)]))
    };
    // docker and containerd write both; docker shortens.
    assert_good(&both(layout(Tar::new(), ""), json!(["demo/app:1"])).bytes(), &image, &[NAME], &[]);
    let differ = |used| {
        format!(
            "image {}: index.json calls it [{NAME}], manifest.json [from/manifest:2]; {used} counts",
            image.id()
        )
    };
    let bytes = both(layout(Tar::new(), ""), json!(["from/manifest:2"])).bytes();
    assert_good(&bytes, &image, &[NAME], &[&differ("index.json")]);
    // Without an oci-layout containerd takes the names of manifest.json; the target is still the registry's.
    let archive = assert_good(
        &both(Tar::new(), json!(["from/manifest:2"])).bytes(),
        &image,
        &["from/manifest:2"],
        &[&differ("manifest.json")],
    );
    assert_eq!(archive.images[0].target.digest, Digest::of(&image.manifest()));
    // An index that leads nowhere leaves manifest.json.
    let tar = image.blobs(Tar::new(), "").file("manifest.json", &saved(json!([NAME])));
    let archive =
        assert_good(&tar.file("index.json", &index(&[named(b"absent", NAME)])).bytes(), &image, &[NAME], &[]);
    assert_eq!(archive.form, Form::DockerArchive);
}

#[test]
fn of_an_index_this_nodes_manifest_is_taken_and_the_rest_may_be_absent() {
    let image = Image::new("a", 1);
    let child = |content: &[u8], os: &str, architecture: &str| {
        let mut child = pointer("application/vnd.oci.image.manifest.v1+json", content);
        child["platform"] = json!({"os": os, "architecture": architecture});
        child
    };
    let node = Platform::default();
    let foreign = child(b"absent", "linux", "s390x");
    let attestation = child(b"absent too", "unknown", "unknown");
    let odd = json!({"mediaType": "x", "digest": "sha512:00", "size": 1, "platform": {"os": "linux", "architecture": "odd"}});
    let own = child(&image.manifest(), node.os, node.architecture);
    let archive_of = |children: &[Value]| {
        let list = index(children);
        let mut target = pointer("application/vnd.oci.image.index.v1+json", &list);
        target["annotations"] = json!({"io.containerd.image.name": NAME});
        let tar = blob(image.blobs(layout(Tar::new(), ""), ""), "", &list);
        (tar.file("index.json", &index(&[target])).bytes(), list)
    };
    let (bytes, list) = archive_of(&[foreign.clone(), attestation.clone(), odd, own]);
    let archive = assert_good(&bytes, &image, &[NAME], &[]);
    let found = &archive.images[0];
    assert_eq!((found.target.digest, found.blobs.len()), (Digest::of(&list), 4));
    assert_eq!(
        found.blobs[0].labels["containerd.io/gc.ref.content.m.2"],
        Digest::of(&image.manifest()).to_string()
    );
    assert_refused(&archive_of(&[foreign, attestation]).0, "has no manifest for linux/");
}

#[test]
fn content_that_is_not_what_it_is_called_is_refused() {
    let image = Image::new("a", 1);
    let layer = gzip(&image.layers[0]);
    let name = format!("blobs/sha256/{}", Digest::of(&layer).to_hex());
    let rest = blob(blob(layout(Tar::new(), ""), "", &image.config), "", &image.manifest())
        .file("index.json", &index(&[named(&image.manifest(), NAME)]));
    let rest_bytes = rest.0.get_ref().clone();
    let with = |content: &[u8]| {
        let mut tar = tar::Builder::new(Vec::new());
        tar.get_mut().extend_from_slice(&rest_bytes);
        Tar(tar).file(&name, content).bytes()
    };
    let mismatch = format!(
        "entry {name} at offset {} holds {}, not {}",
        rest_bytes.len(),
        Digest::of(b"wrong"),
        Digest::of(&layer)
    );
    assert_refused(&with(b"wrong"), &mismatch);
    assert_refused(&with(b""), &format!("{name} is damaged"));
    assert_refused(&[&rest_bytes[..], &[0; 1024]].concat(), &format!("{name} is absent"));
    assert_good(&with(&layer), &image, &[NAME], &[]);
}

#[test]
fn diff_ids_must_be_those_of_the_layers() {
    let mut image = Image::new("a", 2);
    image.layers[1] = Image::new("b", 1).layers[0].clone();
    assert_refused(&image.oci(NAME), "unpacks to");
    assert_refused(&image.docker(&json!([NAME])), "unpacks to");
    image.layers.pop();
    assert_refused(&image.oci(NAME), "1 layers, but 2 diff IDs");
    assert_refused(&image.docker(&json!([NAME])), "1 layers, but 2 diff IDs");
}

#[test]
fn a_lie_about_diff_ids_is_found_while_extracting_too() {
    let mut image = Image::new("a", 2);
    image.layers[1] = Image::new("b", 1).layers[0].clone();
    let placed = place(&image.oci(NAME));
    let archive = read(&placed.path, &Options::default()).unwrap();
    let wanted: Vec<_> = archive.images[0].blobs.iter().collect();
    let mut kept = Kept::default();
    let error =
        extract(&placed.path, &archive.identity, &wanted, &Options::default(), &mut kept).unwrap_err();
    assert!(matches!(*error.fault, Fault::Unpacks { .. }), "{error}");
    assert_eq!(kept.refused, [Digest::of(&gzip(&image.layers[1]))]);
}

#[test]
fn a_file_changed_since_it_was_read_is_not_extracted() {
    let image = Image::new("a", 1);
    let placed = place(&image.oci(NAME));
    let archive = read(&placed.path, &Options::default()).unwrap();
    std::fs::write(&placed.path, Image::new("b", 3).oci(NAME)).unwrap();
    let wanted: Vec<_> = archive.images[0].blobs.iter().collect();
    let mut kept = Kept::default();
    let error =
        extract(&placed.path, &archive.identity, &wanted, &Options::default(), &mut kept).unwrap_err();
    assert!(matches!(*error.fault, Fault::Replaced), "{error}");
    assert!(kept.verified.is_empty());
    // Told that it is still the same file, it is the digests that say no.
    let now = FileIdentity::from(&std::fs::metadata(&placed.path).unwrap());
    extract(&placed.path, &now, &wanted, &Options::default(), &mut kept).unwrap_err();
    assert!(kept.verified.iter().all(|(digest, bytes)| Digest::of(bytes) == *digest));
    assert!(!kept.refused.is_empty());
}

/// A sink whose disk is full after the manifest.
#[derive(Default)]
struct Full {
    calls: Vec<&'static str>,
}

impl BlobSink for Full {
    fn begin(&mut self, _: &Descriptor) -> io::Result<()> {
        self.calls.push("begin");
        Ok(())
    }

    fn write(&mut self, _: &[u8]) -> io::Result<()> {
        self.calls.push("write");
        Err(io::ErrorKind::StorageFull.into())
    }

    fn finish(&mut self, verified: bool) -> io::Result<()> {
        self.calls.push(if verified { "keep" } else { "discard" });
        Ok(())
    }
}

#[test]
fn a_sink_that_fails_is_told_to_discard_and_asked_no_more() {
    let image = Image::new("a", 2);
    let placed = place(&image.oci(NAME));
    let archive = read(&placed.path, &Options::default()).unwrap();
    let wanted: Vec<_> = archive.images[0].blobs.iter().collect();
    let mut full = Full::default();
    let error =
        extract(&placed.path, &archive.identity, &wanted, &Options::default(), &mut full).unwrap_err();
    assert!(matches!(*error.fault, Fault::Sink { .. }), "{error}");
    assert_eq!(full.calls, ["begin", "write", "discard"]);
}

#[test]
fn doubled_entries_count_once() {
    let image = Image::new("a", 1);
    let mut twice = image.clone();
    twice.layers.push(twice.layers[0].clone());
    let ids: Vec<_> = twice.layers.iter().map(|layer| Digest::of(layer).to_string()).collect();
    let mut config: Value = serde_json::from_slice(&twice.config).unwrap();
    config["rootfs"]["diff_ids"] = json!(ids);
    twice.config = serde_json::to_vec(&config).unwrap();
    let archive = assert_good(&twice.docker(&json!([NAME])), &twice, &[NAME], &[]);
    assert_eq!(archive.images[0].blobs.len(), 3);

    let (tar, saved) = image.saved(Tar::new().file("manifest.json", b"[]"), &json!([NAME]));
    let offset = tar.0.get_ref().len();
    let bytes = tar.file("manifest.json", &serde_json::to_vec(&json!([saved])).unwrap()).bytes();
    let note = format!(
        "entry manifest.json is there more than once with different contents: the last counts (offset {offset})"
    );
    assert_good(&bytes, &image, &[NAME], &[&note]);
}

#[test]
fn the_end_may_be_missing_or_followed() {
    let image = Image::new("a", 1);
    let bytes = image.oci(NAME);
    assert_good(&bytes[..bytes.len() - 1024], &image, &[NAME], &["the end-of-archive mark is missing"]);
    let end = bytes.len();
    let note = format!("something follows the end-of-archive mark at offset {end}: data");
    assert_good(&[&bytes[..], b"garbage"].concat(), &image, &[NAME], &[&note]);
    assert_good(&[&bytes[..], &[0; 10240]].concat(), &image, &[NAME], &[]);
}

#[test]
fn an_empty_layer_is_one() {
    let mut image = Image::new("a", 1);
    let mut config: Value = serde_json::from_slice(&image.config).unwrap();
    config["rootfs"]["diff_ids"] = json!([Digest::of(b"")]);
    (image.layers[0], image.config) = (Vec::new(), serde_json::to_vec(&config).unwrap());
    assert_good(&image.docker(&json!([NAME])), &image, &[NAME], &[]);
}

#[test]
fn what_is_no_image_archive_says_so() {
    assert_fault(b"", "is empty");
    assert_fault(b"docker.io/rancher/pause:3.6\n", "not a tar archive, but text");
    assert_fault(&b"text, and much of it\n".repeat(100), "not a tar archive, but text");
    assert_fault(b"\xfd7zXZ\0\0\0", "xz compression is not supported");
    assert_fault(&Tar::new().bytes(), "it holds no files");
    assert_fault(&Tar::new().file("README", b"hello").bytes(), "neither manifest.json nor index.json");
    assert_fault(&Tar::new().file("repositories", b"{}").bytes(), "docker before 1.10 wrote it");
    assert_fault(&Tar::new().file("manifest.json", b"[]").bytes(), "no images: \"manifest.json\" lists none");
    assert_fault(&layout(Tar::new(), "").file("index.json", &index(&[])).bytes(), "no images");
    assert_fault(&Tar::new().file("manifest.json", b"{not json").bytes(), "is no valid JSON document");
    assert_fault(
        &Tar::new().file("/index.json", b"{}").bytes(),
        "entry \"/index.json\" has an absolute name",
    );
    assert_fault(&Tar::new().file("../index.json", b"{}").bytes(), "points outside");
    let directory = tempfile::tempdir().unwrap();
    let error = read(directory.path(), &Options::default()).unwrap_err();
    assert!(matches!(*error.fault, Fault::NotAFile), "{error}");
}

#[test]
fn a_cut_archive_names_the_entry_it_is_cut_in() {
    let image = Image::new("a", 1);
    let bytes = image.docker(&json!([NAME]));
    let name = format!("{}.tar", Digest::of(&image.layers[0]).to_hex());
    // Config: header and one block. Then the layer's header.
    assert_fault(&bytes[..1536 + 100], &format!("truncated at entry \"{name}\" (offset 1636)"));
    let packed = zstd::encode_all(&bytes[..], 1).unwrap();
    assert_fault(&packed[..packed.len() - 10], "truncated at ");
    let packed = gzip(&bytes);
    assert_fault(&packed[..packed.len() / 2], "truncated at ");
}

#[test]
fn long_names_and_pax_headers_are_understood() {
    let image = Image::new("a", 1);
    let root = format!("{}/", "d".repeat(60).repeat(3));
    let tar = image.blobs(layout(Tar::new(), &root), &root);
    assert_good(
        &tar.file(&format!("{root}index.json"), &index(&[named(&image.manifest(), NAME)])).bytes(),
        &image,
        &[NAME],
        &[],
    );

    // The size in the header is a lie; the PAX record counts, and its value may hold a newline.
    let mut tar = image.blobs(layout(Tar::new(), ""), "");
    let content = index(&[named(&image.manifest(), NAME)]);
    let records =
        [("SCHILY.xattr.security.capability", &b"a\nb"[..]), ("size", content.len().to_string().as_bytes())]
            .map(|(key, value)| (key.to_owned(), value.to_vec()));
    tar.0.append_pax_extensions(records.iter().map(|(key, value)| (key.as_str(), value.as_slice()))).unwrap();
    let mut header = Tar::header(tar::EntryType::Regular, 0);
    header.as_mut_bytes()[..10].copy_from_slice(b"index.json");
    header.set_cksum();
    tar.0.get_mut().write_all(header.as_bytes()).unwrap();
    let padding = content.len().next_multiple_of(512) - content.len();
    tar.0.get_mut().write_all(&[&content[..], &vec![0; padding]].concat()).unwrap();
    assert_good(&tar.bytes(), &image, &[NAME], &[]);
}

#[test]
fn sparse_files_are_refused_only_when_they_are_needed() {
    let image = Image::new("a", 1);
    let sparse = |mut tar: Tar, name: &str| {
        let mut header = Tar::header(tar::EntryType::GNUSparse, 0);
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.0.append(&header, &b""[..]).unwrap();
        tar
    };
    let tar = sparse(image.blobs(layout(Tar::new(), ""), ""), "unused");
    assert_good(
        &tar.file("index.json", &index(&[named(&image.manifest(), NAME)])).bytes(),
        &image,
        &[NAME],
        &[],
    );
    let saved = json!([{"Config": "config.json", "RepoTags": [NAME], "Layers": ["layer.tar"]}]);
    let tar = sparse(Tar::new().file("config.json", &image.config), "layer.tar");
    assert_refused(&tar.file("manifest.json", &serde_json::to_vec(&saved).unwrap()).bytes(), "sparse file");
}

#[test]
fn artifacts_beside_images_are_notes() {
    let image = Image::new("a", 1);
    let chart = serde_json::to_vec(&json!({"schemaVersion": 2,
        "config": pointer("application/vnd.cncf.helm.config.v1+json", b"{}"), "layers": []}))
    .unwrap();
    let tar = blob(image.blobs(layout(Tar::new(), ""), ""), "", &chart);
    let bytes = tar
        .file("index.json", &index(&[named(&chart, "hauler/chart:1"), named(&image.manifest(), NAME)]))
        .bytes();
    assert_good(
        &bytes,
        &image,
        &[NAME],
        &["hauler/chart:1 is no image but an artifact (application/vnd.cncf.helm.config.v1+json)"],
    );
}

#[test]
fn limits_are_errors_of_their_own() {
    let image = Image::new("a", 2);
    let placed = place(&image.oci(NAME));
    let fault = |limits: Limits| {
        read(&placed.path, &Options { limits, depth: Depth::Layers, ..Options::default() }).unwrap_err().fault
    };
    let default = Limits::default();
    assert!(matches!(*fault(Limits { entries: 3, ..default }), Fault::Entries { limit: 3 }));
    assert!(matches!(*fault(Limits { images: 0, ..default }), Fault::Images { limit: 0 }));
    assert!(matches!(*fault(Limits { unpacked: 4096, ..default }), Fault::Unpacked { limit: 4096 }));
    assert!(matches!(*fault(Limits { document: 10, ..default }), Fault::DocumentSize { .. }));
    assert!(matches!(*fault(Limits { documents: 10, ..default }), Fault::Documents { limit: 10 }));
    let stop = Stop::default();
    stop.set();
    let error = read(&placed.path, &Options { stop, ..Options::default() }).unwrap_err();
    assert!(matches!(*error.fault, Fault::Stopped), "{error}");
}
