//! Starts a container from an image with the real runc, without a network: the proof that an image is whole.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{
    containerd::Containerd,
    process::{Output, run},
};

/// Tells apart the containers of one process.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Runs `command` in a new container of `image` to its end; panics unless it exits with 0.
pub fn run_container(containerd: &Containerd, image: &str, command: &[&str]) -> Output {
    try_run_container(containerd, image, command).expect_success(&format!("a container of {image}"))
}

/// The same, however it ends.
pub fn try_run_container(containerd: &Containerd, image: &str, command: &[&str]) -> Output {
    let id = format!("imgwarden-e2e-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
    let mut ctr = containerd.ctr_command();
    ctr.args(["run", "--rm", image, &id]).args(command);
    run(&mut ctr, std::time::Duration::from_secs(120))
}
