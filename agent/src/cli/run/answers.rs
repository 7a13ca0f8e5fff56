//! What the running agent answers to those who ask.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
};

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    audit::teller,
    config::{Config, Mode, rules::Rules},
    incident::stage::Connection,
    keeper::{self, Known, Order, Policy},
    probe,
    serve::{
        Answers, ContainerdStatus, Counts, HookStatus, ImageStatus, JournalStatus, Plan, ProbeStatus,
        Progress, Refusal, Restore, RestoreRefused, Restored, Status,
    },
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Agent {
    since: Timestamp,
    mode: Mode,
    node: String,
    address: PathBuf,
    namespace: String,
    journal: PathBuf,
    report: probe::Report,
    connection: watch::Receiver<Connection>,
    counts: Arc<keeper::Counts>,
    written: Arc<teller::Counts>,
    orders: mpsc::Sender<Order>,
}

impl Agent {
    pub(super) fn new(
        config: &Config,
        report: probe::Report,
        connection: watch::Receiver<Connection>,
        counts: Arc<keeper::Counts>,
        written: Arc<teller::Counts>,
        orders: mpsc::Sender<Order>,
    ) -> Self {
        Self {
            since: Timestamp::now(),
            mode: config.mode,
            node: config.node.clone(),
            address: config.containerd.address.clone(),
            namespace: config.containerd.namespace.clone(),
            journal: config.journal.dir.clone(),
            report,
            connection,
            counts,
            written,
            orders,
        }
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.orders.send(order(answer)).await.ok()?;
        answered.await.ok()
    }
}

impl Answers for Agent {
    async fn status(&self) -> Status {
        let Connection { connected, version } = self.connection.borrow().clone();
        let hooks = self.report.hooks.iter().map(|hook| HookStatus {
            name: hook.name.to_owned(),
            attached: hook.attached(),
            why: match &hook.state {
                probe::State::Missing { why } => Some(why.clone()),
                probe::State::Attached { .. } => None,
            },
        });
        let keeper::Counts { images, protected, held, incidents, restored } = &*self.counts;
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            since: self.since,
            mode: self.mode,
            node: self.node.clone(),
            containerd: ContainerdStatus {
                address: self.address.clone(),
                version,
                connected,
                namespace: self.namespace.clone(),
            },
            probe: ProbeStatus {
                backend: Some(self.report.backend.to_owned()),
                hooks: hooks.collect(),
                not_seen: self.report.unseen.clone(),
            },
            counts: Counts {
                images: images.load(Ordering::Relaxed),
                protected: protected.load(Ordering::Relaxed),
                held: held.load(Ordering::Relaxed),
                incidents: incidents.load(Ordering::Relaxed),
                restored: restored.load(Ordering::Relaxed),
                gaps: self.written.gaps.load(Ordering::Relaxed),
            },
            journal: JournalStatus {
                dir: self.journal.clone(),
                seq: self.written.seq.load(Ordering::Relaxed),
            },
            rss: resident(),
        }
    }

    async fn images(&self) -> Vec<ImageStatus> {
        self.ask(|answer| Order::Images { answer }).await.unwrap_or_default()
    }

    async fn plan(&self, config: Option<Config>) -> Plan {
        let policy =
            config.map(|config| Policy { rules: Arc::new(Rules::new(&config)), known: Known::default() });
        self.ask(|answer| Order::Plan { policy, answer }).await.unwrap_or_default()
    }

    async fn restore(
        &self,
        restore: Restore,
        _progress: mpsc::Sender<Progress>,
    ) -> Result<Restored, RestoreRefused> {
        let Restore { image, from } = restore;
        let answer = self.ask(|answer| Order::Restore { image, from, answer }).await;
        answer.unwrap_or_else(|| {
            Err(RestoreRefused { reason: Refusal::Stopping, why: "the agent is stopping".to_owned() })
        })
    }
}

/// Bytes of this process in memory.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kib * 1024)
}
