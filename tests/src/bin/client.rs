//! A client on one connection, over tonic: see `imgwarden_tests::client`.

use std::{env, error::Error, io, path::Path, process::ExitCode};

use containerd_client::{
    services::v1::{
        CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, images_client::ImagesClient,
    },
    with_namespace,
};
use k8s_cri::v1::{
    AuthConfig, ImageSpec, ImageStatusRequest, PullImageRequest, RemoveImageRequest,
    image_service_client::ImageServiceClient,
};
use tonic::{Request, Status, transport::Channel};

/// The namespace of the native calls.
const NAMESPACE: &str = "k8s.io";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    match serve().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("client: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn serve() -> Result<(), Box<dyn Error>> {
    let mut arguments = env::args().skip(1);
    let address = arguments.next().ok_or("usage: client SOCKET [--warm-up]")?;
    let channel = containerd_client::connect(Path::new(&address)).await?;
    let mut client =
        Client { cri: ImageServiceClient::new(channel.clone()), images: ImagesClient::new(channel) };
    if arguments.next().as_deref() == Some("--warm-up") {
        let absent = format!("sha256:{}", "0".repeat(64));
        client.remove(&absent).await?;
        client.status(&absent).await?;
    }
    println!("pid {}", std::process::id());
    for line in io::stdin().lines() {
        match client.answer(&line?).await {
            Ok(()) => println!("ok"),
            Err(status) => println!("err {:?}: {}", status.code(), status.message().replace('\n', " ")),
        }
    }
    Ok(())
}

struct Client {
    cri: ImageServiceClient<Channel>,
    images: ImagesClient<Channel>,
}

impl Client {
    async fn answer(&mut self, line: &str) -> Result<(), Status> {
        match *line.split(' ').collect::<Vec<_>>() {
            ["remove-cri", image] => self.remove(image).await,
            ["status", image] => self.status(image).await,
            ["pull", image, user, password] => self.pull(image, user, password).await,
            ["delete", name] => self.delete(name).await,
            ["delete-create", name] => self.delete_create(name).await,
            _ => Err(Status::invalid_argument(format!("no such command: {line}"))),
        }
    }

    async fn remove(&mut self, image: &str) -> Result<(), Status> {
        self.cri.remove_image(RemoveImageRequest { image: Some(spec(image)) }).await.map(drop)
    }

    async fn status(&mut self, image: &str) -> Result<(), Status> {
        let request = ImageStatusRequest { image: Some(spec(image)), verbose: false };
        self.cri.image_status(request).await.map(drop)
    }

    async fn pull(&mut self, image: &str, user: &str, password: &str) -> Result<(), Status> {
        let auth =
            AuthConfig { username: user.to_owned(), password: password.to_owned(), ..AuthConfig::default() };
        let request =
            PullImageRequest { image: Some(spec(image)), auth: Some(auth), ..PullImageRequest::default() };
        self.cri.pull_image(request).await.map(drop)
    }

    async fn delete(&mut self, name: &str) -> Result<(), Status> {
        let request = DeleteImageRequest { name: name.to_owned(), ..DeleteImageRequest::default() };
        self.images.delete(with_namespace!(request, NAMESPACE)).await.map(drop)
    }

    async fn delete_create(&mut self, name: &str) -> Result<(), Status> {
        let get = with_namespace!(GetImageRequest { name: name.to_owned() }, NAMESPACE);
        let found = self.images.get(get).await?.into_inner().image.unwrap_or_default();
        self.delete(name).await?;
        let image =
            Image { name: name.to_owned(), target: found.target, labels: found.labels, ..Image::default() };
        let create = CreateImageRequest { image: Some(image), ..CreateImageRequest::default() };
        self.images.create(with_namespace!(create, NAMESPACE)).await.map(drop)
    }
}

fn spec(image: &str) -> ImageSpec {
    ImageSpec { image: image.to_owned(), ..ImageSpec::default() }
}
