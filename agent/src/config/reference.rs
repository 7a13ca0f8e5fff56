//! The reference of the config (docs/config.md), from the type.

use std::fmt::Write as _;

use serde_json::Value;

use super::keys::Key;

/// Every key without a table of its own, then every table.
pub fn markdown(top: &Key) -> String {
    let mut text = String::from(
        "# The config\n\n\
         `/etc/imgwarden/config.toml` (or `--config FILE`), then `config.toml.d/*.toml` in the order of their names: \
         later values win, `[[tables]]` add up. Everything is optional; an empty file guards the sandbox image, \
         imgwarden's own, and everything in the distribution's image directory. An unknown key, a wrong type or an \
         impossible value is refused with file and line. `imgwarden config check` says whether a config can be used, \
         `imgwarden config show` what is in force and where each value comes from.\n\n\
         Durations are written as `90s`, `1h30m`, `7d`; sizes as `64KiB`, `4MiB`, `20GiB`; rates as `20/h`. A path \
         or name that is `\"\"` by default is found on the node.\n\n\
         This page is made from the type in agent/src/config/schema.rs, and a test compares them.\n",
    );
    let values = top.keys.iter().filter(|(_, key)| key.keys.is_empty());
    section(&mut text, "At the top", "", values);
    for (name, table) in top.keys.iter().filter(|(_, key)| !key.keys.is_empty()) {
        let title = if table.repeated { format!("`[[{name}]]`") } else { format!("`[{name}]`") };
        section(&mut text, &title, &table.meaning, table.keys.iter());
    }
    text
}

fn section<'a>(
    text: &mut String,
    title: &str,
    meaning: &str,
    keys: impl Iterator<Item = (&'a String, &'a Key)>,
) {
    // Writing to a String can't fail.
    let _ = writeln!(text, "\n## {title}\n");
    if !meaning.is_empty() {
        let _ = writeln!(text, "{meaning}\n");
    }
    text.push_str("| key | default | meaning |\n|---|---|---|\n");
    for (name, key) in keys {
        let default = match &key.default {
            None | Some(Value::Null) => String::new(),
            Some(default) => format!("`{default}`"),
        };
        let _ = writeln!(text, "| `{name}` | {default} | {} |", key.meaning.replace('|', "\\|"));
    }
}
