//! What can go wrong between imgwarden and containerd, with the method and the object it was about.

use std::{path::PathBuf, time::Duration};

use tonic::Code;

use crate::digest::{Digest, DigestError};

/// A call that did not do what it should. `method` is `Service/Method`, `object` the name, digest or key it was about.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    #[error("{}: not a usable socket address", address.display())]
    Address { address: PathBuf, source: tonic::transport::Error },
    #[error("{value:?} can't be sent as a {header} header")]
    Header { header: &'static str, value: String, source: tonic::metadata::errors::InvalidMetadataValue },
    /// Nobody listens, or the connection broke. Worth trying again.
    #[error("{method} {object}: containerd is not reachable: {status}")]
    Unreachable { method: &'static str, object: String, status: Box<tonic::Status> },
    #[error("{method} {object}: no answer within {} s", after.as_secs())]
    Timeout { method: &'static str, object: String, after: Duration },
    #[error("{method} {object}: not found")]
    NotFound { method: &'static str, object: String },
    #[error("{method} {object}: already exists")]
    Exists { method: &'static str, object: String },
    /// containerd refuses in this state: a snapshot with children, a namespace that is not empty.
    #[error("{method} {object}: refused: {why}")]
    Precondition { method: &'static str, object: String, why: String },
    #[error("{method}: this containerd doesn't serve it")]
    Unimplemented { method: &'static str },
    #[error("{method} {object}: {status}")]
    Rpc { method: &'static str, object: String, status: Box<tonic::Status> },
    /// The answer is not what the protocol promises.
    #[error("{method} {object}: unusable answer: {what}")]
    Answer { method: &'static str, object: String, what: &'static str },
    #[error("{method} {object}: unusable digest in the answer")]
    AnswerDigest { method: &'static str, object: String, source: DigestError },
    #[error("{digest}: {size} bytes are more than the {limit} that are read of such a blob")]
    TooLarge { digest: Digest, size: u64, limit: u64 },
    /// The bytes are not those that the digest promises.
    #[error("{expected}: the bytes have digest {found} ({bytes} bytes)")]
    Mismatch { expected: Digest, found: Digest, bytes: u64 },
    /// No namespace of this containerd lends the blob's file: it is gone, of another size, or sharing is off.
    #[error("{digest}: no file of {size} bytes to share")]
    NotShared { digest: Digest, size: u64 },
    #[error("{digest}: reading the bytes to write")]
    Source { digest: Digest, source: std::io::Error },
}

impl ContainerdError {
    pub(super) fn from_status(method: &'static str, object: &str, status: tonic::Status) -> Self {
        let object = object.chars().take(512).collect();
        match status.code() {
            Code::NotFound => Self::NotFound { method, object },
            Code::AlreadyExists => Self::Exists { method, object },
            Code::FailedPrecondition => {
                Self::Precondition { method, object, why: status.message().chars().take(512).collect() }
            }
            Code::Unimplemented => Self::Unimplemented { method },
            Code::Unavailable => Self::Unreachable { method, object, status: Box::new(status) },
            // tonic reports a connection that broke under a call as Unknown with a transport error as its source.
            Code::Unknown if std::error::Error::source(&status).is_some() => {
                Self::Unreachable { method, object, status: Box::new(status) }
            }
            _ => Self::Rpc { method, object, status: Box::new(status) },
        }
    }

    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    pub fn is_exists(&self) -> bool {
        matches!(self, Self::Exists { .. })
    }

    /// Whether containerd could not be asked at all: its answer is unknown, not negative.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable { .. } | Self::Timeout { .. })
    }
}

/// `Ok(None)` for "not found".
pub(crate) fn found<T>(result: Result<T, ContainerdError>) -> Result<Option<T>, ContainerdError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
