//! CRI as the kubelet speaks it, over a connection of its own, blocking.

use std::{path::Path, time::Duration};

use k8s_cri::v1::{
    AuthConfig, Image, ImageSpec, ImageStatusRequest, ListImagesRequest, PullImageRequest,
    RemoveImageRequest, VersionRequest, image_service_client::ImageServiceClient,
    runtime_service_client::RuntimeServiceClient,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};
use tonic::{Status, transport::Channel};

use crate::process::poll;

/// How long one call may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// One connection to CRI.
#[derive(Debug)]
pub struct Cri {
    runtime: Runtime,
    images: ImageServiceClient<Channel>,
}

impl Cri {
    /// Connects and asks for the version; `None` while nobody answers.
    #[must_use]
    pub fn try_connect(address: &Path) -> Option<Self> {
        let runtime = runtime();
        let images = runtime.block_on(async {
            timeout(PATIENCE, async {
                let channel = containerd_client::connect(address).await.ok()?;
                let mut version = RuntimeServiceClient::new(channel.clone());
                version.version(VersionRequest { version: "v1".to_owned() }).await.ok()?;
                Some(ImageServiceClient::new(channel))
            })
            .await
            .ok()?
        })?;
        Some(Self { runtime, images })
    }

    /// The image that a name, an id or `name@digest` means, if it is there.
    pub fn image_status(&mut self, image: &str) -> Option<Image> {
        let Self { runtime, images } = self;
        let request = ImageStatusRequest { image: Some(spec(image)), verbose: false };
        runtime
            .block_on(async { timeout(PATIENCE, images.image_status(request)).await })
            .unwrap_or_else(|_| panic!("ImageStatus {image}: no answer in {PATIENCE:?}"))
            .unwrap_or_else(|status| panic!("ImageStatus {image}: {status}"))
            .into_inner()
            .image
    }

    /// Waits until CRI knows the image by this name.
    pub fn wait_for(&mut self, image: &str) -> Image {
        poll(PATIENCE, || self.image_status(image))
            .unwrap_or_else(|| panic!("CRI doesn't know {image} after {PATIENCE:?}"))
    }

    /// Removes an image, as the kubelet does (it passes the id).
    pub fn remove_image(&mut self, image: &str) {
        let Self { runtime, images } = self;
        let request = RemoveImageRequest { image: Some(spec(image)) };
        runtime
            .block_on(async { timeout(PATIENCE, images.remove_image(request)).await })
            .unwrap_or_else(|_| panic!("RemoveImage {image}: no answer in {PATIENCE:?}"))
            .unwrap_or_else(|status| panic!("RemoveImage {image}: {status}"));
    }

    /// Pulls an image with a password; there is no registry, so it fails after the password went over the socket.
    ///
    /// # Errors
    /// What containerd answers.
    pub fn pull_image(&mut self, image: &str, username: &str, password: &str) -> Result<String, Box<Status>> {
        let Self { runtime, images } = self;
        let auth = AuthConfig {
            username: username.to_owned(),
            password: password.to_owned(),
            ..AuthConfig::default()
        };
        let request =
            PullImageRequest { image: Some(spec(image)), auth: Some(auth), ..PullImageRequest::default() };
        runtime
            .block_on(async { timeout(PATIENCE, images.pull_image(request)).await })
            .unwrap_or_else(|_| panic!("PullImage {image}: no answer in {PATIENCE:?}"))
            .map(|response| response.into_inner().image_ref)
            .map_err(Box::new)
    }

    /// All images, as CRI lists them.
    pub fn list_images(&mut self) -> Vec<Image> {
        let Self { runtime, images } = self;
        runtime
            .block_on(async { timeout(PATIENCE, images.list_images(ListImagesRequest::default())).await })
            .unwrap_or_else(|_| panic!("ListImages: no answer in {PATIENCE:?}"))
            .unwrap_or_else(|status| panic!("ListImages: {status}"))
            .into_inner()
            .images
    }
}

/// The small runtime that a blocking client needs.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a tokio runtime starts")
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}
