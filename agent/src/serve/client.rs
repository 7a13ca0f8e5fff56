//! Asks the running agent through its control socket: one connection a question.

use std::{io, path::PathBuf};

use http::{Method, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::UnixStream;
use tokio_util::task::AbortOnDropHandle;

use super::{ImageStatus, Plan, Progress, Restore, RestoreLine, RestoreRefused, Restored, Status};
use crate::config::Config;

/// The largest answer: some ten thousand images.
const ANSWER_MAX: usize = 64 << 20;

#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(
        "no agent is running (nobody listens on {}); start it with `imgwarden run` or `systemctl start imgwarden`",
        socket.display()
    )]
    NoAgent { socket: PathBuf },
    #[error("{} can't be used: only root and the agent's own user may ask", socket.display())]
    NotPermitted { socket: PathBuf },
    #[error("{} can't be used", socket.display())]
    Connect { socket: PathBuf, source: io::Error },
    #[error("the agent on {} broke off", socket.display())]
    Http { socket: PathBuf, source: hyper::Error },
    #[error("the agent on {} broke off before it was done", socket.display())]
    Unfinished { socket: PathBuf },
    #[error("the agent on {} answered {status}: {text}", socket.display())]
    Status { socket: PathBuf, status: StatusCode, text: String },
    #[error("the agent on {} answered more than {ANSWER_MAX} bytes", socket.display())]
    TooLarge { socket: PathBuf },
    #[error("the answer of the agent on {} is not understood: is it of another version?", socket.display())]
    Answer { socket: PathBuf, source: serde_json::Error },
    #[error("the question can't be written as JSON")]
    Question { source: serde_json::Error },
    #[error("the question can't be written as HTTP")]
    Request { source: http::Error },
    #[error(transparent)]
    Refused(#[from] RestoreRefused),
}

/// Knows where the agent listens; connects when asked.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

/// An answer that arrives, and the connection that it needs.
struct Answer {
    body: Limited<Incoming>,
    _connection: AbortOnDropHandle<()>,
}

impl Client {
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    pub async fn status(&self) -> Result<Status, ClientError> {
        self.ask(Method::GET, "/v1/status", Bytes::new()).await
    }

    pub async fn images(&self) -> Result<Vec<ImageStatus>, ClientError> {
        self.ask(Method::GET, "/v1/images", Bytes::new()).await
    }

    /// What `config`, or else the one in force, would hold and let go.
    pub async fn plan(&self, config: Option<&Config>) -> Result<Plan, ClientError> {
        match config {
            Some(config) => self.ask(Method::POST, "/v1/plan", question(config)?).await,
            None => self.ask(Method::GET, "/v1/plan", Bytes::new()).await,
        }
    }

    /// Waits until the image is back, or refused.
    pub async fn restore(
        &self,
        restore: &Restore,
        mut on_progress: impl FnMut(Progress),
    ) -> Result<Restored, ClientError> {
        let mut answer = self.send(Method::POST, "/v1/restore", question(restore)?).await?;
        let mut pending = Vec::new();
        while let Some(bytes) = self.next(&mut answer).await? {
            pending.extend_from_slice(&bytes);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                match self.understand(&line)? {
                    RestoreLine::Progress(progress) => on_progress(progress),
                    RestoreLine::Restored(restored) => return Ok(restored),
                    RestoreLine::Refused(refused) => return Err(refused.into()),
                }
            }
        }
        Err(ClientError::Unfinished { socket: self.socket.clone() })
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let mut answer = self.send(method, path, body).await?;
        let mut all = Vec::new();
        while let Some(bytes) = self.next(&mut answer).await? {
            all.extend_from_slice(&bytes);
        }
        self.understand(&all)
    }

    async fn send(&self, method: Method, path: &str, body: Bytes) -> Result<Answer, ClientError> {
        let socket = || self.socket.clone();
        let stream = UnixStream::connect(&self.socket).await.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                ClientError::NoAgent { socket: socket() }
            }
            io::ErrorKind::PermissionDenied => ClientError::NotPermitted { socket: socket() },
            _ => ClientError::Connect { socket: socket(), source },
        })?;
        let broke_off = |source| ClientError::Http { socket: socket(), source };
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke_off)?;
        let connection = AbortOnDropHandle::new(tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the agent ended");
            }
        }));
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "imgwarden")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|source| ClientError::Request { source })?;
        let response = sender.send_request(request).await.map_err(broke_off)?;
        let status = response.status();
        let mut answer =
            Answer { body: Limited::new(response.into_body(), ANSWER_MAX), _connection: connection };
        if status.is_success() {
            return Ok(answer);
        }
        let text = self.next(&mut answer).await?.unwrap_or_default();
        let text = String::from_utf8_lossy(&text).chars().take(200).collect();
        Err(ClientError::Status { socket: socket(), status, text })
    }

    /// The next bytes of an answer.
    async fn next(&self, answer: &mut Answer) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = answer.body.frame().await {
            let frame = frame.map_err(|error| self.cut_short(error))?;
            if let Ok(bytes) = frame.into_data() {
                return Ok(Some(bytes));
            }
        }
        Ok(None)
    }

    fn cut_short(&self, error: Box<dyn std::error::Error + Send + Sync>) -> ClientError {
        let socket = self.socket.clone();
        if error.is::<LengthLimitError>() {
            return ClientError::TooLarge { socket };
        }
        match error.downcast::<hyper::Error>() {
            Ok(source) => ClientError::Http { socket, source: *source },
            Err(_) => ClientError::Unfinished { socket },
        }
    }

    fn understand<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(bytes)
            .map_err(|source| ClientError::Answer { socket: self.socket.clone(), source })
    }
}

fn question<T: Serialize>(value: &T) -> Result<Bytes, ClientError> {
    serde_json::to_vec(value).map(Bytes::from).map_err(|source| ClientError::Question { source })
}
