//! Text that others chose (names, arguments, messages) made fit for a terminal: control characters could move the
//! cursor, rewrite what was printed before, or set the window's title; bidirectional controls show letters in another
//! order than they are in.

use std::fmt::Write as _;

/// `text` with every character that a terminal would act on written as `\u{…}`.
pub fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        if acts(character) {
            // Writing to a String can't fail.
            let _ = write!(plain, "{}", character.escape_unicode());
        } else {
            plain.push(character);
        }
    }
    plain
}

/// Whether a terminal acts on it rather than shows it.
fn acts(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{00AD}' | '\u{061C}' | '\u{200B}'..='\u{200F}' | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}' | '\u{E0000}'..='\u{E007F}')
}

/// `text`, cut to at most `limit` bytes at a character's border, with `…` for what is missing.
pub fn short(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit.saturating_sub('…'.len_utf8()));
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_written_out() {
        assert_eq!(plain("a\x1b]0;owned\x07b"), "a\\u{1b}]0;owned\\u{7}b");
        assert_eq!(plain("line\nbreak\tübung 映像"), "line\\u{a}break\\u{9}übung 映像");
        assert_eq!(plain("gpj.\u{202e}exe"), "gpj.\\u{202e}exe");
    }

    proptest! {
        #[test]
        fn nothing_plain_acts(text in any::<String>()) {
            let once = plain(&text);
            prop_assert!(!once.chars().any(acts));
            prop_assert_eq!(plain(&once), once);
        }

        #[test]
        fn short_text_keeps_its_limit(text in any::<String>(), limit in 3_usize..50) {
            prop_assert!(short(&text, limit).len() <= limit);
        }
    }
}
