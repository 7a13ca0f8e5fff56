//! Archives made by the field's own tools.

use std::process::Command;

use super::*;

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}; cargo xtask setup installs it"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An image that umoci made of two layers, as an OCI layout in a directory.
fn umoci_layout(directory: &Path) -> String {
    let layout = directory.join("layout").display().to_string();
    let image = format!("{layout}:v1");
    run("umoci", &["init", "--layout", &layout]);
    run("umoci", &["new", "--image", &image]);
    for (i, text) in ["first", "second"].iter().enumerate() {
        let file = directory.join(text);
        std::fs::write(&file, text.repeat(1000)).unwrap();
        run("umoci", &["insert", "--image", &image, &file.display().to_string(), &format!("/file{i}")]);
    }
    image
}

#[test]
fn skopeo_and_umoci_write_the_same_image_in_every_form() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let from = format!("oci:{}", umoci_layout(dir));
    let path = |name: &str| dir.join(name).display().to_string();
    let name = "docker.io/demo/app:1";
    run(
        "skopeo",
        &["--insecure-policy", "copy", &from, &format!("docker-archive:{}:{name}", path("docker.tar"))],
    );
    run("skopeo", &["--insecure-policy", "copy", &from, &format!("oci-archive:{}:{name}", path("oci.tar"))]);
    run("tar", &["-C", &path("layout"), "-cf", &path("gnu.tar"), "."]);
    run(
        "tar",
        &[
            "-C",
            &path("layout"),
            "--format=pax",
            "-cf",
            &path("pax.tar"),
            "index.json",
            "oci-layout",
            "blobs",
        ],
    );
    run("gzip", &["-k", &path("docker.tar")]);
    run("zstd", &["-q", "--long=27", "-k", &path("oci.tar")]);
    run("lz4", &["-q", "-k", &path("docker.tar"), &path("docker.tar.lz4")]);
    run("bzip2", &["-k", &path("oci.tar")]);
    let options = Options { depth: Depth::Layers, ..Options::default() };
    let mut seen = Vec::new();
    for (file, form, compression, names) in [
        ("docker.tar", Form::DockerArchive, Compression::None, vec![name]),
        ("docker.tar.gz", Form::DockerArchive, Compression::Gzip, vec![name]),
        ("docker.tar.lz4", Form::DockerArchive, Compression::Lz4, vec![name]),
        ("oci.tar", Form::OciLayout, Compression::None, vec![name]),
        ("oci.tar.zst", Form::OciLayout, Compression::Zstd, vec![name]),
        ("oci.tar.bz2", Form::OciLayout, Compression::Bzip2, vec![name]),
        ("gnu.tar", Form::OciLayout, Compression::None, vec![]),
        ("pax.tar", Form::OciLayout, Compression::None, vec![]),
    ] {
        let archive = read(&dir.join(file), &options).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((archive.form, archive.compression), (form, compression), "{file}");
        assert!(!archive.problems.iter().any(ArchiveProblem::is_damage), "{file}: {:?}", archive.problems);
        assert_eq!(archive.images.len(), 1, "{file}");
        assert_eq!(archive.images[0].names, names, "{file}");
        assert_eq!(extract_all(&archive.path, &archive), 4, "{file}");
        seen.push((archive.images[0].id, archive.images[0].chain.clone()));
    }
    // One image in all of them, though manifests and layers differ.
    assert!(seen.windows(2).all(|pair| pair[0] == pair[1]), "{seen:?}");
    assert_eq!(seen[0].1.len(), 2);
}
