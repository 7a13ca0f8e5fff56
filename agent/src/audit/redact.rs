//! Credentials in command lines, masked before anything is written. Whoever may read the journal may not thereby pull
//! from a registry.
//!
//! What is masked: the values of options that take a credential (`--password X`, `--password=X`, `--user name:X`), of
//! short ones where the program is known to mean one (`crictl pull --creds`, `skopeo login -p X`), userinfo in URLs,
//! `Authorization:` headers, `PASSWORD=…` in the form of an environment, and AWS and JWT-shaped tokens anywhere.
//! Masking too much is harmless; a credential that no rule knows can still be written.

/// What stands for a credential.
pub const MASK: &str = "*****";

/// An option or variable with one of these in its name takes a credential.
const SECRET: [&str; 10] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "accesskey",
    "access_key",
    "credential",
];
/// Options that take `name:secret`, or a secret alone.
const PAIRS: [&str; 5] = ["--creds", "--auth", "--src-creds", "--dest-creds", "--username-password"];
/// Options that take `name:secret`, or a name alone (`sudo -u alice`).
const USERS: [&str; 3] = ["--user", "-u", "--proxy-user"];
/// Programs in which `-p` is a password.
const SHORT_P: [&str; 10] =
    ["docker", "nerdctl", "podman", "skopeo", "buildah", "helm", "oras", "crane", "mysql", "sshpass"];

/// `argv` with its credentials masked.
pub fn argv(argv: &[String]) -> Vec<String> {
    let program = argv.first().and_then(|first| first.rsplit('/').next()).unwrap_or("");
    let mut masked = Vec::with_capacity(argv.len());
    let mut next = Next::Plain;
    for argument in argv {
        masked.push(match std::mem::replace(&mut next, Next::Plain) {
            Next::Secret => MASK.to_owned(),
            Next::Pair => pair(argument),
            Next::User => user(argument),
            Next::Plain => {
                next = following(argument, program);
                self::argument(argument, program)
            }
        });
    }
    masked
}

/// What the argument after an option is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Plain,
    Secret,
    /// `name:secret`, or a secret.
    Pair,
    /// `name:secret`, or a name.
    User,
}

fn following(argument: &str, program: &str) -> Next {
    if PAIRS.contains(&argument) {
        Next::Pair
    } else if USERS.contains(&argument) {
        Next::User
    } else if argument == "-p" && SHORT_P.contains(&program) || option(argument).is_some_and(secret) {
        Next::Secret
    } else {
        Next::Plain
    }
}

/// The name of an option that stands alone.
fn option(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix('-')?;
    // `--password-stdin` takes no value.
    (!name.contains(['=', ':', ' ']) && !name.ends_with("stdin")).then(|| name.trim_start_matches('-'))
}

/// Whether an option or a variable of this name takes a credential.
fn secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET.iter().any(|word| name.contains(word)) || name == "pass" || name.ends_with("_pass")
}

fn argument(text: &str, program: &str) -> String {
    if let Some((name, value)) = text.split_once('=')
        && !value.is_empty()
        && !name.contains(['/', ' '])
    {
        if PAIRS.contains(&name) {
            return format!("{name}={}", pair(value));
        }
        if USERS.contains(&name) {
            return format!("{name}={}", user(value));
        }
        if secret(name.trim_start_matches('-')) {
            return format!("{name}={MASK}");
        }
    }
    if SHORT_P.contains(&program) && text.starts_with("-p") && text.len() > 2 && !text.contains([':', '=']) {
        return format!("-p{MASK}");
    }
    if let Some(value) = text.strip_prefix("-u").filter(|value| value.contains(':')) {
        return format!("-u{}", pair(value));
    }
    words(&headers(&userinfo(text)))
}

/// `name:secret`; without a colon all of it may be the secret.
fn pair(text: &str) -> String {
    match text.split_once(':') {
        Some((name, _)) => format!("{name}:{MASK}"),
        None if text.is_empty() => String::new(),
        None => MASK.to_owned(),
    }
}

/// `name:secret`, or a name alone, which stays.
fn user(text: &str) -> String {
    if text.contains(':') { pair(text) } else { text.to_owned() }
}

/// `scheme://user:secret@host`.
fn userinfo(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        masked.push_str(before);
        let authority = after.find(['/', '?', '#', ' ', '"', '\'']).unwrap_or(after.len());
        rest = match after[..authority].rfind('@') {
            Some(end) => {
                masked.push_str(MASK);
                &after[end..]
            }
            None => after,
        };
    }
    masked + rest
}

/// `Authorization: Basic …`, and the same of proxies and registries.
fn headers(text: &str) -> String {
    // ASCII lower case keeps every byte's place.
    let lower = text.to_ascii_lowercase();
    for name in
        ["authorization:", "x-registry-auth:", "x-registry-config:", "cookie:", "x-api-key:", "x-auth-token:"]
    {
        if let Some(at) = lower.find(name) {
            return format!("{} {MASK}", &text[..at + name.len()]);
        }
    }
    text.to_owned()
}

/// Inside longer texts (`sh -c "…"`): variables, options and tokens between blanks.
fn words(text: &str) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut hide = Next::Plain;
    // A credential in quotes may hold blanks: it is hidden up to the quote that ends it.
    let mut quoted = None;
    for piece in text.split_inclusive(|blank: char| blank.is_whitespace()) {
        let word = piece.trim_end();
        let blank = &piece[word.len()..];
        let single = word.len() == text.len();
        if let Some(quote) = quoted {
            if word.contains(quote) {
                quoted = None;
            }
            masked.push_str(blank);
            continue;
        }
        let before = masked.len();
        match std::mem::replace(&mut hide, Next::Plain) {
            Next::Secret if !word.is_empty() => masked.push_str(MASK),
            Next::Pair if !word.is_empty() => masked.push_str(&pair(word)),
            Next::User if !word.is_empty() => masked.push_str(&user(word)),
            kept => {
                if word.is_empty() {
                    hide = kept;
                } else if token(word) {
                    masked.push_str(MASK);
                } else {
                    // A text of one word has been judged as a whole.
                    let assigned = word.split_once('=').filter(|(_, value)| !single && !value.is_empty());
                    match assigned {
                        Some((name, value)) if PAIRS.contains(&name) => {
                            masked.extend([name, "=", &pair(value)]);
                        }
                        Some((name, value)) if USERS.contains(&name) => {
                            masked.extend([name, "=", &user(value)]);
                        }
                        Some((name, _)) if secret(name.trim_start_matches(['-', '\'', '"'])) => {
                            masked.extend([name, "=", MASK]);
                        }
                        _ => masked.push_str(word),
                    }
                    if !single {
                        hide = following(word, "");
                    }
                }
            }
        }
        if masked[before..].ends_with(MASK) {
            quoted = open_quote(word);
        }
        masked.push_str(blank);
    }
    masked
}

/// The quote that `word` opens and doesn't close.
fn open_quote(word: &str) -> Option<char> {
    let mut open = None;
    for character in word.chars().filter(|character| matches!(character, '"' | '\'')) {
        match open {
            None => open = Some(character),
            Some(quote) if quote == character => open = None,
            Some(_) => {}
        }
    }
    open
}

/// An AWS access key id, a JWT, or a token with the prefix of a well-known issuer.
fn token(word: &str) -> bool {
    let word = word.trim_matches(['"', '\'', ',', ';']);
    let aws = (word.starts_with("AKIA") || word.starts_with("ASIA"))
        && word.len() == 20
        && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
    let jwt = word.starts_with("eyJ") && word.len() > 30 && word.contains('.');
    let issued = ["ghp_", "gho_", "ghs_", "github_pat_", "glpat-", "dckr_pat_", "xoxb-"]
        .iter()
        .any(|prefix| word.starts_with(prefix));
    aws || jwt || issued
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn masked(line: &[&str]) -> Vec<String> {
        argv(&line.iter().map(|argument| (*argument).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn every_usual_way_to_pass_a_credential_is_masked() {
        for line in [
            &["ctr", "images", "pull", "--user", "me:hunter2", "x"] as &[&str],
            &["ctr", "images", "pull", "-u", "me:hunter2", "x"],
            &["ctr", "i", "pull", "--user=me:hunter2", "x"],
            &["crictl", "pull", "--creds", "me:hunter2", "x"],
            &["crictl", "pull", "--creds=me:hunter2", "x"],
            &["crictl", "pull", "--auth", "hunter2", "x"],
            &["skopeo", "copy", "--src-creds", "me:hunter2", "x"],
            &["skopeo", "copy", "--dest-registry-token", "hunter2", "x"],
            &["nerdctl", "login", "-u", "me", "-p", "hunter2"],
            &["/usr/bin/docker", "login", "-phunter2"],
            &["x", "--password", "hunter2"],
            &["x", "--password=hunter2"],
            &["x", "-password", "hunter2"],
            &["x", "--registry-password=hunter2"],
            &["x", "--token", "hunter2"],
            &["x", "--client-secret=hunter2"],
            &["env", "PASSWORD=hunter2", "x"],
            &["env", "REGISTRY_PASS=hunter2", "x"],
            &["env", "AWS_SECRET_ACCESS_KEY=hunter2", "x"],
            &["curl", "-H", "Authorization: Basic hunter2", "x"],
            &["curl", "-HAuthorization:Bearer hunter2", "x"],
            &["curl", "https://me:hunter2@registry.example.com/v2/"],
            &["curl", "-ume:hunter2", "x"],
            &["sh", "-c", "PASSWORD=hunter2 ctr images rm x"],
            &["sh", "-c", "ctr images pull --user me:hunter2 x && ctr images rm x"],
            &["sh", "-c", "crictl pull --password  hunter2 x"],
            &["sh", "-c", "crictl pull --password 'my hunter2' x"],
            &["sh", "-c", "PASSWORD=\"my hunter2\" crictl pull x"],
            &["sh", "-c", "crictl pull --creds \"me:my hunter2\" x"],
            &["sh", "-c", "curl 'https://me:hunter2@a/' https://you:hunter2@b"],
        ] {
            let after = masked(line);
            assert!(!after.concat().contains("hunter2"), "{after:?}");
            assert_eq!(after.len(), line.len());
        }
        assert_eq!(masked(&["x", "AKIAIOSFODNN7EXAMPLE"]), ["x", MASK]);
        assert_eq!(
            masked(&["ctr", "images", "pull", "--user", "me:hunter2", "docker.io/x:1"]),
            ["ctr", "images", "pull", "--user", "me:*****", "docker.io/x:1"]
        );
    }

    #[test]
    fn what_tells_the_story_stays() {
        for line in [
            &["crictl", "rmi", "docker.io/rancher/mirrored-pause:3.6"] as &[&str],
            &["ctr", "-n", "k8s.io", "images", "rm", "--sync", "sha256:0123"],
            &["rm", "-rf", "/var/lib/containerd/io.containerd.content.v1.content/blobs/sha256"],
            &["docker", "login", "--password-stdin", "registry.example.com"],
            &["sh", "-c", "crictl rmi --prune; echo done"],
            &["mkdir", "-p", "/a/b"],
            &["sudo", "-u", "alice", "crictl", "rmi", "x"],
            &["sh", "-c", "sudo -u alice crictl rmi x"],
            &["kubelet", "--config=/var/lib/kubelet/config.yaml", "--image-gc-high-threshold=85"],
        ] {
            assert_eq!(masked(line), line);
        }
    }

    proptest! {
        #[test]
        fn any_arguments_are_masked_without_a_panic_and_stay_as_many(
            line in prop::collection::vec("(-{0,2}[a-z:=@/ ]{0,12}|.{0,40})", 0..8),
        ) {
            prop_assert_eq!(argv(&line).len(), line.len());
        }

        #[test]
        fn a_password_never_survives_its_option(
            secret in "[A-Z0-9]{8,20}",
            option in prop::sample::select(vec!["--password", "--registry-password", "--token", "--secret", "--creds"]),
            joined in any::<bool>(),
        ) {
            let line = if joined { vec!["x".into(), format!("{option}={secret}")] }
                else { vec!["x".into(), option.to_owned(), secret.clone()] };
            prop_assert!(!argv(&line).concat().contains(&secret));
            let script = format!("echo {}", line.join(" "));
            prop_assert!(!argv(&["sh".into(), "-c".into(), script]).concat().contains(&secret));
        }
    }
}
