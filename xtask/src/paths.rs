//! Where things lie: the workspace, what setup puts into the cache, what a build leaves.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

/// The workspace's root.
pub(crate) fn root() -> Result<PathBuf> {
    // Set by `cargo run` for the xtask of the checkout that it was typed in.
    let manifest = env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    manifest.parent().map(Path::to_path_buf).context("xtask lies below the workspace's root")
}

/// The build directory.
pub(crate) fn target() -> Result<PathBuf> {
    match env::var_os("CARGO_TARGET_DIR").filter(|dir| !dir.is_empty()) {
        Some(dir) => Ok(root()?.join(dir)),
        None => Ok(root()?.join("target")),
    }
}

/// What setup builds or downloads: shared by all checkouts of a user.
pub(crate) fn cache() -> Result<PathBuf> {
    let from = |variable: &str| env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    from("IMGWARDEN_CACHE")
        .or_else(|| from("XDG_CACHE_HOME").map(|dir| dir.join("imgwarden")))
        .or_else(|| from("HOME").map(|home| home.join(".cache/imgwarden")))
        .context("none of IMGWARDEN_CACHE, XDG_CACHE_HOME and HOME is set")
}

/// A program that `PATH` leads to.
pub(crate) fn in_path(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).map(|dir| dir.join(program)).find(|candidate| candidate.is_file())
}
