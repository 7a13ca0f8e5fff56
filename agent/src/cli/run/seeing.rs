//! The probe on a thread of its own: the rings are small, and must be read whatever the rest of the agent is doing.

use std::thread;

use anyhow::Context as _;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::probe::{Probe, ProbeError, Sink};

/// A busy node gives a reader its turn late: 4 MiB of requests last 40 ms at 100 MB/s.
const NICENESS: i32 = -10;

/// How the probe ended; an end without an answer is a panic of its thread.
pub(super) type Ended = oneshot::Receiver<Result<(), ProbeError>>;

/// Starts it.
pub(super) fn start(
    probe: Probe,
    sink: impl Sink + 'static,
    stop: CancellationToken,
) -> anyhow::Result<Ended> {
    let (ended, answer) = oneshot::channel();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("run: a runtime for the probe")?;
    let see = move || {
        let tid = rustix::thread::gettid();
        if let Err(error) = rustix::process::setpriority_process(Some(tid), NICENESS) {
            tracing::info!(%error, "the probe's thread keeps its priority: on a busy node requests may be lost");
        }
        // Who waits for the answer may have gone: then the agent is ending.
        drop(ended.send(runtime.block_on(probe.run(sink, stop))));
    };
    thread::Builder::new().name("probe".into()).spawn(see).context("run: a thread for the probe")?;
    Ok(answer)
}
