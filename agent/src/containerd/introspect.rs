//! What this containerd is: version, identity, where its plugins keep their files.

use std::path::PathBuf;

use containerd_client::services::v1::{
    PluginsRequest, introspection_client::IntrospectionClient, version_client::VersionClient,
};

use super::{
    Client, ContainerdError,
    client::{CALL, call, stub},
};

/// A plugin that is loaded, or why it isn't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plugin {
    /// `io.containerd.content.v1` and the like.
    pub kind: String,
    pub id: String,
    /// The directory it keeps its files in, where it says so.
    pub root: Option<PathBuf>,
    /// Why it did not load.
    pub error: Option<String>,
}

/// `1.7.24`, as the server gives it (distributions add their own suffixes).
pub async fn version(client: &Client) -> Result<String, ContainerdError> {
    let answer =
        call("Version/Version", "", CALL, stub!(client, VersionClient<_>).version(client.request(())))
            .await?;
    Ok(answer.into_inner().version)
}

/// The id that containerd keeps in its root: another root, another id.
pub async fn server_id(client: &Client) -> Result<String, ContainerdError> {
    let answer = call(
        "Introspection/Server",
        "",
        CALL,
        stub!(client, IntrospectionClient<_>).server(client.request(())),
    )
    .await?;
    Ok(answer.into_inner().uuid)
}

pub async fn plugins(client: &Client) -> Result<Vec<Plugin>, ContainerdError> {
    let request = client.request(PluginsRequest { filters: Vec::new() });
    let answer =
        call("Introspection/Plugins", "", CALL, stub!(client, IntrospectionClient<_>).plugins(request))
            .await?;
    Ok(answer
        .into_inner()
        .plugins
        .into_iter()
        .map(|mut plugin| Plugin {
            root: plugin.exports.remove("root").map(PathBuf::from),
            error: plugin.init_err.map(|status| status.message),
            kind: plugin.r#type,
            id: plugin.id,
        })
        .collect())
}
