//! Directories of archives.

use super::*;

fn normalise(name: &str) -> Option<String> {
    (!name.contains('é')).then(|| name.replace("index.docker.io/", "docker.io/"))
}

#[test]
fn a_directory_is_followed_and_unchanged_files_are_not_read_again() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path().to_owned();
    let (a, b) = (Image::new("a", 1), Image::new("b", 2));
    // Extensions lie: gzip under .tar, and a plain tar without any.
    std::fs::create_dir(dir.join("below")).unwrap();
    std::fs::write(
        dir.join("a.tar"),
        gzip(&a.docker(&json!(["index.docker.io/demo/a:1", "docker.io/demo/é:1"]))),
    )
    .unwrap();
    std::fs::write(dir.join("below/bundle"), b.oci("docker.io/demo/b:1")).unwrap();
    std::fs::write(dir.join("below").join("0a".repeat(32)), &a.layers[0]).unwrap();
    std::fs::write(dir.join("images.txt"), "docker.io/demo/c:1\n").unwrap();
    std::fs::write(dir.join("broken.tar.zst"), "no archive").unwrap();
    let mut catalog = Catalog::new(Options::default(), normalise);
    let scan = |catalog: &mut Catalog| catalog.rescan(std::slice::from_ref(&dir), &[dir.join("named")]);
    assert_eq!(
        scan(&mut catalog),
        [
            Change::Read(dir.join("a.tar")),
            Change::Read(dir.join("below/bundle")),
            Change::Failed(dir.join("broken.tar.zst")),
            Change::Failed(dir.join("named")),
        ]
    );
    assert_eq!(scan(&mut catalog), []);
    assert_eq!(catalog.images().count(), 2);
    assert_eq!(catalog.by_id(&a.id())[0].archive.compression, Compression::Gzip);
    assert_eq!(catalog.by_name("docker.io/demo/a:1")[0].image.id, a.id());
    assert_eq!(catalog.by_name("docker.io/demo/b:1")[0].image.id, b.id());
    assert!(catalog.by_name("docker.io/demo/é:1").is_empty());
    let failures: Vec<_> = catalog.failures().map(ToString::to_string).collect();
    assert_eq!(
        failures,
        [
            format!("{}: not a tar archive, but text", dir.join("broken.tar.zst").display()),
            format!("{}: can't be read", dir.join("named").display()),
        ]
    );

    std::fs::write(dir.join("new"), a.oci("docker.io/demo/a:1")).unwrap();
    std::fs::rename(dir.join("new"), dir.join("a.tar")).unwrap();
    std::fs::remove_file(dir.join("below/bundle")).unwrap();
    assert_eq!(scan(&mut catalog), [Change::Gone(dir.join("below/bundle")), Change::Read(dir.join("a.tar"))]);
    assert!(catalog.by_id(&b.id()).is_empty());
    assert!(catalog.by_id(&a.id())[0].image.genuine);
}

#[test]
fn a_pipe_in_the_directory_blocks_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe.tar");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    let mut catalog = Catalog::new(Options::default(), normalise);
    assert_eq!(catalog.rescan(&[directory.path().to_owned()], &[]), []);
    assert_eq!(catalog.rescan(&[], std::slice::from_ref(&pipe)), [Change::Failed(pipe.clone())]);
}
