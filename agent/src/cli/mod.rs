//! What a person types. (Skeleton: `Cli`, the dispatch and the other commands come with the cli work.)

use std::path::PathBuf;

pub mod archive;
pub mod events;
pub mod probe;
pub mod run;
pub mod why;

/// What every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Global {
    /// The config file; its directory's config.toml.d is read after it.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
}

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    Fine = 0,
    Failed = 1,
    Usage = 2,
    Found = 3,
    NotPermitted = 4,
}
