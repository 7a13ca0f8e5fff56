//! containerd's events, typed. They are hints: anyone with the socket can publish one, and none is replayed.

use std::{pin::pin, time::Duration};

use containerd_client::{
    events::{
        ContainerCreate, ContainerDelete, ContainerUpdate, ContentDelete, NamespaceCreate, NamespaceDelete,
        NamespaceUpdate, SnapshotRemove,
    },
    services::v1::{
        ImageCreate, ImageDelete, ImageUpdate, PublishRequest, SubscribeRequest, events_client::EventsClient,
    },
    types::Envelope,
};
use jiff::Timestamp;
use prost::Message;
use tonic::Streaming;

use super::{
    Client, ContainerdError,
    client::{CALL, call, stub},
};
use crate::{digest::Digest, inventory::image::Labels};

/// The topics that are asked for; a list is an OR.
const FILTERS: [&str; 6] = [
    r#"topic~="^/images/""#,
    r#"topic=="/content/delete""#,
    r#"topic=="/snapshot/remove""#,
    r#"topic~="^/containers/""#,
    r#"topic~="^/namespaces/""#,
    r#"topic=="/imgwarden/subscribed""#,
];

const HELLO: &str = "/imgwarden/subscribed";

/// Something that happened in a namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When containerd published it.
    pub at: Timestamp,
    pub namespace: String,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    ImageCreated {
        name: String,
        labels: Labels,
    },
    /// `labels` are those after the update.
    ImageUpdated {
        name: String,
        labels: Labels,
    },
    ImageDeleted {
        name: String,
    },
    /// An explicit Content/Delete; never for the GC.
    ContentDeleted {
        digest: Digest,
    },
    /// `snapshotter` is empty before containerd 1.7.
    SnapshotRemoved {
        snapshotter: String,
        key: String,
    },
    ContainerCreated {
        id: String,
        image: String,
    },
    ContainerUpdated {
        id: String,
        image: String,
    },
    ContainerDeleted {
        id: String,
    },
    NamespaceCreated {
        name: String,
    },
    NamespaceDeleted {
        name: String,
    },
}

/// A running subscription.
#[derive(Debug)]
pub struct Events {
    stream: Streaming<Envelope>,
    unreadable: u64,
}

/// Subscribes, and returns when the subscription is known to stand. Events of all namespaces come. Subscribe first, then
/// list: what happens between is then an event.
///
/// containerd answers a subscription with its first event only, so imgwarden publishes one until one comes.
pub async fn subscribe(client: &Client) -> Result<Events, ContainerdError> {
    const METHOD: &str = "Events/Subscribe";
    let filters = FILTERS.map(str::to_owned).to_vec();
    let mut stub = stub!(client, EventsClient<_>);
    let subscription = call(METHOD, "", CALL, stub.subscribe(client.request(SubscribeRequest { filters })));
    let mut subscription = pin!(subscription);
    let mut pause = tokio::time::interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            answer = &mut subscription => {
                return Ok(Events { stream: answer?.into_inner(), unreadable: 0 });
            }
            _ = pause.tick() => {
                // A payload that every client can decode, under a topic that none but imgwarden's knows.
                let event = containerd_client::to_any(&NamespaceUpdate { name: client.namespace().to_owned(), ..Default::default() });
                let message = PublishRequest { topic: HELLO.to_owned(), event: Some(event) };
                call("Events/Publish", HELLO, CALL, stub!(client, EventsClient<_>).publish(client.request(message)))
                    .await?;
            }
        }
    }
}

impl Events {
    /// The next event that is understood. `None`: the subscription is over. Waits as long as it takes; cancel-safe.
    pub async fn next(&mut self) -> Result<Option<Event>, ContainerdError> {
        loop {
            let envelope = match self.stream.message().await {
                Ok(Some(envelope)) => envelope,
                Ok(None) => return Ok(None),
                Err(status) => return Err(ContainerdError::from_status("Events/Subscribe", "", status)),
            };
            let hello = envelope.topic == HELLO;
            match decode(envelope) {
                _ if hello => {}
                Some(event) => return Ok(Some(event)),
                None => self.unreadable += 1,
            }
        }
    }

    /// How many events were not understood since the last time that this was asked.
    pub fn take_unreadable(&mut self) -> u64 {
        std::mem::take(&mut self.unreadable)
    }
}

/// By topic: 1.x and 2.x spell the payload's type URL differently.
fn decode(envelope: Envelope) -> Option<Event> {
    let Envelope { timestamp, namespace, topic, event } = envelope;
    let bytes = event?.value;
    let bytes = bytes.as_slice();
    let labels = |labels: std::collections::HashMap<String, String>| labels.into_iter().collect();
    let kind = match topic.as_str() {
        "/images/create" => {
            let event = ImageCreate::decode(bytes).ok()?;
            Kind::ImageCreated { name: event.name, labels: labels(event.labels) }
        }
        "/images/update" => {
            let event = ImageUpdate::decode(bytes).ok()?;
            Kind::ImageUpdated { name: event.name, labels: labels(event.labels) }
        }
        "/images/delete" => Kind::ImageDeleted { name: ImageDelete::decode(bytes).ok()?.name },
        "/content/delete" => {
            Kind::ContentDeleted { digest: ContentDelete::decode(bytes).ok()?.digest.parse().ok()? }
        }
        "/snapshot/remove" => {
            let event = SnapshotRemove::decode(bytes).ok()?;
            Kind::SnapshotRemoved { snapshotter: event.snapshotter, key: event.key }
        }
        "/containers/create" => {
            let event = ContainerCreate::decode(bytes).ok()?;
            Kind::ContainerCreated { id: event.id, image: event.image }
        }
        "/containers/update" => {
            let event = ContainerUpdate::decode(bytes).ok()?;
            Kind::ContainerUpdated { id: event.id, image: event.image }
        }
        "/containers/delete" => Kind::ContainerDeleted { id: ContainerDelete::decode(bytes).ok()?.id },
        "/namespaces/create" => Kind::NamespaceCreated { name: NamespaceCreate::decode(bytes).ok()?.name },
        "/namespaces/delete" => Kind::NamespaceDeleted { name: NamespaceDelete::decode(bytes).ok()?.name },
        _ => return None,
    };
    let at =
        timestamp.and_then(|at| Timestamp::new(at.seconds, at.nanos).ok()).unwrap_or_else(Timestamp::now);
    Some(Event { at, namespace, kind })
}
