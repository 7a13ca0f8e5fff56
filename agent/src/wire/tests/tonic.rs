//! The HTTP/2 of Rust's clients (tonic, containerd-client): what it really writes, cut anew and attached to anywhere.

use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use k8s_cri::v1;
use prost::Message as _;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::{Client, message};
use crate::wire::{
    method::Known,
    request::{Call, Header, Method},
};

/// A client's end that writes down what it writes.
struct Tapped {
    stream: DuplexStream,
    writes: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(accepted)) = written {
            self.writes.lock().unwrap().push(bytes[..accepted].to_vec());
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

async fn serve(stream: DuplexStream) {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request.unwrap();
        tokio::spawn(async move {
            let mut body = request.into_body();
            while let Some(data) = body.data().await {
                let size = data.unwrap().len();
                body.flow_control().release_capacity(size).unwrap();
            }
            respond.send_response(http::Response::new(()), true).unwrap();
        });
    }
}

/// The writes of a client that removes image 0, 1, 2… and uploads content in between.
async fn writes() -> Vec<Vec<u8>> {
    let (near, far) = tokio::io::duplex(64 * 1024);
    tokio::spawn(serve(far));
    let writes = Arc::new(Mutex::new(Vec::new()));
    let tapped = Tapped { stream: near, writes: Arc::clone(&writes) };
    let (client, connection) = h2::client::handshake(tapped).await.unwrap();
    tokio::spawn(connection);
    for nth in 0..10 {
        let image = Some(v1::ImageSpec { image: format!("app:{nth}"), ..Default::default() });
        let removal = message(&v1::RemoveImageRequest { image }.encode_to_vec());
        let upload = message(&vec![0; 40_000]);
        for (path, body) in
            [(Known::RemoveImage.path(), removal), ("/containerd.services.content.v1.Content/Write", upload)]
        {
            let request = http::Request::post(format!("http://localhost{path}"))
                .header("te", "trailers")
                .header("content-type", "application/grpc")
                .header("containerd-namespace", "k8s.io")
                .header("user-agent", "tonic/0.14")
                .body(())
                .unwrap();
            let mut client = client.clone().ready().await.unwrap();
            let (response, mut stream) = client.send_request(request, false).unwrap();
            stream.send_data(body.into(), true).unwrap();
            response.await.unwrap();
        }
    }
    let writes = writes.lock().unwrap();
    writes.clone()
}

#[tokio::test]
async fn every_removal_after_the_attach_is_told_and_right() {
    let writes = writes().await;
    for first in 0..writes.len() {
        let mut client = Client::new();
        for write in &writes[first..] {
            client.write_parts(write, 1000, |_| true);
        }
        let told = client.told();
        // Its HTTP/2 does not index paths: each is known wherever the agent attaches.
        let begun = |write: &Vec<u8>| write.windows(6).filter(|bytes| bytes == b"\x0a\x05app:").count();
        let expected: usize = writes[first..].iter().map(begun).sum();
        assert!(told.len() == expected || told.len() + 1 == expected, "{first}: {told:?}");
        for (stream, method, namespace, call) in told {
            let path = Method::Path(Known::RemoveImage.path().into());
            let removal = Call::RemoveImage { image: format!("app:{}", stream / 4) };
            match method {
                Method::Lost => {}
                method => assert_eq!((method, call), (path, removal)),
            }
            let known = Header::Known("k8s.io".into());
            assert!(namespace == known || (first > 0 && namespace == Header::Unknown));
        }
    }
}

#[tokio::test]
async fn seen_whole_all_of_it_is_told() {
    let mut client = Client::new();
    for write in writes().await {
        client.write_parts(&write, 1000, |_| true);
    }
    let expected: Vec<_> = (0..10)
        .map(|nth| {
            let call = Call::RemoveImage { image: format!("app:{nth}") };
            (
                nth * 4 + 1,
                Method::Path(Known::RemoveImage.path().into()),
                Header::Known("k8s.io".into()),
                call,
            )
        })
        .collect();
    assert_eq!(client.told(), expected);
}
