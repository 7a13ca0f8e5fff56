//! User names, from the node's /etc/passwd. In a pod that is the host's file, seen through pid 1's root; users that only
//! a directory service knows have no name here.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read},
    path::Path,
    sync::{LazyLock, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// In the order in which they are tried.
const FILES: [&str; 2] = ["/proc/1/root/etc/passwd", "/etc/passwd"];
/// A node's passwd has a few kilobytes; what lies beyond this isn't read.
const LIMIT: u64 = 4 << 20;
/// How long a reading holds: a new user may be nameless for this long.
const FRESH: Duration = Duration::from_secs(10);

struct Known {
    read: Instant,
    names: HashMap<u32, String>,
}

static KNOWN: LazyLock<Mutex<Option<Known>>> = LazyLock::new(Mutex::default);

/// The name of a user.
pub fn name(uid: u32) -> Option<String> {
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if known.as_ref().is_none_or(|known| known.read.elapsed() > FRESH) {
        let text = FILES.iter().find_map(|file| read(Path::new(file)).ok()).unwrap_or_default();
        *known = Some(Known { read: Instant::now(), names: parse(&text) });
    }
    known.as_ref().and_then(|known| known.names.get(&uid)).cloned()
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LIMIT).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The first entry of a uid counts, as with getpwuid. Lines of another form are passed over.
fn parse(passwd: &str) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in passwd.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(_), Some(uid)) = (fields.next(), fields.next(), fields.next())
            && let Ok(uid) = uid.parse()
            && !name.is_empty()
        {
            names.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn uid_0_is_root_on_any_node() {
        assert_eq!(name(0).as_deref(), Some("root"));
        assert_eq!(name(4_294_967_294), None);
    }

    #[test]
    fn the_first_entry_counts_and_other_lines_do_not() {
        let names = parse(
            "root:x:0:0::/root:/bin/sh\ntoor:x:0:0::/:/bin/sh\n# note\n+::::::\n:x:7:7:\nalice:x:1000:1000",
        );
        assert_eq!(names, HashMap::from([(0, "root".to_owned()), (1000, "alice".to_owned())]));
    }

    proptest! {
        #[test]
        fn any_file_is_read_without_a_panic(text in ".{0,300}") {
            let _ = parse(&text);
        }
    }
}
