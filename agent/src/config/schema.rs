//! The config as a type: every key, its default, and what it means. The comments are the reference (docs/config.md).

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    hold_set::HoldSet,
    pattern::Pattern,
    source::Sources,
    value::{Floor, Percent, Rate, Ring, Size, Span, or_off},
};

/// Everything that can be configured. Every key is optional.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// `protect`, or `observe`: see, explain and tell, but change nothing on the node.
    pub mode: Mode,
    /// Releases, tombstones, catalog, cursors and key. Made with mode 0700; one agent at a time.
    pub state_dir: PathBuf,
    /// The node's name in events. Default: the environment's NODE_NAME, else the host name.
    pub node: String,
    /// Which containerd is guarded.
    pub containerd: Containerd,
    /// What is protected without a rule. These stand beside `[[protect]]`.
    pub defaults: Defaults,
    /// What else is protected, any number of times; of the rules that match a name, the one with the highest priority
    /// counts, and of equals the first. A rule
    /// needs `names` or `used`.
    pub protect: Vec<Protect>,
    /// Where image tarballs lie.
    pub archives: Archives,
    /// How protected images are held.
    pub holds: Holds,
    /// How lost images are brought back.
    pub repair: Repair,
    /// When holds are let go for space.
    pub disk: Disk,
    /// How the kernel is watched.
    pub probe: Probe,
    /// The event journal: `events.jsonl`, rotated to `events.N.jsonl`; what a log shipper tails.
    pub journal: Journal,
    /// How commands reach the running agent.
    pub control: Control,
    /// `/metrics`, `/livez` and `/readyz`.
    pub http: Http,
    /// What finds damage that no hook can see.
    pub scrub: Scrub,
    /// Where events go beside the journal, any number of times.
    pub sink: Vec<Sink>,
    /// Where each value comes from; what is not in it is the default.
    #[serde(skip)]
    pub sources: Sources,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Protect,
            state_dir: "/var/lib/imgwarden".into(),
            node: String::new(),
            containerd: Containerd::default(),
            defaults: Defaults::default(),
            protect: Vec::new(),
            archives: Archives::default(),
            holds: Holds::default(),
            repair: Repair::default(),
            disk: Disk::default(),
            probe: Probe::default(),
            journal: Journal::default(),
            control: Control::default(),
            http: Http::default(),
            scrub: Scrub::default(),
            sink: Vec::new(),
            sources: BTreeMap::new(),
        }
    }
}

/// Whether anything is changed on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    #[default]
    Protect,
    Observe,
}

/// How much an image matters. `critical`: no pod can start without it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Priority {
    #[default]
    Normal,
    High,
    Critical,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Containerd {
    /// containerd's socket. Default: found (k3s and RKE2, k0s, microk8s, plain containerd).
    pub address: PathBuf,
    /// The directory with `io.containerd.content.v1.content`. Default: found.
    pub root: PathBuf,
    /// containerd's state directory. Default: found.
    pub state: PathBuf,
    /// The namespace whose images are guarded.
    pub namespace: String,
}

impl Default for Containerd {
    fn default() -> Self {
        Self {
            address: PathBuf::new(),
            root: PathBuf::new(),
            state: PathBuf::new(),
            namespace: "k8s.io".into(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// Protect CRI's sandbox image, whatever its spelling, as critical.
    pub sandbox: bool,
    /// Protect imgwarden's own image, as critical.
    #[serde(rename = "self")]
    pub own: bool,
    /// Protect every image found in `[archives]`, as normal.
    pub archives: bool,
    /// Name patterns that win over everything.
    pub excluded: Vec<Pattern>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self { sandbox: true, own: true, archives: true, excluded: Vec::new() }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Protect {
    /// Name patterns: `*` within a path element, `**` across. `nginx:1.*` is `docker.io/library/nginx:1.*`. Default:
    /// every name, where `used` is set.
    pub names: Vec<Pattern>,
    /// Name patterns that this rule does not mean.
    pub except: Vec<Pattern>,
    /// `critical`, `high` or `normal`.
    pub priority: Priority,
    /// Which holds are taken, of `pin`, `lease`, `shadow`, `link` and `archive`. Default: all that work here.
    pub holds: HoldSet,
    /// `observe`: tell what would be done, for this rule alone.
    pub mode: Mode,
    /// Only images that a container ran here within this time, like `7d`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<Span>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Archives {
    /// Directories with tarballs. Default: the distribution's image directory.
    pub dirs: Vec<PathBuf>,
    /// Single tarballs.
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Holds {
    /// Where blobs are linked to, on the filesystem of containerd's root. Made with mode 0700. Default: `imgwarden`
    /// beside containerd's root.
    pub link_dir: PathBuf,
    /// How long a superseded image stays held.
    pub retire_after: Span,
}

impl Default for Holds {
    fn default() -> Self {
        Self { link_dir: PathBuf::new(), retire_after: Span::seconds(168 * 3600) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Repair {
    /// The longest wait between repairs of an image that keeps being deleted; the wait doubles, and is reset after ten
    /// quiet minutes.
    pub backoff_max: Span,
    /// How many repairs may read an archive, per image. Those that move no bytes are not limited.
    pub copies: Rate,
}

impl Default for Repair {
    fn default() -> Self {
        Self {
            backoff_max: Span::seconds(60),
            copies: Rate { count: 20, per: std::time::Duration::from_secs(3600) },
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Disk {
    /// Below this much free space holds are let go: `auto` (the kubelet's imagefs threshold and 3 points), a share
    /// like `8%`, or a size like `20GiB`.
    pub floor: Floor,
    /// Above the floor and this share, they are taken again.
    pub resume: Percent,
}

impl Default for Disk {
    fn default() -> Self {
        Self { floor: Floor::Auto, resume: Percent(500) }
    }
}

/// How the kernel is watched.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    #[default]
    Auto,
    Trampoline,
    Tracepoint,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probe {
    /// `auto`, `trampoline` or `tracepoint`.
    pub backend: Backend,
    /// The ring buffer for requests: a power of two from 64KiB to 1GiB. It costs twice its size in memory. Removals have 1 MiB of their own.
    pub ring: Ring,
}

impl Default for Probe {
    fn default() -> Self {
        Self { backend: Backend::Auto, ring: Ring::DEFAULT }
    }
}

/// When a written event is on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Fsync {
    Always,
    #[default]
    Batch,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Journal {
    /// Where `events.jsonl` is written.
    pub dir: PathBuf,
    /// How much all segments may take; the oldest go first.
    pub max_size: Size,
    /// When `events.jsonl` is rotated.
    pub max_segment: Size,
    /// `always`: after every event; `batch`: after every batch.
    pub fsync: Fsync,
}

impl Default for Journal {
    fn default() -> Self {
        Self {
            dir: "/var/log/imgwarden".into(),
            max_size: Size(256 << 20),
            max_segment: Size(10 << 20),
            fsync: Fsync::Batch,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Control {
    /// HTTP with JSON on a unix socket, mode 0600, for root and the agent's own user.
    pub socket: PathBuf,
}

impl Default for Control {
    fn default() -> Self {
        Self { socket: "/run/imgwarden/imgwarden.sock".into() }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Http {
    /// An address and a port; `""` turns it off.
    #[serde(with = "or_off")]
    #[schemars(with = "String")]
    pub listen: Option<SocketAddr>,
}

impl Default for Http {
    fn default() -> Self {
        Self { listen: Some((Ipv4Addr::LOCALHOST, 10753).into()) }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scrub {
    /// How often presence and size of everything held are checked.
    pub stat: Span,
    /// How often its bytes are hashed, slowly and never under pressure; `""` turns it off.
    #[serde(with = "or_off")]
    #[schemars(with = "String")]
    pub hash: Option<Span>,
}

impl Default for Scrub {
    fn default() -> Self {
        Self { stat: Span::seconds(60), hash: Some(Span::seconds(24 * 3600)) }
    }
}

/// A receiver of events.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sink {
    /// `stdout`, `otlp` or `kubernetes`.
    #[serde(rename = "type")]
    pub kind: SinkKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum SinkKind {
    Stdout,
    Otlp,
    Kubernetes,
}
