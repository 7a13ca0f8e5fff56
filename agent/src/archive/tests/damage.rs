//! Whatever the bytes: no panic, and nothing wrong is ever called verified.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;

static GOOD: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let image = Image::new("a", 2);
    let (oci, docker) = (image.oci("docker.io/demo/app:1"), image.docker(&json!(["demo/app:1"])));
    let zstd = zstd::encode_all(&oci[..], 1).unwrap();
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(&docker).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bzip2.write_all(&oci).unwrap();
    vec![gzip(&oci), zstd, lz4.finish().unwrap(), bzip2.finish().unwrap(), oci, docker]
});

/// Reads; if that works, takes everything out, from the file as it is and from the file as it is with a flipped bit.
fn use_it(bytes: &[u8], flip: usize) {
    let placed = place(bytes);
    for depth in [Depth::Content, Depth::Layers] {
        let Ok(archive) = read(&placed.path, &Options { depth, ..Options::default() }) else {
            continue;
        };
        let mut spoilt = bytes.to_vec();
        let at = flip % spoilt.len().max(1);
        spoilt[at] ^= 1 << (flip % 8);
        let spoilt = place(&spoilt);
        for image in &archive.images {
            let wanted: Vec<_> = image.blobs.iter().collect();
            for path in [&placed.path, &spoilt.path] {
                let identity = FileIdentity::from(&std::fs::metadata(path).unwrap());
                let mut kept = Kept::default();
                let _ = extract(path, &identity, &wanted, &Options::default(), &mut kept);
                for (digest, content) in &kept.verified {
                    assert_eq!(Digest::of(content), *digest);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn random_bytes(bytes in proptest::collection::vec(any::<u8>(), 1..2048), flip in any::<usize>()) {
        use_it(&bytes, flip);
    }

    #[test]
    fn random_bytes_behind_a_magic(which in 0..4_usize, bytes in proptest::collection::vec(any::<u8>(), 0..2048)) {
        let magic: [&[u8]; 4] = [b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18", b"BZh9"];
        use_it(&[magic[which], &bytes].concat(), 0);
    }

    #[test]
    fn good_archives_cut(which in 0..6_usize, at in any::<prop::sample::Index>(), flip in any::<usize>()) {
        let good = &GOOD[which];
        let at = at.index(good.len());
        if at > 0 {
            use_it(&good[..at], flip);
        }
    }

    #[test]
    fn good_archives_with_flipped_bits(
        which in 0..6_usize,
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0..8_u8), 1..4),
        flip in any::<usize>(),
    ) {
        let mut bytes = GOOD[which].clone();
        for (at, bit) in flips {
            let at = at.index(bytes.len());
            bytes[at] ^= 1 << bit;
        }
        use_it(&bytes, flip);
    }
}

#[test]
fn the_archives_that_are_damaged_here_are_good() {
    for good in &*GOOD {
        let placed = place(good);
        let archive = read(&placed.path, &Options::default()).unwrap();
        assert_eq!((archive.images.len(), archive.problems.len()), (1, 0));
        assert_eq!(extract_all(&placed.path, &archive), 4);
    }
}
