//! What imgwarden should do: `/etc/imgwarden/config.toml`, then `config.toml.d/*.toml`, then what is found on the node.
//!
//! [`Config`] is every key with its default (schema), made of typed values (value, pattern, hold_set). `load` reads the
//! files, `distro` finds containerd where no file names it, `rules` says which names are protected and how.

mod check;
pub mod distro;
mod effective;
mod error;
mod file;
mod hold_set;
pub mod keys;
mod load;
mod pattern;
pub mod reference;
pub mod rules;
mod schema;
mod source;
mod value;

pub use effective::Entry;
pub use error::{ConfigError, Hint, Problem, Table};
pub use hold_set::{Hold, HoldSet};
pub use load::DEFAULT_PATH;
pub use pattern::{Pattern, PatternError};
pub use schema::{
    Archives, Backend, Config, Containerd, Control, Defaults, Disk, Fsync, Holds, Http, Journal, Mode,
    Priority, Probe, Protect, Repair, Scrub, Sink, SinkKind,
};
pub use source::{Source, Sources};
pub use value::{Floor, Percent, Rate, Ring, Size, Span, ValueError};

#[cfg(test)]
mod tests;
