//! `imgwarden run`: the agent. Puts the stages together, waits for a signal, and ends them in order.

use std::{path::Path, sync::Arc};

use anyhow::Context as _;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::{mpsc, watch},
};
use tokio_util::sync::CancellationToken;

use super::{Exit, Global, NotPermitted};
use crate::{
    archive,
    audit::{
        self, Body, Draft, Journal,
        agent::{Hook, Recovered, Started, Stopped},
        journal::{self, Opened},
        sink,
        teller::{Teller, Voice},
    },
    config::{Backend, Config, Fsync, Mode, SinkKind, rules::Rules},
    containerd::Client,
    incident::{
        seen::Recogniser,
        stage::{Connection, Stage},
    },
    keeper::{self, Copies, Keeper, Known, Policy, Shelf},
    name,
    probe::{self, Probe, ProbeError, State, Watches},
    serve::{Control, http::Http},
};

mod answers;
mod lock;
mod seeing;

use answers::Agent;

/// Requests and removals between the kernel's records and the join.
const SEEN: usize = 16_384;
/// Orders between the join and the keeper.
const ORDERS: usize = 4096;

#[derive(Debug, Clone, clap::Args)]
#[command(
    long_about = "Watches containerd's deletions from the kernel, explains them, holds protected images and puts back \
                  what was lost. Events go to the journal and the sinks, diagnostics to stderr. Ends in order at \
                  SIGTERM and SIGINT."
)]
pub struct Args {
    /// How the kernel is asked [default: probe.backend of the config].
    #[arg(long, value_name = "BACKEND")]
    pub backend: Option<Backend>,
}

pub async fn run(args: Args, global: &Global) -> anyhow::Result<Exit> {
    let config = Config::load(global.config.as_deref())?;
    // Captured bytes pass through this process: they are not to end in a core file.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)
        .context("run: forbidding core files")?;
    let probe = load_probe(&config, args.backend)?;
    let lock = lock::take(&config.state_dir)?;
    let (journal, opened) = open_journal(&config)?;
    let (voice, teller) = Teller::new(journal);
    let agent = Assembly { config, opened, voice };
    let exit = agent.run(probe, teller).await;
    drop(lock);
    exit
}

fn load_probe(config: &Config, backend: Option<Backend>) -> anyhow::Result<Probe> {
    let backend = match backend.unwrap_or(config.probe.backend) {
        Backend::Auto => probe::Backend::Auto,
        Backend::Trampoline => probe::Backend::Trampoline,
        Backend::Tracepoint => probe::Backend::Tracepoint,
    };
    let options = probe::Options {
        backend,
        request_ring_bytes: config.probe.ring.bytes(),
        ..probe::Options::default()
    };
    let permitted = |error: ProbeError| match error.missing_capability() {
        Some(capability) => {
            NotPermitted { what: "watching the kernel".to_owned(), capability: capability.to_owned() }.into()
        }
        None => anyhow::Error::from(error).context("run: loading the probes"),
    };
    let mut probe = Probe::load(&options).map_err(permitted)?;
    probe.watch(&watches(config)).context("run: watching containerd's directories")?;
    Ok(probe)
}

/// Everything of containerd's that matters, by the names that its plugins give their directories.
fn watches(config: &Config) -> Watches {
    let root = &config.containerd.root;
    let snapshotters = std::fs::read_dir(root).into_iter().flatten().flatten();
    let mut snapshot_dirs: Vec<_> = snapshotters
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("io.containerd.snapshotter.v1."))
        .map(|entry| entry.path().join("snapshots"))
        .collect();
    let usual = root.join("io.containerd.snapshotter.v1.overlayfs/snapshots");
    if !snapshot_dirs.contains(&usual) {
        snapshot_dirs.push(usual);
    }
    Watches {
        content_dirs: vec![root.join("io.containerd.content.v1.content")],
        snapshot_dirs,
        sockets: vec![config.containerd.address.clone()],
    }
}

fn open_journal(config: &Config) -> anyhow::Result<(Journal, Opened)> {
    let node = config.node.clone();
    let options = journal::Options {
        max_size: config.journal.max_size.0,
        max_segment: config.journal.max_segment.0,
        fsync: match config.journal.fsync {
            Fsync::Always => journal::Fsync::Always,
            Fsync::Batch => journal::Fsync::Batch,
        },
        ..journal::Options::new(&config.journal.dir, &config.state_dir, node)
    };
    Journal::open(&options).context("run: opening the journal")
}

/// The agent, not yet running.
struct Assembly {
    config: Config,
    opened: Opened,
    voice: Voice,
}

impl Assembly {
    async fn run(self, probe: Probe, teller: Teller) -> anyhow::Result<Exit> {
        let Self { config, opened, voice } = self;
        let mut terminate = signal(SignalKind::terminate()).context("run: waiting for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("run: waiting for SIGINT")?;
        let client = Client::new(&config.containerd.address, &config.containerd.namespace)?;
        let report = probe.report().clone();
        let shelf = shelf(&config);
        let policy = Policy { rules: Arc::new(Rules::new(&config)), known: Known::default() };
        let options = keeper::Options {
            policy,
            backoff_max: config.repair.backoff_max.get(),
            copies: Copies { count: config.repair.copies.count, per: config.repair.copies.per },
        };
        if opened.clean == Some(false) {
            let what = vec!["the last run did not end in order: what it left is looked at".to_owned()];
            let recovered =
                Recovered { what, down_from: opened.last.as_ref().map(|last| last.time), down_to: None };
            voice.tell(Draft::now(Body::AgentRecovered(recovered))).await?;
        }

        let (orders, order_receiver) = mpsc::channel(ORDERS);
        let (seen, seen_receiver) = mpsc::channel(SEEN);
        let (recogniser, dropped) = Recogniser::new(seen);
        let (connection, connected) = watch::channel(Connection::default());
        let stage = Stage {
            client,
            root: config.containerd.root.clone(),
            observe: config.mode == Mode::Observe,
            shelf,
            own_image: std::env::var("IMGWARDEN_IMAGE").ok().filter(|image| !image.is_empty()),
            seen: seen_receiver,
            dropped,
            orders: orders.clone(),
            voice: voice.clone(),
            started: Some(Box::new(started(&config, &report, &opened))),
            connection,
        };
        let keeper = Keeper::new(options, voice.clone());
        let counts = keeper.counts();
        let written = teller.counts();

        let stop = Stops::default();
        let telling = tokio::spawn(teller.run(stop.telling.clone()));
        let sinks = start_sinks(&config, &opened, &stop.sinks)?;
        let keeping = tokio::spawn(keeper.run(order_receiver, stop.keeping.clone()));
        // Stays on this task: it is the one that must not wait for others.
        let mut explaining = std::pin::pin!(stage.run(stop.seeing.clone()));
        let seeing = seeing::start(probe, recogniser, stop.seeing.clone())?;
        let agent = Arc::new(Agent::new(&config, report, connected, counts, written, orders));
        let control = Control::bind(&config.control.socket).context("run: the control socket")?;
        let serving = tokio::spawn(control.run(Arc::clone(&agent), stop.seeing.clone()));
        let http = match config.http.listen {
            Some(address) => match Http::bind(address).await {
                Ok(http) => Some(tokio::spawn(http.run(agent, stop.seeing.clone()))),
                Err(error) => {
                    tracing::warn!(%error, "no metrics are served");
                    None
                }
            },
            None => None,
        };

        let mut seeing = seeing;
        let (mut explained, mut seen) = (false, false);
        let why = tokio::select! {
            _ = terminate.recv() => "SIGTERM".to_owned(),
            _ = interrupt.recv() => "SIGINT".to_owned(),
            () = &mut explaining => {
                explained = true;
                "the join ended".to_owned()
            }
            ended = &mut seeing => {
                seen = true;
                match ended {
                    Ok(Ok(())) => "the probe ended".to_owned(),
                    Ok(Err(error)) => format!("the probe failed: {error}"),
                    Err(error) => format!("the probe failed: {error}"),
                }
            }
        };
        stop.seeing.cancel();
        if !seen {
            // Its answer would say nothing that matters now; its end does.
            drop(seeing.await);
        }
        // What is being repaired is finished, then the last event is written.
        if !explained {
            explaining.await;
        }
        stop.keeping.cancel();
        let _kept = keeping.await;
        let _served = serving.await;
        if let Some(http) = http {
            let _served = http.await;
        }
        let failed = !matches!(why.as_str(), "SIGTERM" | "SIGINT");
        voice.tell(Draft::now(Body::AgentStopped(Stopped { why: why.clone() }))).await?;
        drop(voice);
        stop.telling.cancel();
        telling.await.context("run: the journal")??;
        stop.sinks.cancel();
        for sink in sinks {
            // A reader that does not read is not waited for.
            let _joined = tokio::task::spawn_blocking(move || sink.join()).await;
        }
        if failed {
            anyhow::bail!("run: {why}");
        }
        Ok(Exit::Fine)
    }
}

/// One token for each step of the shutdown.
#[derive(Default)]
struct Stops {
    seeing: CancellationToken,
    keeping: CancellationToken,
    telling: CancellationToken,
    sinks: CancellationToken,
}

fn shelf(config: &Config) -> Shelf {
    let options = archive::Options::default();
    Shelf::new(options, config.archives.dirs.clone(), config.archives.files.clone(), |text| {
        name::normalise(text).ok()
    })
}

fn started(config: &Config, report: &probe::Report, opened: &Opened) -> Started {
    let hooks = report.hooks.iter().map(|hook| Hook {
        name: hook.name.to_owned(),
        attached: hook.attached(),
        why: match &hook.state {
            State::Missing { why } => Some(why.clone()),
            State::Attached { .. } => None,
        },
    });
    let unseen = report.unseen.iter().map(|what| Hook {
        name: what.clone(),
        attached: false,
        why: Some(format!("the {} backend does not see it", report.backend)),
    });
    let down = |last: &audit::chain::Position| last.time;
    Started {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        backend: Some(report.backend.to_owned()),
        hooks: hooks.chain(unseen).collect(),
        containerd: None,
        mode: Some(match config.mode {
            Mode::Protect => "protect".to_owned(),
            Mode::Observe => "observe".to_owned(),
        }),
        holds: Some(vec![
            audit::repair::Hold::Pin,
            audit::repair::Hold::Lease,
            audit::repair::Hold::Shadow,
            audit::repair::Hold::Archive,
        ]),
        config: Some(config.hash()),
        clean: opened.clean,
        down_from: opened.last.as_ref().map(down),
        down_to: opened.last.as_ref().map(|_| jiff::Timestamp::now().into()),
    }
}

type Joined = std::thread::JoinHandle<std::io::Result<()>>;

fn start_sinks(config: &Config, opened: &Opened, stop: &CancellationToken) -> anyhow::Result<Vec<Joined>> {
    let mut sinks = Vec::new();
    for wanted in &config.sink {
        match wanted.kind {
            SinkKind::Stdout => {
                let (dir, state): (&Path, &Path) = (&config.journal.dir, &config.state_dir);
                let sink = sink::stdout(dir, state, opened.last, std::io::stdout(), stop.clone());
                sinks.push(sink.context("run: the stdout sink")?);
            }
            SinkKind::Otlp | SinkKind::Kubernetes => {
                tracing::warn!(sink = ?wanted.kind, "this version has no such sink: the journal has the events");
            }
        }
    }
    Ok(sinks)
}
