//! Results, on stdout: text, JSON, aligned tables. A reader that has gone away (`| head`) ends a command quietly.

use std::io::{self, Write as _};

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::HumanBytes;
use serde::Serialize;

/// Nobody reads stdout any more.
#[derive(Debug, thiserror::Error)]
#[error("stdout is closed")]
pub struct Closed;

/// Prints a text, ending its last line.
pub fn text(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    let line_end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    let written = stdout.write_all(text.as_bytes()).and_then(|()| stdout.write_all(line_end.as_bytes()));
    match written.and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Closed.into()),
        Err(error) => Err(anyhow::Error::new(error).context("stdout")),
        Ok(()) => Ok(()),
    }
}

/// Prints a value as one JSON document.
pub fn json<T: Serialize>(value: &T) -> anyhow::Result<()> {
    text(&serde_json::to_string_pretty(value)?)
}

/// Columns, aligned, as wide as they need to be: a name that is broken can't be copied.
pub fn table<const N: usize>(header: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header).add_rows(rows);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.trim_fmt() + "\n"
}

/// A size for a person: `12.5 MiB`; `-` when it isn't known.
pub fn size(bytes: Option<u64>) -> String {
    bytes.map_or_else(|| "-".to_owned(), |bytes| HumanBytes(bytes).to_string())
}

/// A word that may not be known.
pub fn word(word: Option<impl ToString>) -> String {
    word.map_or_else(|| "-".to_owned(), |word| word.to_string())
}

/// The name that a person would use for an image: one with a tag, else any, else the ID.
pub fn display_name(names: &[String], id: Option<&str>) -> String {
    let tagged = names.iter().find(|name| !name.contains('@') && !crate::name::is_id(name));
    tagged.or_else(|| names.first()).map(String::as_str).or(id).unwrap_or("-").to_owned()
}
