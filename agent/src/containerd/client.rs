//! The channel to containerd: one lazily connected HTTP/2 connection that comes back by itself after a restart.
//!
//! A [`Client`] is a channel with a namespace and perhaps a lease; cloning it shares the connection. It never retries a
//! call: whether a repeated call makes sense is the caller's to know.

use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::{
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint, Uri},
};

use super::ContainerdError;

/// How long a connection attempt may take.
const CONNECT: Duration = Duration::from_secs(2);
/// How long a call may take. bolt writes wait for GC's lock, and GC of a large store takes seconds.
pub(super) const CALL: Duration = Duration::from_secs(20);
/// How long a deletion that waits for the GC may take.
pub(super) const SYNC: Duration = Duration::from_secs(120);
/// The largest answer that is taken. A list of 20,000 images with a dozen labels each is less.
pub(super) const ANSWER: usize = 64 << 20;

/// A namespace of a containerd.
#[derive(Debug, Clone)]
pub struct Client {
    channel: Channel,
    address: PathBuf,
    namespace: String,
    namespace_header: MetadataValue<Ascii>,
    lease_header: Option<MetadataValue<Ascii>>,
}

impl Client {
    /// Connects at the first call, and again whenever the connection is gone. Must be called within a tokio runtime.
    pub fn new(address: &Path, namespace: &str) -> Result<Self, ContainerdError> {
        let path = address.to_path_buf();
        // The URI is for the :authority header alone: the connector knows the path.
        let endpoint = Endpoint::try_from("http://localhost")
            .map_err(|source| ContainerdError::Address { address: path.clone(), source })?
            .connect_timeout(CONNECT)
            .user_agent("imgwarden")
            .map_err(|source| ContainerdError::Address { address: path.clone(), source })?;
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        }));
        Ok(Self {
            channel,
            address: address.to_path_buf(),
            namespace: namespace.to_owned(),
            namespace_header: header("containerd-namespace", namespace)?,
            lease_header: None,
        })
    }

    /// The same connection, another namespace, no lease.
    pub fn in_namespace(&self, namespace: &str) -> Result<Self, ContainerdError> {
        Ok(Self {
            namespace: namespace.to_owned(),
            namespace_header: header("containerd-namespace", namespace)?,
            lease_header: None,
            ..self.clone()
        })
    }

    /// The same connection and namespace; what its calls create belongs to this lease.
    pub fn under_lease(&self, lease: &str) -> Result<Self, ContainerdError> {
        Ok(Self { lease_header: Some(header("containerd-lease", lease)?), ..self.clone() })
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    pub fn address(&self) -> &Path {
        &self.address
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// A request in this client's namespace and lease.
    pub(super) fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("containerd-namespace", self.namespace_header.clone());
        if let Some(lease) = &self.lease_header {
            metadata.insert("containerd-lease", lease.clone());
        }
        request
    }
}

fn header(header: &'static str, value: &str) -> Result<MetadataValue<Ascii>, ContainerdError> {
    value.parse().map_err(|source| ContainerdError::Header { header, value: value.to_owned(), source })
}

/// Waits for an answer, at most `limit`, and names what was asked in the error.
pub(super) async fn call<T>(
    method: &'static str,
    object: &str,
    limit: Duration,
    answer: impl Future<Output = Result<T, tonic::Status>>,
) -> Result<T, ContainerdError> {
    match tokio::time::timeout(limit, answer).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(status)) => Err(ContainerdError::from_status(method, object, status)),
        Err(_) => {
            Err(ContainerdError::Timeout { method, object: object.chars().take(512).collect(), after: limit })
        }
    }
}

/// A service's stub on this client's channel, with the answer limit set.
macro_rules! stub {
    ($client:expr, $stub:ty) => {
        <$stub>::new($client.channel()).max_decoding_message_size($crate::containerd::client::ANSWER)
    };
}
pub(super) use stub;
