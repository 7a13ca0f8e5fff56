//! Image names as containerd normalises them: what CRI looks up for a reference that a pod, a person or a config wrote.
//!
//! Takes any text; emits the one spelling that an image record must have to be found (`ParseDockerRef(…).String()` of
//! distribution/reference), or says why the text is no name. Never guesses: a bare image ID is not a name.

use crate::digest::Digest;

/// What a reference without a registry means.
const DEFAULT_DOMAIN: &str = "docker.io";
/// The same registry's older name, which some tools still write.
const LEGACY_DOMAIN: &str = "index.docker.io";
/// Where docker.io keeps images whose name has one element.
const OFFICIAL: &str = "library";
/// The longest path of a repository, without the registry.
const PATH_MAX: usize = 255;
/// The longest tag.
const TAG_MAX: usize = 128;
/// The longest text that is looked at: path, registry, tag and a SHA-512, generously.
const TEXT_MAX: usize = 1024;

/// Why a text is no image name. Texts are cut to 80 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("an image name is empty")]
    Empty,
    #[error("{name:?} is too long for an image name: at most {limit} bytes of {part}")]
    TooLong { name: String, part: &'static str, limit: usize },
    #[error("{0:?} is an image ID, not a name")]
    Id(String),
    #[error("{0:?} is no image name: the repository must be lower case")]
    UpperCase(String),
    #[error("{name:?} is no image name: its {part} is malformed")]
    Form { name: String, part: &'static str },
}

/// The parts of a normalised name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Parts<'a> {
    /// Empty when the first element looks like a registry but can't be one (`a_b.c/app`): containerd takes such a
    /// name as a path without a registry.
    domain: &'a str,
    path: &'a str,
    tag: Option<&'a str>,
    digest: Option<&'a str>,
}

/// The name under which containerd's CRI looks for `text`: registry and `library/` added, `index.docker.io` replaced,
/// `:latest` where there is neither tag nor digest, the tag dropped where there are both.
pub fn normalise(text: &str) -> Result<String, NameError> {
    let full = qualify(text)?;
    let Parts { domain, path, tag, digest } = split(&full, text)?;
    let repository = if domain.is_empty() { path.to_owned() } else { format!("{domain}/{path}") };
    Ok(match (tag, digest) {
        (_, Some(digest)) => format!("{repository}@{digest}"),
        (Some(tag), None) => format!("{repository}:{tag}"),
        (None, None) => format!("{repository}:latest"),
    })
}

/// The normalised repository of a name: registry and path, without tag and digest.
pub fn repository(text: &str) -> Result<String, NameError> {
    let full = qualify(text)?;
    let Parts { domain, path, tag: _, digest: _ } = split(&full, text)?;
    Ok(if domain.is_empty() { path.to_owned() } else { format!("{domain}/{path}") })
}

/// Whether a text is a bare image ID (`sha256:<64 hex>`): the third name that CRI gives a record, which
/// [`normalise`] refuses. containerd itself would read it as a tag of `docker.io/library/sha256`.
pub fn is_id(text: &str) -> bool {
    text.parse::<Digest>().is_ok()
}

/// `registry/path[:tag][@digest]`, with registry and `library/` spelt out.
fn qualify(text: &str) -> Result<String, NameError> {
    if text.is_empty() {
        return Err(NameError::Empty);
    }
    if text.len() > TEXT_MAX {
        return Err(NameError::TooLong { name: cut(text), part: "text", limit: TEXT_MAX });
    }
    if is_id(text) || Digest::from_hex(text).is_ok() {
        return Err(NameError::Id(cut(text)));
    }
    let (domain, rest) = match text.split_once('/') {
        Some((first, rest)) if is_registry(first) => (first, rest),
        _ => (DEFAULT_DOMAIN, text),
    };
    let domain = if domain == LEGACY_DOMAIN { DEFAULT_DOMAIN } else { domain };
    let remote = rest.split(':').next().unwrap_or(rest);
    if remote.to_lowercase() != remote {
        return Err(NameError::UpperCase(cut(text)));
    }
    Ok(if domain == DEFAULT_DOMAIN && !rest.contains('/') {
        format!("{domain}/{OFFICIAL}/{rest}")
    } else {
        format!("{domain}/{rest}")
    })
}

/// Whether the first element of a reference is taken as a registry and not as part of a path on docker.io.
pub(crate) fn is_registry(first: &str) -> bool {
    first == "localhost" || first.contains(['.', ':']) || first.to_lowercase() != first
}

/// Splits a qualified name and checks each part. `text` is what the person wrote, for the error.
fn split<'a>(full: &'a str, text: &str) -> Result<Parts<'a>, NameError> {
    let form = |part| NameError::Form { name: cut(text), part };
    let (rest, digest) = match full.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (full, None),
    };
    let last = rest.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match rest[last..].split_once(':') {
        Some((name, tag)) => (&rest[..last + name.len()], Some(tag)),
        None => (rest, None),
    };
    let (domain, path) = match repository.split_once('/') {
        Some((first, path)) if is_domain(first) => (first, path),
        _ => ("", repository),
    };
    if !path.split('/').all(is_path_element) {
        return Err(form("repository"));
    }
    if path.len() > PATH_MAX {
        return Err(NameError::TooLong { name: cut(text), part: "repository", limit: PATH_MAX });
    }
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(form("tag"));
    }
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err(form("digest"));
    }
    Ok(Parts { domain, path, tag, digest })
}

/// `host[:port]`; the host is dotted labels or an IPv6 address in brackets.
fn is_domain(text: &str) -> bool {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((address, port)) = rest.split_once(']') else { return false };
        let address_ok = !address.is_empty() && address.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
        return address_ok && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (text, None),
    };
    let is_label = |label: &str| {
        !label.is_empty()
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    host.split('.').all(is_label) && port.is_none_or(is_port)
}

fn is_port(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// Lower-case letters and digits, joined by one `.`, one or two `_`, or any number of `-`.
fn is_path_element(text: &str) -> bool {
    let is_word = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = text.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    is_word(first)
        && is_word(last)
        && bytes.split(is_word).all(|joint| {
            matches!(joint, [] | [b'.'] | [b'_'] | [b'_', b'_']) || joint.iter().all(|b| *b == b'-')
        })
}

fn is_tag(text: &str) -> bool {
    text.len() <= TAG_MAX
        && text.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-'))
}

/// The three algorithms that containerd's digest package knows.
fn is_digest(text: &str) -> bool {
    let digits = match text.split_once(':') {
        Some(("sha256", digits)) if digits.len() == 64 => digits,
        Some(("sha384", digits)) if digits.len() == 96 => digits,
        Some(("sha512", digits)) if digits.len() == 128 => digits,
        _ => return false,
    };
    digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

fn cut(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const HEX: &str = "0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a";

    /// `{H}` is 64 hex digits, `{L}` 240 letters.
    fn spell(text: &str) -> String {
        text.replace("{H}", HEX).replace("{L}", &"a".repeat(240))
    }

    /// What `reference.ParseDockerRef(…).String()` of distribution/reference 0.6.0 answered.
    #[test]
    fn names_are_spelt_as_containerd_spells_them() {
        for (text, name, repository_of) in [
            ("nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
            ("nginx:1.27", "docker.io/library/nginx:1.27", "docker.io/library/nginx"),
            (
                "rancher/mirrored-pause:3.6",
                "docker.io/rancher/mirrored-pause:3.6",
                "docker.io/rancher/mirrored-pause",
            ),
            ("index.docker.io/rancher/pause:3.5", "docker.io/rancher/pause:3.5", "docker.io/rancher/pause"),
            ("index.docker.io/nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
            ("docker.io/nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
            ("docker.io/library/nginx", "docker.io/library/nginx:latest", "docker.io/library/nginx"),
            ("localhost/kubernetes/pause", "localhost/kubernetes/pause:latest", "localhost/kubernetes/pause"),
            ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1", "localhost:5000/a/b"),
            ("a:5000/b", "a:5000/b:latest", "a:5000/b"),
            (
                "registry.example.com:5000/app",
                "registry.example.com:5000/app:latest",
                "registry.example.com:5000/app",
            ),
            ("r.example.com/app:v1@sha256:{H}", "r.example.com/app@sha256:{H}", "r.example.com/app"),
            ("nginx:1@sha256:{H}", "docker.io/library/nginx@sha256:{H}", "docker.io/library/nginx"),
            ("app@sha256:{H}", "docker.io/library/app@sha256:{H}", "docker.io/library/app"),
            ("app@sha512:{H}{H}", "docker.io/library/app@sha512:{H}{H}", "docker.io/library/app"),
            ("[fd00::1]:5000/app:1", "[fd00::1]:5000/app:1", "[fd00::1]:5000/app"),
            (
                "video_list_caddy:v1",
                "docker.io/library/video_list_caddy:v1",
                "docker.io/library/video_list_caddy",
            ),
            ("a__b/c--d/e.f", "docker.io/a__b/c--d/e.f:latest", "docker.io/a__b/c--d/e.f"),
            ("Foo/bar", "Foo/bar:latest", "Foo/bar"),
            ("FOO.io/bar:1", "FOO.io/bar:1", "FOO.io/bar"),
            ("a_b.c/foo:1", "a_b.c/foo:1", "a_b.c/foo"),
            ("127.0.0.1/x", "127.0.0.1/x:latest", "127.0.0.1/x"),
            (
                "index.docker.io",
                "docker.io/library/index.docker.io:latest",
                "docker.io/library/index.docker.io",
            ),
            ("localhost:80", "docker.io/library/localhost:80", "docker.io/library/localhost"),
            ("sha256/x", "docker.io/sha256/x:latest", "docker.io/sha256/x"),
            ("docker.io/sha256:{H}", "docker.io/library/sha256:{H}", "docker.io/library/sha256"),
            ("r.io/{L}/bbbbbbbbbbbbbb", "r.io/{L}/bbbbbbbbbbbbbb:latest", "r.io/{L}/bbbbbbbbbbbbbb"),
        ] {
            let (text, name) = (spell(text), spell(name));
            assert_eq!(normalise(&text), Ok(name), "{text}");
            assert_eq!(repository(&text), Ok(spell(repository_of)), "{text}");
        }
    }

    /// What it refused, and the words a person gets for it.
    #[test]
    fn what_containerd_refuses_is_refused() {
        let long_tag = format!("x:{}", "t".repeat(129));
        for (text, why) in [
            ("", "an image name is empty"),
            ("Nginx", "lower case"),
            ("docker.io/Nginx", "lower case"),
            ("x@SHA256:{H}", "lower case"),
            ("r.io/{L}/bbbbbbbbbbbbbbb", "255 bytes of repository"),
            ("{H}", "image ID"),
            ("nginx:", "its tag"),
            ("x:-t", "its tag"),
            ("x:ü", "its tag"),
            (&long_tag, "its tag"),
            ("nginx@", "its digest"),
            ("nginx@sha256:0a", "its digest"),
            ("x@md5:0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a", "its digest"),
            ("x@sha256:{H}0", "its digest"),
            ("a.b/c@sha256:{H}:t", "its digest"),
            ("a//b", "its repository"),
            ("/a", "its repository"),
            ("a/", "its repository"),
            ("a___b", "its repository"),
            ("a..b", "its repository"),
            ("-a", "its repository"),
            ("a-", "its repository"),
            ("a b", "its repository"),
            ("A_B/c", "its repository"),
            ("-a.b/c", "its repository"),
            ("_a.b/c", "its repository"),
            ("a.b./c", "its repository"),
            ("[fd00]x/a", "its repository"),
            ("x.y:/z", "its repository"),
            ("http://a/b", "its repository"),
            ("a:b:c", "its tag"),
            ("x\n", "its repository"),
        ] {
            let text = spell(text);
            let error = normalise(&text).expect_err(&text).to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn an_image_id_is_told_from_a_name() {
        assert!(is_id(&spell("sha256:{H}")));
        assert_eq!(normalise(&spell("sha256:{H}")), Err(NameError::Id(spell("sha256:{H}"))));
        assert!(!is_id("sha256:0a") && !is_id(HEX) && !is_id("docker.io/library/nginx:latest"));
    }

    proptest! {
        #[test]
        fn any_text_is_normalised_or_refused(text in "\\PC{0,300}") {
            let _ = normalise(&text);
            let _ = repository(&text);
        }

        #[test]
        fn a_normalised_name_stays_as_it_is(
            text in "([a-z]{1,4}(\\.[a-z]{2}|:[0-9]{2})?/)?[a-z0-9]{1,3}([._-][a-z]{1,3})?(/[a-z]{1,3}){0,3}(:[a-z0-9._-]{1,5})?"
        ) {
            if let Ok(name) = normalise(&text) {
                prop_assert_eq!(normalise(&name), Ok(name.clone()));
                prop_assert!(name.starts_with(&repository(&text).unwrap()));
            }
        }
    }
}
