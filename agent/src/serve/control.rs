//! The control socket: HTTP with JSON on a unix socket, for root and the agent's own user.
//!
//! | question | answer |
//! |---|---|
//! | GET /v1/status | [`Status`](super::Status) |
//! | GET /v1/images | [`ImageStatus`](super::ImageStatus), a list |
//! | GET /v1/plan, POST /v1/plan with a config | [`Plan`](super::Plan) |
//! | POST /v1/restore with a [`Restore`] | [`RestoreLine`]s, one JSON object a line |

use std::{
    fs, io,
    os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use axum::{
    Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, State},
    http::header::CONTENT_TYPE,
    response::{IntoResponse, Response},
    routing::{get, post},
    serve::Listener,
};
use futures::{
    StreamExt as _,
    stream::{PollNext, select_with_strategy},
};
use tokio::{
    net::{UnixListener, UnixStream, unix::SocketAddr},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::{Answers, Restore, RestoreLine};
use crate::config::Config;

/// The largest question: a config.
const BODY_MAX: usize = 1 << 20;
/// How long a stopping agent waits for askers: one that doesn't read must not keep it.
const GRACE: Duration = Duration::from_secs(2);
/// Progress that the asker has not read yet.
const PROGRESS_MAX: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("another agent listens on {}", .0.display())]
    InUse(PathBuf),
    #[error("{} is there and is no socket", .0.display())]
    NotASocket(PathBuf),
    #[error("can't listen on {}", path.display())]
    Bind { path: PathBuf, source: io::Error },
    #[error("the control socket {} failed", path.display())]
    Serve { path: PathBuf, source: io::Error },
}

/// A bound control socket.
#[derive(Debug)]
pub struct Control {
    path: PathBuf,
    listener: UnixListener,
}

impl Control {
    /// Makes the directory (0755) and the socket (0600). A socket file that nobody listens on is replaced.
    pub fn bind(path: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::Bind { path: path.into(), source };
        if let Some(parent) = path.parent() {
            fs::DirBuilder::new().recursive(true).mode(0o755).create(parent).map_err(failed)?;
        }
        clear_stale(path)?;
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed)?;
        Ok(Self { path: path.into(), listener })
    }

    /// Answers until `stop`, then takes the socket away.
    pub async fn run<A: Answers>(self, answers: Arc<A>, stop: CancellationToken) -> Result<(), ControlError> {
        let Self { path, listener } = self;
        let routes = Router::new()
            .route("/v1/status", get(status::<A>))
            .route("/v1/images", get(images::<A>))
            .route("/v1/plan", get(plan::<A>).post(plan_with::<A>))
            .route("/v1/restore", post(restore::<A>))
            .layer(DefaultBodyLimit::max(BODY_MAX))
            .with_state(answers);
        let serve =
            axum::serve(Permitted(listener), routes).with_graceful_shutdown(stop.clone().cancelled_owned());
        let patience = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
        };
        let served = tokio::select! {
            served = serve => served.map_err(|source| ControlError::Serve { path: path.clone(), source }),
            () = patience => Ok(()),
        };
        if let Err(error) = fs::remove_file(&path) {
            tracing::debug!(path = %path.display(), %error, "the control socket can't be taken away");
        }
        served
    }
}

/// Only a socket that refuses connections is nobody's.
fn clear_stale(path: &Path) -> Result<(), ControlError> {
    let failed = |source| ControlError::Bind { path: path.into(), source };
    let kind = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if !kind.is_socket() {
        return Err(ControlError::NotASocket(path.into()));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(ControlError::InUse(path.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Hangs up on everybody but root and the agent's own user: file modes don't hold in every mount, and a bound socket
/// has the umask's mode for a moment.
struct Permitted(UnixListener);

impl Listener for Permitted {
    type Io = UnixStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (UnixStream, SocketAddr) {
        loop {
            let (stream, address) = Listener::accept(&mut self.0).await;
            match stream.peer_cred() {
                Ok(peer) if is_permitted(peer.uid(), rustix::process::geteuid().as_raw()) => {
                    return (stream, address);
                }
                Ok(peer) => {
                    tracing::warn!(uid = peer.uid(), pid = peer.pid(), "a stranger on the control socket");
                }
                Err(error) => tracing::warn!(%error, "somebody unknown on the control socket"),
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

pub(super) fn is_permitted(peer: u32, own: u32) -> bool {
    peer == 0 || peer == own
}

async fn status<A: Answers>(State(answers): State<Arc<A>>) -> Response {
    Json(answers.status().await).into_response()
}

async fn images<A: Answers>(State(answers): State<Arc<A>>) -> Response {
    Json(answers.images().await).into_response()
}

async fn plan<A: Answers>(State(answers): State<Arc<A>>) -> Response {
    Json(answers.plan(None).await).into_response()
}

async fn plan_with<A: Answers>(State(answers): State<Arc<A>>, Json(config): Json<Config>) -> Response {
    Json(answers.plan(Some(config)).await).into_response()
}

/// The restore runs as long as the answer is read: whoever hangs up has given up.
async fn restore<A: Answers>(State(answers): State<Arc<A>>, Json(asked): Json<Restore>) -> Response {
    let (progress, reports) = mpsc::channel(PROGRESS_MAX);
    let outcome = async move {
        let line = match answers.restore(asked, progress).await {
            Ok(restored) => RestoreLine::Restored(restored),
            Err(refused) => RestoreLine::Refused(refused),
        };
        // Reports that were sent in this very turn go first.
        tokio::task::yield_now().await;
        line
    };
    let reports = ReceiverStream::new(reports).map(RestoreLine::Progress);
    let outcome = futures::stream::once(outcome);
    let until_done = select_with_strategy(reports, outcome, |(): &mut ()| PollNext::Left);
    let lines = until_done.map(|line| {
        let mut bytes = serde_json::to_vec(&line)?;
        bytes.push(b'\n');
        Ok::<_, serde_json::Error>(bytes)
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}
