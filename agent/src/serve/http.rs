//! Health and metrics for a cluster, on TCP: `/livez`, `/readyz`, `/metrics`. Says numbers only: no image's name, no
//! path, nothing that a node's neighbours may not know.

use std::{fmt::Write as _, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::get,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::{Answers, Status};

/// How long a stopping agent waits for askers.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    #[error("can't listen on {address}")]
    Bind { address: SocketAddr, source: io::Error },
    #[error("the server on {address} failed")]
    Serve { address: SocketAddr, source: io::Error },
}

/// A bound address.
#[derive(Debug)]
pub struct Http {
    address: SocketAddr,
    listener: TcpListener,
}

impl Http {
    pub async fn bind(address: SocketAddr) -> Result<Self, HttpError> {
        let failed = |source| HttpError::Bind { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        Ok(Self { address: listener.local_addr().map_err(failed)?, listener })
    }

    /// Where it listens; the port is the real one.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop`.
    pub async fn run<A: Answers>(self, answers: Arc<A>, stop: CancellationToken) -> Result<(), HttpError> {
        let Self { address, listener } = self;
        let routes = Router::new()
            .route("/livez", get(async || "ok\n"))
            .route("/readyz", get(readyz::<A>))
            .route("/metrics", get(metrics::<A>))
            .with_state(answers);
        let serve = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            served = serve => served.map_err(|source| HttpError::Serve { address, source }),
            () = patience => Ok(()),
        }
    }
}

async fn readyz<A: Answers>(State(answers): State<Arc<A>>) -> Response {
    match unready(&answers.status().await) {
        None => "ok\n".into_response(),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

/// Why the agent can't do its work now.
fn unready(status: &Status) -> Option<&'static str> {
    if !status.containerd.connected {
        return Some("containerd does not answer");
    }
    let watches = status.probe.hooks.iter().any(|hook| hook.attached);
    (!watches).then_some("no hook is attached")
}

async fn metrics<A: Answers>(State(answers): State<Arc<A>>) -> Response {
    let text = exposition(&answers.status().await);
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

/// The Prometheus text format.
fn exposition(status: &Status) -> String {
    let Status { version, since, mode: _, node: _, containerd, probe, counts, journal, rss } = status;
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, labels: &str, value: u64| {
        // Writing to a String can't fail.
        let _ = writeln!(text, "# HELP imgwarden_{name} {help}\n# TYPE imgwarden_{name} {kind}");
        let _ = writeln!(text, "imgwarden_{name}{labels} {value}");
    };
    let label = version.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    add("build_info", "gauge", "Always 1.", &format!("{{version=\"{label}\"}}"), 1);
    let started = u64::try_from(since.as_second()).unwrap_or_default();
    add("start_time_seconds", "gauge", "When the agent was started.", "", started);
    let connected = u64::from(containerd.connected);
    add("containerd_connected", "gauge", "Whether containerd answered last time.", "", connected);
    let attached = probe.hooks.iter().filter(|hook| hook.attached).count() as u64;
    add("hooks", "gauge", "Hooks that the backend has.", "", probe.hooks.len() as u64);
    add("hooks_attached", "gauge", "Hooks that are attached.", "", attached);
    add("images", "gauge", "Images of the guarded namespace.", "", counts.images);
    add("images_protected", "gauge", "Images that a rule protects.", "", counts.protected);
    add("images_held", "gauge", "Protected images with every hold that works here.", "", counts.held);
    add("incidents_total", "counter", "Deletions.", "", counts.incidents);
    add("restored_total", "counter", "Images that were brought back.", "", counts.restored);
    add("gaps_total", "counter", "Times that something could not be seen or kept.", "", counts.gaps);
    add("journal_seq", "gauge", "The last event's number.", "", journal.seq);
    if let Some(rss) = rss {
        add("resident_memory_bytes", "gauge", "The agent's resident memory.", "", *rss);
    }
    text
}
