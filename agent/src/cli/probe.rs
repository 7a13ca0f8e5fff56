//! (Skeleton.)

use super::{Exit, Global};

#[derive(Debug, Clone, clap::Args)]
pub struct Args {}

pub async fn run(_args: Args, _global: &Global) -> anyhow::Result<Exit> {
    Ok(Exit::Fine)
}
