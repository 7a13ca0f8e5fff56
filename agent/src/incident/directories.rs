//! Which snapshot directory belongs to which chain ID: learnt while the image is there, since nothing says it after.
//!
//! containerd names the directories by number, and tells the numbers only in the mount options of a View. One is made
//! for a moment, under a lease that ends by itself if the agent is killed meanwhile. In observe mode none is made, and a
//! directory that goes is told by its number.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinSet;

use super::cause::EXPIRES;
use crate::{
    containerd::{
        Client, ContainerdError, leases,
        snapshots::{self, Directory},
    },
    digest::Digest,
    hold::OWNER,
    inventory::image::{Content, Labels},
    probe::record::Boottime,
};

/// When an image is asked for after it appeared: unpacking may take a while.
const ATTEMPTS: [Duration; 3] = [Duration::from_millis(500), Duration::from_secs(5), Duration::from_secs(60)];
/// Chains that are remembered as known.
const MOST_KNOWN: usize = 65_536;
/// After this, containerd takes a View away that a killed agent left.
const EXPIRY: SignedDuration = SignedDuration::from_mins(10);
/// Views at a time.
const SIDE_BY_SIDE: usize = 2;

#[derive(Debug)]
struct Unknown {
    chain: Vec<Digest>,
    due: Boottime,
    attempt: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Directories {
    active: bool,
    ask: Option<(Client, String)>,
    known: HashSet<Digest>,
    /// By the top chain ID.
    unknown: HashMap<Digest, Unknown>,
    tasks: JoinSet<Vec<Directory>>,
}

impl Directories {
    pub(super) fn new(active: bool) -> Self {
        Self { active, ask: None, known: HashSet::new(), unknown: HashMap::new(), tasks: JoinSet::new() }
    }

    pub(super) fn connected(&mut self, client: &Client, snapshotter: &str) {
        self.ask = Some((client.clone(), snapshotter.to_owned()));
    }

    /// An image whose directories may not be known.
    pub(super) fn unknown(&mut self, content: &Content) {
        let Some(top) = content.chain.last() else { return };
        if self.active && content.chain.iter().any(|chain| !self.known.contains(chain)) {
            let due = Boottime(crate::probe::now().0 + ATTEMPTS[0].as_nanos() as u64);
            self.unknown.entry(*top).or_insert_with(|| Unknown {
                chain: content.chain.clone(),
                due,
                attempt: 0,
            });
        }
    }

    /// Asks for what is due.
    pub(super) fn learn(&mut self, now: Boottime) {
        let Some((client, snapshotter)) = &self.ask else { return };
        let due: Vec<Digest> = self
            .unknown
            .iter()
            .filter(|(_, unknown)| unknown.due <= now)
            .map(|(top, _)| *top)
            .take(SIDE_BY_SIDE.saturating_sub(self.tasks.len()))
            .collect();
        for top in due {
            let Some(unknown) = self.unknown.get_mut(&top) else { continue };
            let chain = unknown.chain.clone();
            unknown.attempt += 1;
            match ATTEMPTS.get(unknown.attempt) {
                Some(wait) => unknown.due = Boottime(now.0 + wait.as_nanos() as u64),
                None => drop(self.unknown.remove(&top)),
            }
            let (client, snapshotter) = (client.clone(), snapshotter.clone());
            self.tasks.spawn(async move {
                match look(&client, &snapshotter, &chain).await {
                    Ok(directories) => directories,
                    Err(error) => {
                        tracing::debug!(%error, "the directories of an image are not known");
                        Vec::new()
                    }
                }
            });
        }
    }

    /// What an asked-for image's directories are; waits for ever while nothing was asked.
    pub(super) async fn learnt(&mut self) -> Vec<Directory> {
        let Some(learnt) = self.tasks.join_next().await else { return std::future::pending().await };
        let directories = learnt.unwrap_or_default();
        if self.known.len() >= MOST_KNOWN {
            self.known.clear();
        }
        self.known.extend(directories.iter().map(|directory| directory.chain_id));
        let known = &self.known;
        self.unknown.retain(|_, unknown| unknown.chain.iter().any(|chain| !known.contains(chain)));
        directories
    }

    pub(super) fn deadline(&self) -> Option<Boottime> {
        if self.tasks.len() >= SIDE_BY_SIDE || self.ask.is_none() {
            return None;
        }
        self.unknown.values().map(|unknown| unknown.due).min()
    }
}

/// Makes a View, reads it, and takes it away again.
async fn look(
    client: &Client,
    snapshotter: &str,
    chain: &[Digest],
) -> Result<Vec<Directory>, ContainerdError> {
    let Some(top) = chain.last() else { return Ok(Vec::new()) };
    let lease = format!("imgwarden-look-{}", &top.to_hex()[..16]);
    let expiry = Timestamp::now().saturating_add(EXPIRY).unwrap_or(Timestamp::MAX);
    let labels = Labels::from([
        (OWNER.0.to_owned(), OWNER.1.to_owned()),
        (EXPIRES.to_owned(), format!("{expiry:.0}")),
    ]);
    leases::create(client, &lease, &labels).await?;
    let seen = match client.under_lease(&lease) {
        Ok(leased) => snapshots::guard(&leased, snapshotter, chain).await,
        Err(error) => Err(error),
    };
    let unguarded = snapshots::unguard(client, snapshotter, *top).await;
    leases::delete(client, &lease, false).await?;
    unguarded?;
    seen
}
