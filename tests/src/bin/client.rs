//! A client on one connection, over tonic: see `imgwarden_tests::client`.

use std::{env, error::Error, io, path::Path, process::ExitCode};

use containerd_client::{
    services::v1::{
        AbortRequest, CreateImageRequest, DeleteImageRequest, GetImageRequest, Image, WriteAction,
        WriteContentRequest, content_client::ContentClient, images_client::ImagesClient,
    },
    with_namespace,
};
use k8s_cri::v1::{
    AuthConfig, ImageSpec, ImageStatusRequest, PullImageRequest, RemoveImageRequest,
    image_service_client::ImageServiceClient,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, transport::Channel};

/// The content that is written and thrown away.
const INGEST: &str = "client-bulk";
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
    let mut client = Client {
        cri: ImageServiceClient::new(channel.clone()),
        images: ImagesClient::new(channel.clone()),
        content: ContentClient::new(channel),
    };
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
    content: ContentClient<Channel>,
}

impl Client {
    async fn answer(&mut self, line: &str) -> Result<(), Status> {
        match *line.split(' ').collect::<Vec<_>>() {
            ["remove-cri", image] => self.remove(image).await,
            ["status", image] => self.status(image).await,
            ["pull", image, user, password] => self.pull(image, user, password).await,
            ["delete", name] => self.delete(name).await,
            ["delete-between", mebibytes, ref names @ ..] => self.delete_between(mebibytes, names).await,
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

    /// Writes that many MiB of content, deletes the names one after the other meanwhile, and throws the content away.
    async fn delete_between(&mut self, mebibytes: &str, names: &[&str]) -> Result<(), Status> {
        const PART: usize = 1 << 20;
        let parts: usize = mebibytes.parse().map_err(|_| Status::invalid_argument("not a number of MiB"))?;
        let every = parts / names.len().max(1);
        let (parts_in, stream) = mpsc::channel(4);
        let request = with_namespace!(ReceiverStream::new(stream), NAMESPACE);
        let mut writing = self.content.clone();
        let writer = tokio::spawn(async move {
            let mut answers = writing.write(request).await?.into_inner();
            while answers.message().await?.is_some() {}
            Ok::<(), Status>(())
        });
        let mut left = names.iter();
        for part in 0..parts {
            let message = WriteContentRequest {
                action: WriteAction::Write.into(),
                r#ref: INGEST.to_owned(),
                offset: i64::try_from(part * PART).unwrap_or(i64::MAX),
                data: vec![b'x'; PART],
                ..WriteContentRequest::default()
            };
            parts_in.send(message).await.map_err(|_| Status::aborted("containerd ended the write"))?;
            if part % every.max(1) == 0
                && let Some(name) = left.next()
            {
                self.delete(name).await?;
            }
        }
        for name in left {
            self.delete(name).await?;
        }
        drop(parts_in);
        // A write that ends without a commit leaves its ingest: that is what is wanted here.
        let _ended = writer.await;
        let abort = AbortRequest { r#ref: INGEST.to_owned() };
        self.content.abort(with_namespace!(abort, NAMESPACE)).await.map(drop)
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
