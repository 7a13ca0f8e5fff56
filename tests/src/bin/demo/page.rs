//! The page that the demo writes: plain text of at most 100 columns, colours only on a terminal.
//!
//! Long digests are cut and the demo's own directories are named by a word, so that a line can be read; nothing else of
//! what is printed is changed.

use std::io::{self, IsTerminal as _, Write as _};

/// The widest line.
const WIDTH: usize = 100;
/// Where a field's text begins.
const FIELD: usize = 14;
/// The digits of a digest that are shown.
const DIGITS: usize = 12;

/// Where the demo writes.
#[derive(Debug)]
pub(crate) struct Page {
    colour: bool,
    /// Directories and the words that stand for them, the longest first.
    words: Vec<(String, &'static str)>,
    chapter: u32,
}

impl Page {
    pub(crate) fn new() -> Self {
        let colour = io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { colour, words: Vec::new(), chapter: 0 }
    }

    /// From now on `path` is written as `word`.
    pub(crate) fn call(&mut self, path: &str, word: &'static str) {
        self.words.push((path.to_owned(), word));
        self.words.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    }

    /// A numbered heading.
    pub(crate) fn chapter(&mut self, title: &str) {
        self.chapter += 1;
        let title = format!("{}  {title} ", self.chapter);
        let rule = "─".repeat(WIDTH.saturating_sub(title.chars().count()));
        self.line(&format!("\n{}{}", self.bold(&title), self.dim(&rule)));
    }

    /// A paragraph in the demo's own words.
    pub(crate) fn text(&self, text: &str) {
        for line in self.wrap(text, 3) {
            self.line(&format!("   {line}"));
        }
    }

    /// A command as a person would type it.
    pub(crate) fn command(&self, command: &str) {
        for (number, line) in self.wrap(command, 7).iter().enumerate() {
            let prompt = if number == 0 { "   $ " } else { "       " };
            self.line(&format!("{prompt}{}", self.bold(line)));
        }
    }

    /// What a command said; what is too long for a line goes on below its last column.
    pub(crate) fn output(&self, output: &str) {
        for line in output.trim_end().lines() {
            let line = self.short(line);
            if line.chars().count() + 3 <= WIDTH {
                self.line(format!("   {line}").trim_end());
                continue;
            }
            let column = line[..line.floor_char_boundary(WIDTH / 2)].rfind("  ").map_or(0, |at| at + 2);
            for (number, rest) in self.wrap(&line[column..], 3 + column).iter().enumerate() {
                let before = if number == 0 { line[..column].to_owned() } else { " ".repeat(column) };
                self.line(&format!("   {before}{rest}"));
            }
        }
    }

    /// A word and what it says.
    pub(crate) fn field(&self, name: &str, text: &str) {
        for (number, line) in self.wrap(text, FIELD).iter().enumerate() {
            let name = if number == 0 { name } else { "" };
            // Padded first: colours take no columns.
            self.line(&format!("   {}{line}", self.dim(&format!("{name:<width$}", width = FIELD - 3))));
        }
    }

    /// What went well, or badly.
    pub(crate) fn verdict(&self, good: bool, text: &str) {
        let name = format!("{:<width$}", if good { "→" } else { "✗" }, width = FIELD - 3);
        for (number, line) in self.wrap(text, FIELD).iter().enumerate() {
            let name = if number == 0 { name.clone() } else { " ".repeat(FIELD - 3) };
            let colour = if good { "32" } else { "31" };
            self.line(&format!("   {}", self.paint(colour, &format!("{name}{line}"))));
        }
    }

    pub(crate) fn blank(&self) {
        self.line("");
    }

    fn line(&self, line: &str) {
        // Whoever closes the pipe has read enough: the demo still ends in order.
        let _ = writeln!(io::stdout(), "{line}");
    }

    /// Lines of words that fit beside an indentation; a longer word has a line of its own.
    fn wrap(&self, text: &str, indent: usize) -> Vec<String> {
        let text = self.short(text);
        let mut lines = vec![String::new()];
        for word in text.split(' ') {
            let last = lines.last().map_or(0, |line| line.chars().count());
            if last > 0 && indent + last + 1 + word.chars().count() > WIDTH {
                lines.push(String::new());
            }
            if let Some(line) = lines.last_mut() {
                if !line.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
            }
        }
        lines
    }

    /// Directories by their words, digests by their first digits.
    fn short(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (path, word) in &self.words {
            text = text.replace(path.as_str(), word);
        }
        let mut short = String::new();
        let mut digits = String::new();
        let end = |digits: &mut String, short: &mut String| {
            if digits.len() == 64 {
                short.push_str(&digits[..DIGITS]);
                short.push('…');
            } else {
                short.push_str(digits);
            }
            digits.clear();
        };
        for character in text.chars() {
            if matches!(character, '0'..='9' | 'a'..='f') {
                digits.push(character);
            } else {
                end(&mut digits, &mut short);
                short.push(character);
            }
        }
        end(&mut digits, &mut short);
        short
    }

    fn bold(&self, text: &str) -> String {
        self.paint("1", text)
    }

    fn dim(&self, text: &str) -> String {
        self.paint("2", text)
    }

    fn paint(&self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
