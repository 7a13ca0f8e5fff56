//! CRI: what the kubelet is told about images. Reading only; imgwarden changes nothing through CRI.
//!
//! v1 is asked, and v1alpha2 where only that is served (containerd < 1.6). Both are the same bytes for what is read here,
//! so the v1 types serve for both.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use http::uri::PathAndQuery;
use k8s_cri::v1::{
    ImageSpec, ImageStatusRequest, ImageStatusResponse, ListContainersRequest, ListContainersResponse,
    StatusRequest, StatusResponse, VersionRequest, VersionResponse,
};
use serde::Deserialize;
use tonic_prost::ProstCodec;

use super::{
    Client, ContainerdError,
    client::{ANSWER, CALL, call},
};

/// CRI on a client's connection.
#[derive(Debug, Clone)]
pub struct Cri {
    client: Client,
    /// Whether v1 was found not to be served.
    alpha: Arc<AtomicBool>,
}

/// What CRI says of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageStatus {
    /// `sha256:<config>`.
    pub id: String,
    pub tags: Vec<String>,
    pub digests: Vec<String>,
    /// The size that the kubelet counts, in bytes.
    pub size: u64,
    pub pinned: bool,
}

/// What CRI says of itself. Absent what its config doesn't name.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    pub sandbox_image: Option<String>,
    pub snapshotter: Option<String>,
    pub root: Option<PathBuf>,
    pub state: Option<PathBuf>,
    /// Whether layers' blobs are thrown away once they are unpacked.
    pub discards_layers: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    pub runtime: String,
    pub version: String,
    /// `v1` or `v1alpha2`.
    pub api: String,
}

/// A container, or a sandbox's absence of one: what uses which image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: String,
    /// As the pod spells it.
    pub image: String,
    /// What it resolved to: an image ID, or a name with a digest.
    pub image_ref: String,
    pub running: bool,
    /// Nanoseconds since 1970.
    pub created_at: i64,
}

impl Cri {
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), alpha: Arc::default() }
    }

    /// `None`: CRI doesn't know the image. A reference is a name in any spelling or an image ID.
    pub async fn image_status(&self, reference: &str) -> Result<Option<ImageStatus>, ContainerdError> {
        let image = ImageSpec { image: reference.to_owned(), ..Default::default() };
        let request = ImageStatusRequest { image: Some(image), verbose: false };
        let answer: ImageStatusResponse = self.ask("ImageService", "ImageStatus", reference, request).await?;
        Ok(answer.image.map(|image| ImageStatus {
            id: image.id,
            tags: image.repo_tags,
            digests: image.repo_digests,
            size: image.size,
            pinned: image.pinned,
        }))
    }

    pub async fn status(&self) -> Result<Status, ContainerdError> {
        let answer: StatusResponse =
            self.ask("RuntimeService", "Status", "", StatusRequest { verbose: true }).await?;
        Ok(answer.info.get("config").map(|text| Status::from_config(text)).unwrap_or_default())
    }

    pub async fn version(&self) -> Result<Version, ContainerdError> {
        let answer: VersionResponse =
            self.ask("RuntimeService", "Version", "", VersionRequest::default()).await?;
        Ok(Version {
            runtime: answer.runtime_name,
            version: answer.runtime_version,
            api: answer.runtime_api_version,
        })
    }

    /// Every container, stopped ones included: the kubelet can start those again.
    pub async fn containers(&self) -> Result<Vec<Container>, ContainerdError> {
        let answer: ListContainersResponse =
            self.ask("RuntimeService", "ListContainers", "", ListContainersRequest::default()).await?;
        Ok(answer
            .containers
            .into_iter()
            .map(|container| Container {
                id: container.id,
                image: container.image.unwrap_or_default().image,
                image_ref: container.image_ref,
                running: container.state == RUNNING,
                created_at: container.created_at,
            })
            .collect())
    }

    async fn ask<Q, A>(
        &self,
        service: &'static str,
        method: &'static str,
        object: &str,
        request: Q,
    ) -> Result<A, ContainerdError>
    where
        Q: prost::Message + Clone + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        if !self.alpha.load(Ordering::Relaxed) {
            match self.unary("v1", service, method, object, request.clone()).await {
                Err(ContainerdError::Unimplemented { .. }) => {}
                answered => return answered,
            }
        }
        let answer = self.unary("v1alpha2", service, method, object, request).await?;
        self.alpha.store(true, Ordering::Relaxed);
        Ok(answer)
    }

    async fn unary<Q, A>(
        &self,
        version: &str,
        service: &str,
        method: &'static str,
        object: &str,
        request: Q,
    ) -> Result<A, ContainerdError>
    where
        Q: prost::Message + Send + Sync + 'static,
        A: prost::Message + Default + Send + Sync + 'static,
    {
        let path = format!("/runtime.{version}.{service}/{method}");
        let Ok(path) = PathAndQuery::try_from(path) else {
            return Err(ContainerdError::Unimplemented { method });
        };
        let mut stub = tonic::client::Grpc::new(self.client.channel()).max_decoding_message_size(ANSWER);
        let answer = async {
            stub.ready().await.map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            stub.unary(self.client.request(request), path, ProstCodec::<Q, A>::default()).await
        };
        Ok(call(method, object, CALL, answer).await?.into_inner())
    }
}

impl Status {
    /// `config` of a verbose Status: the CRI plugin's config as JSON (internal/cri/server/status.go). 2.x nests the
    /// snapshotter less and has no sandbox image in it.
    fn from_config(text: &str) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Config {
            containerd: Containerd,
            sandbox_image: String,
            snapshotter: String,
            containerd_root_dir: String,
            state_dir: String,
        }
        #[derive(Deserialize, Default)]
        #[serde(default, rename_all = "camelCase")]
        struct Containerd {
            snapshotter: String,
            discard_unpacked_layers: bool,
        }
        let Config { containerd, sandbox_image, snapshotter, containerd_root_dir, state_dir } =
            serde_json::from_str(text).unwrap_or_default();
        let some = |text: String| Some(text).filter(|text| !text.is_empty());
        Self {
            sandbox_image: some(sandbox_image),
            snapshotter: some(containerd.snapshotter).or(some(snapshotter)),
            root: some(containerd_root_dir).map(PathBuf::from),
            state: some(state_dir).map(PathBuf::from),
            discards_layers: containerd.discard_unpacked_layers,
        }
    }
}

const RUNNING: i32 = k8s_cri::v1::ContainerState::ContainerRunning as i32;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_config_of_1_7_names_the_sandbox_image_and_the_snapshotter() {
        let text = r#"{"containerd":{"snapshotter":"overlayfs","discardUnpackedLayers":true,"runtimes":{}},
            "sandboxImage":"registry.k8s.io/pause:3.8","containerdRootDir":"/var/lib/containerd"}"#;
        assert_eq!(
            Status::from_config(text),
            Status {
                sandbox_image: Some("registry.k8s.io/pause:3.8".into()),
                snapshotter: Some("overlayfs".into()),
                root: Some("/var/lib/containerd".into()),
                state: None,
                discards_layers: true,
            }
        );
    }

    proptest! {
        #[test]
        fn any_config_is_read_or_ignored(text in ".{0,200}") {
            Status::from_config(&text);
        }
    }
}
