//! Blobs: containerd's Content service.
//!
//! Reading is for manifests and configs, whole and checked. Writing puts verified bytes or, without bytes, the metadata
//! of a file that another namespace has. Content is never deleted here.

use std::time::Duration;

use containerd_client::services::v1::{
    AbortRequest, Info, InfoRequest, ListContentRequest, ReadContentRequest, UpdateRequest, WriteAction,
    WriteContentRequest, WriteContentResponse, content_client::ContentClient,
};
use prost_types::FieldMask;
use sha2::Digest as _;
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    sync::mpsc,
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;
use uuid::Uuid;

use super::{
    Client, ContainerdError,
    client::{CALL, call, stub},
    error::found,
};
use crate::{digest::Digest, inventory::image::Labels};

/// The largest manifest or config that is read.
pub const DOCUMENT: u64 = 8 << 20;
/// The most bytes in one message of a write. containerd takes up to 16 MiB.
const CHUNK: usize = 1 << 20;
/// How long a commit may take: containerd syncs the file to disk in it.
const COMMIT: Duration = Duration::from_secs(120);

/// What containerd's metadata says of a blob. It says so too when the file has gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlobInfo {
    pub digest: Digest,
    pub size: u64,
    pub labels: Labels,
}

/// How a blob's metadata came to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// The namespace didn't know the blob; it does now, with the labels that were given.
    Created,
    /// The namespace knew it already: its labels are as they were. After [`write`], the file is back.
    Known,
}

pub async fn info(client: &Client, digest: Digest) -> Result<Option<BlobInfo>, ContainerdError> {
    const METHOD: &str = "Content/Info";
    let object = digest.to_string();
    let request = client.request(InfoRequest { digest: object.clone() });
    let answer = found(call(METHOD, &object, CALL, stub!(client, ContentClient<_>).info(request)).await)?;
    match answer.map(|answer| answer.into_inner().info) {
        None => Ok(None),
        Some(None) => Err(ContainerdError::Answer { method: METHOD, object, what: "no info" }),
        Some(Some(info)) => Ok(blob(info)),
    }
}

/// Every blob of the namespace; those with other digests than sha256 are left out.
pub async fn list(client: &Client) -> Result<Vec<BlobInfo>, ContainerdError> {
    const METHOD: &str = "Content/List";
    let request = client.request(ListContentRequest { filters: Vec::new() });
    let object = client.namespace();
    let mut stream =
        call(METHOD, object, CALL, stub!(client, ContentClient<_>).list(request)).await?.into_inner();
    let mut blobs = Vec::new();
    while let Some(part) = call(METHOD, object, CALL, stream.message()).await? {
        blobs.extend(part.info.into_iter().filter_map(blob));
    }
    Ok(blobs)
}

fn blob(Info { digest, size, labels, .. }: Info) -> Option<BlobInfo> {
    Some(BlobInfo {
        digest: digest.parse().ok()?,
        size: u64::try_from(size).unwrap_or_default(),
        labels: labels.into_iter().collect(),
    })
}

/// The whole blob, at most `limit` bytes, with the hash that it should have. `None`: it, or its file, is not there.
pub async fn read(client: &Client, digest: Digest, limit: u64) -> Result<Option<Vec<u8>>, ContainerdError> {
    const METHOD: &str = "Content/Read";
    let object = digest.to_string();
    let request = client.request(ReadContentRequest { digest: object.clone(), offset: 0, size: 0 });
    // A missing file is NotFound with the first message, a missing blob with the call.
    let Some(answer) =
        found(call(METHOD, &object, CALL, stub!(client, ContentClient<_>).read(request)).await)?
    else {
        return Ok(None);
    };
    let mut stream = answer.into_inner();
    let mut bytes = Vec::new();
    loop {
        match found(call(METHOD, &object, CALL, stream.message()).await)? {
            None => return Ok(None),
            Some(None) => break,
            Some(Some(part)) => {
                bytes.extend(part.data);
                let size = bytes.len() as u64;
                if size > limit {
                    return Err(ContainerdError::TooLarge { digest, size, limit });
                }
            }
        }
    }
    let found = Digest::of(&bytes);
    if found != digest {
        return Err(ContainerdError::Mismatch { expected: digest, found, bytes: bytes.len() as u64 });
    }
    Ok(Some(bytes))
}

/// Sets `changes` on the blob's labels and leaves all others alone; an empty value takes a label away.
pub async fn set_labels(client: &Client, digest: Digest, changes: &Labels) -> Result<(), ContainerdError> {
    if changes.is_empty() {
        // An empty mask would replace all labels.
        return Ok(());
    }
    let object = digest.to_string();
    let info =
        Info { digest: object.clone(), labels: changes.clone().into_iter().collect(), ..Default::default() };
    let paths = changes.keys().map(|key| format!("labels.{key}")).collect();
    let request = client.request(UpdateRequest { info: Some(info), update_mask: Some(FieldMask { paths }) });
    call("Content/Update", &object, CALL, stub!(client, ContentClient<_>).update(request)).await.map(drop)
}

/// Writes the blob's bytes, whether or not containerd thinks it has them, and commits them if they hash to `digest`.
///
/// The digest is not told to containerd: a write that names what is expected is refused while the metadata stands, and
/// then nothing repairs a file that has gone. A file of the wrong size or content that is still there has to be
/// unlinked first: containerd doesn't overwrite.
pub async fn write<R: AsyncRead + Unpin + Send>(
    client: &Client,
    digest: Digest,
    size: u64,
    labels: &Labels,
    source: &mut R,
) -> Result<Written, ContainerdError> {
    let reference = ingest_reference(digest);
    let mut ingest = None;
    let result = stream_bytes(client, &reference, digest, size, labels, source, &mut ingest).await;
    end(client, &reference, ingest, &result).await;
    result
}

async fn stream_bytes<R: AsyncRead + Unpin + Send>(
    client: &Client,
    reference: &str,
    digest: Digest,
    size: u64,
    labels: &Labels,
    source: &mut R,
    ingest: &mut Option<Ingest>,
) -> Result<Written, ContainerdError> {
    let mut hasher = sha2::Sha256::new();
    let mut offset = 0u64;
    let message = |action: WriteAction, offset: u64| WriteContentRequest {
        action: action.into(),
        r#ref: reference.to_owned(),
        total: size.try_into().unwrap_or(i64::MAX),
        offset: offset.try_into().unwrap_or(i64::MAX),
        ..Default::default()
    };
    loop {
        let data = chunk(source).await.map_err(|source| ContainerdError::Source { digest, source })?;
        if data.is_empty() {
            break;
        }
        hasher.update(&data);
        let at = offset;
        offset += data.len() as u64;
        if offset > size {
            return Err(ContainerdError::TooLarge { digest, size: offset, limit: size });
        }
        let part = WriteContentRequest { data, ..message(WriteAction::Write, at) };
        let answer = match ingest.as_mut() {
            Some(ingest) => ingest.send(part, CALL).await?,
            None => {
                let (opened, answer) = Ingest::open(client, digest, part).await?;
                *ingest = Some(opened);
                answer
            }
        };
        if u64::try_from(answer.offset) != Ok(offset) {
            let object = digest.to_string();
            return Err(ContainerdError::Answer {
                method: WRITE,
                object,
                what: "bytes were lost on the way",
            });
        }
    }
    let found = Digest::from_bytes(hasher.finalize().into());
    if found != digest || offset != size {
        return Err(ContainerdError::Mismatch { expected: digest, found, bytes: offset });
    }
    let commit = WriteContentRequest {
        labels: labels.clone().into_iter().collect(),
        ..message(WriteAction::Commit, offset)
    };
    let committed = match ingest {
        Some(ingest) => ingest.send(commit, COMMIT).await.map(drop),
        None => Ingest::open(client, digest, commit).await.map(drop),
    };
    known_is_fine(committed)
}

/// Makes the blob known to the client's namespace from the file that containerd has for another namespace: no bytes move.
pub async fn adopt(
    client: &Client,
    digest: Digest,
    size: u64,
    labels: &Labels,
) -> Result<Written, ContainerdError> {
    let reference = ingest_reference(digest);
    let mut ingest = None;
    let result = share(client, &reference, digest, size, labels, &mut ingest).await;
    end(client, &reference, ingest, &result).await;
    result
}

async fn share(
    client: &Client,
    reference: &str,
    digest: Digest,
    size: u64,
    labels: &Labels,
    ingest: &mut Option<Ingest>,
) -> Result<Written, ContainerdError> {
    let total = size.try_into().unwrap_or(i64::MAX);
    let stat = WriteContentRequest {
        action: WriteAction::Stat.into(),
        r#ref: reference.to_owned(),
        total,
        expected: digest.to_string(),
        ..Default::default()
    };
    let (ingest, answer) = match Ingest::open(client, digest, stat).await {
        Ok((opened, answer)) => (ingest.insert(opened), answer),
        Err(error) if error.is_exists() => return Ok(Written::Known),
        Err(error) => return Err(error),
    };
    if answer.offset != total {
        return Err(ContainerdError::NotShared { digest, size });
    }
    let commit = WriteContentRequest {
        action: WriteAction::Commit.into(),
        r#ref: reference.to_owned(),
        total,
        // Without the offset containerd starts the ingest anew, empty.
        offset: total,
        expected: digest.to_string(),
        labels: labels.clone().into_iter().collect(),
        ..Default::default()
    };
    known_is_fine(ingest.send(commit, COMMIT).await.map(drop))
}

const WRITE: &str = "Content/Write";

/// One call of Content/Write: a message, an answer, and so on.
struct Ingest {
    object: String,
    messages: mpsc::Sender<WriteContentRequest>,
    answers: Streaming<WriteContentResponse>,
}

impl Ingest {
    /// Opens the call with its first message: containerd sends its header with the answer to it.
    async fn open(
        client: &Client,
        digest: Digest,
        first: WriteContentRequest,
    ) -> Result<(Self, WriteContentResponse), ContainerdError> {
        let object = digest.to_string();
        let (messages, receiver) = mpsc::channel(1);
        // The receiver is alive, and the channel has room for one.
        let _ = messages.try_send(first);
        let request = client.request(ReceiverStream::new(receiver));
        let answers = call(WRITE, &object, COMMIT, stub!(client, ContentClient<_>).write(request)).await?;
        let mut ingest = Self { object, messages, answers: answers.into_inner() };
        let answer = ingest.answer(COMMIT).await?;
        Ok((ingest, answer))
    }

    async fn send(
        &mut self,
        message: WriteContentRequest,
        limit: Duration,
    ) -> Result<WriteContentResponse, ContainerdError> {
        // When containerd has closed the call, the answer says why.
        let _ = self.messages.send(message).await;
        self.answer(limit).await
    }

    async fn answer(&mut self, limit: Duration) -> Result<WriteContentResponse, ContainerdError> {
        let Self { object, messages: _, answers } = self;
        match call(WRITE, object, limit, answers.message()).await? {
            Some(answer) => Ok(answer),
            None => Err(ContainerdError::Answer {
                method: WRITE,
                object: object.clone(),
                what: "the stream ended before the commit",
            }),
        }
    }
}

async fn chunk<R: AsyncRead + Unpin>(source: &mut R) -> std::io::Result<Vec<u8>> {
    let mut data = Vec::new();
    source.take(CHUNK as u64).read_to_end(&mut data).await?;
    Ok(data)
}

/// A commit that answers ALREADY_EXISTS has put the file in place: the metadata was there (core/metadata/content.go).
fn known_is_fine(committed: Result<(), ContainerdError>) -> Result<Written, ContainerdError> {
    match committed {
        Ok(()) => Ok(Written::Created),
        Err(error) if error.is_exists() => Ok(Written::Known),
        Err(error) => Err(error),
    }
}

/// Unique: two writes of one blob must not find each other's half.
fn ingest_reference(digest: Digest) -> String {
    format!("imgwarden-{}-{}", Uuid::now_v7().simple(), digest.to_hex())
}

/// Ends the call, and takes what it started away unless it was committed. Best effort: containerd expires ingests that
/// have no lease after a day.
async fn end(
    client: &Client,
    reference: &str,
    ingest: Option<Ingest>,
    result: &Result<Written, ContainerdError>,
) {
    if let Some(Ingest { object, messages, mut answers }) = ingest {
        // containerd writes into the ingest's directory when the call ends: an abort meanwhile leaves half of it.
        drop(messages);
        while let Ok(Some(_)) = call(WRITE, &object, CALL, answers.message()).await {}
    }
    if matches!(result, Ok(Written::Created)) {
        return;
    }
    let request = client.request(AbortRequest { r#ref: reference.to_owned() });
    match call("Content/Abort", reference, CALL, stub!(client, ContentClient<_>).abort(request)).await {
        Ok(_) => {}
        Err(error) if error.is_not_found() => {}
        Err(error) => tracing::debug!(%error, reference, "an ingest stays until containerd expires it"),
    }
}
