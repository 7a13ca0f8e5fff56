//! Finds what differs from run to run inside a text: digests, ids, times, pids, durations.

/// A digest's or a hash's length in hexadecimal digits.
const HASH: usize = 64;

/// Replaces every such token by what `placeholder` gives for its kind and text.
pub(super) fn replace_tokens(
    text: &str,
    mut placeholder: impl FnMut(&'static str, &str) -> String,
) -> String {
    let mut replaced = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
        replaced.push_str(&rest[..start]);
        rest = &rest[start..];
        let (kind, length) = token(rest);
        let (token, after) = rest.split_at(length);
        match kind {
            Some("ms" | "time" | "percent") => replaced.push_str(&format!("<{}>", kind.unwrap_or_default())),
            Some("pid") => {
                replaced.push_str("pid ");
                replaced.push_str(&placeholder("pid", &token[4..]));
            }
            Some(kind) => replaced.push_str(&placeholder(kind, token)),
            None => replaced.push_str(token),
        }
        rest = after;
    }
    replaced.push_str(rest);
    replaced
}

/// What stands at the start of a text, and how long it is in bytes.
fn token(text: &str) -> (Option<&'static str>, usize) {
    let word = text.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(text.len());
    let hexadecimal = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    if word == HASH && hexadecimal(&text[..word]) {
        return (Some("hash"), word);
    }
    if let Some(digits) = text.strip_prefix("pid ").map(digits).filter(|digits| *digits > 0) {
        return (Some("pid"), 4 + digits);
    }
    let spaced =
        text.find(|c: char| !(c.is_ascii_alphanumeric() || "-:.+".contains(c))).unwrap_or(text.len());
    let candidate = text[..spaced].trim_end_matches(['.', ':', '-', '+']);
    if candidate.len() == 36 && [8, 13, 18, 23].iter().all(|at| candidate.as_bytes()[*at] == b'-') {
        return (Some("id"), candidate.len());
    }
    let is_time = candidate.len() >= 20 && candidate.as_bytes()[10] == b'T' && candidate.ends_with('Z');
    if is_time && candidate.parse::<jiff::Timestamp>().is_ok() {
        return (Some("time"), candidate.len());
    }
    let number = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    if number > 0 && text[number..].trim_start_matches(' ').starts_with("ms") {
        let unit = text[number..].find("ms").unwrap_or_default() + 2;
        let whole = !text[number + unit..].starts_with(|c: char| c.is_ascii_alphanumeric());
        if whole {
            return (Some("ms"), number + unit);
        }
    }
    if number > 0 && text[number..].starts_with(" %") {
        return (Some("percent"), number + 2);
    }
    (None, word)
}

fn digits(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::replace_tokens;

    #[test]
    fn tokens_are_found_and_words_are_left() {
        let hash = "ab".repeat(32);
        let text = format!(
            "pid 42 took 1.25 ms (12ms) for sha256:{hash}, {hash}: 0193a1b2-0000-7000-8000-0123456789ab at \
             2026-01-02T03:04:05.678Z; 3 items, 19 % full, café:1, pid x"
        );
        let mut seen = Vec::new();
        let replaced = replace_tokens(&text, |kind, token| {
            seen.push((kind, token.to_owned()));
            format!("<{kind}>")
        });
        assert_eq!(
            replaced,
            "pid <pid> took <ms> (<ms>) for sha256:<hash>, <hash>: <id> at <time>; 3 items, <percent> full, café:1, pid x"
        );
        assert_eq!(seen[0], ("pid", "42".to_owned()));
    }
}
