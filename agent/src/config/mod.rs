//! What imgwarden should do: `/etc/imgwarden/config.toml`, then `config.toml.d/*.toml`, then what is found on the node.
//!
//! [`Config`] is every key with its default (schema), made of typed values (value, pattern, hold_set). `load` reads the
//! files, `distro` finds containerd where no file names it, `rules` says which names are protected and how.

mod hold_set;
mod pattern;
mod schema;
mod source;
mod value;

pub use hold_set::{Hold, HoldSet};
pub use pattern::{Pattern, PatternError};
pub use schema::{
    Archives, Backend, Config, Containerd, Control, Defaults, Disk, Fsync, Holds, Http, Journal, Mode,
    Priority, Probe, Protect, Repair, Scrub, Sink, SinkKind,
};
pub use source::{Source, Sources};
pub use value::{Floor, Percent, Rate, Ring, Size, Span, ValueError};
