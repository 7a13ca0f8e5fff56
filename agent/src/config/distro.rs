//! Which containerd this node has: a running one's arguments, else the sockets and directories that distributions use.
//!
//! Reads `/proc` and the file system; changes nothing. Values that a file names are left alone.

use std::{
    fs,
    os::unix::{ffi::OsStrExt as _, fs::FileTypeExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{Config, Source};

/// Where a distribution has its containerd, unless its data directory was moved.
struct Known {
    name: &'static str,
    address: &'static str,
    root: &'static str,
    state: &'static str,
    images: Images,
}

/// Where a distribution takes image tarballs from.
#[derive(Clone, Copy)]
enum Images {
    None,
    /// `images` beside containerd's root, wherever that is.
    BesideRoot,
    At(&'static str),
}

/// In order of preference: a node that has k3s' socket has its pods there, whatever else is installed.
const KNOWN: [Known; 5] = [
    Known {
        name: "k3s",
        address: "/run/k3s/containerd/containerd.sock",
        root: "/var/lib/rancher/k3s/agent/containerd",
        state: "/run/k3s/containerd",
        images: Images::BesideRoot,
    },
    Known {
        name: "RKE2",
        address: "/run/k3s/containerd/containerd.sock",
        root: "/var/lib/rancher/rke2/agent/containerd",
        state: "/run/k3s/containerd",
        images: Images::BesideRoot,
    },
    Known {
        name: "k0s",
        address: "/run/k0s/containerd.sock",
        root: "/var/lib/k0s/containerd",
        state: "/run/k0s/containerd",
        images: Images::BesideRoot,
    },
    Known {
        name: "microk8s",
        address: "/var/snap/microk8s/common/run/containerd.sock",
        root: "/var/snap/microk8s/common/var/lib/containerd",
        state: "/var/snap/microk8s/common/run/containerd",
        images: Images::At("/var/snap/microk8s/common/etc/sideload"),
    },
    Known {
        name: "containerd",
        address: "/run/containerd/containerd.sock",
        root: "/var/lib/containerd",
        state: "/run/containerd",
        images: Images::None,
    },
];

/// The containerd of this node, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// `k3s`, `RKE2`, `k0s`, `microk8s` or `containerd`.
    pub distribution: &'static str,
    pub address: PathBuf,
    pub root: PathBuf,
    pub state: PathBuf,
    /// Where the distribution takes image tarballs from.
    pub images: Vec<PathBuf>,
    /// What it was found by.
    pub by: String,
}

/// `path` as seen from here, of a node whose root directory is `root`.
pub(super) fn under(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The containerd that a node's pods run on. With `address`, the one that listens there.
pub fn find(root: &Path, address: Option<&Path>) -> Option<Found> {
    let rank = |found: &Found| KNOWN.iter().position(|known| found.address == Path::new(known.address));
    let mut running = running(root);
    if address.is_none() {
        // One at another address is somebody's own, like dockerd's: it is guarded only where it is named.
        running.retain(|found| rank(found).is_some());
    }
    running.sort_by_key(rank);
    let installed = KNOWN.iter().filter_map(|known| installed(known, root));
    // With both the socket and the root before those with one of them: RKE2 shares k3s' socket.
    let (whole, partly): (Vec<_>, Vec<_>) = installed.partition(|(whole, _)| *whole);
    let on_disk = whole.into_iter().chain(partly).map(|(_, found)| found);
    let mut all = running.into_iter().chain(on_disk);
    all.find(|found| address.is_none_or(|address| found.address == address))
}

/// A distribution of which the socket or the root is there; whether both are.
fn installed(known: &Known, node: &Path) -> Option<(bool, Found)> {
    let socket = fs::metadata(under(node, Path::new(known.address))).is_ok_and(|m| m.file_type().is_socket());
    let root = under(node, Path::new(known.root)).is_dir();
    let by = match (socket, root) {
        (true, _) => known.address,
        (false, true) => known.root,
        (false, false) => return None,
    };
    let found = Found {
        distribution: known.name,
        address: known.address.into(),
        root: known.root.into(),
        state: known.state.into(),
        images: images(known.images, Path::new(known.root)),
        by: format!("{by} is there"),
    };
    Some((socket && root, found))
}

fn images(images: Images, root: &Path) -> Vec<PathBuf> {
    match images {
        Images::None => Vec::new(),
        Images::BesideRoot => root.parent().map(|parent| parent.join("images")).into_iter().collect(),
        Images::At(path) => vec![path.into()],
    }
}

/// The containerds that run, by what they were started with. One in a container (kind) means other paths by the same
/// names and is left out.
fn running(node: &Path) -> Vec<Found> {
    let identity = |path: &Path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino())).ok();
    let here = identity(node);
    let Ok(entries) = fs::read_dir(node.join("proc")) else { return Vec::new() };
    let is_pid = |entry: &fs::DirEntry| entry.file_name().as_bytes().iter().all(u8::is_ascii_digit);
    entries
        .flatten()
        .filter(is_pid)
        .filter_map(|entry| {
            let bytes = fs::read(entry.path().join("cmdline")).ok()?;
            let words = bytes.split(|byte| *byte == 0).map(|word| String::from_utf8(word.to_vec()));
            let argv = words.collect::<Result<Vec<_>, _>>().ok()?;
            if identity(&entry.path().join("root")) != here {
                return None;
            }
            let by = format!("arguments of process {}", entry.file_name().to_string_lossy());
            from_argv(&argv, node, by)
        })
        .collect()
}

/// What a containerd with these arguments uses. Absent when it is no containerd that says where its root is, by its
/// arguments or by its config file.
fn from_argv(argv: &[String], node: &Path, by: String) -> Option<Found> {
    let (program, flags) = argv.split_first()?;
    if Path::new(program).file_name()? != "containerd" {
        return None;
    }
    let flag = |names: &[&str]| {
        flags.iter().enumerate().find_map(|(index, word)| {
            let value = match word.split_once('=') {
                Some((name, value)) if names.contains(&name) => value,
                None if names.contains(&word.as_str()) => flags.get(index + 1)?,
                _ => return None,
            };
            Some(PathBuf::from(value))
        })
    };
    let config = flag(&["--config", "-c"]).unwrap_or_else(|| "/etc/containerd/config.toml".into());
    let written = containerd_config(&under(node, &config));
    let plain = &KNOWN[KNOWN.len() - 1];
    let address = flag(&["--address", "-a"]).or(written.address).unwrap_or_else(|| plain.address.into());
    let root = flag(&["--root"]).or(written.root).unwrap_or_else(|| plain.root.into());
    let state = flag(&["--state"]).or(written.state).unwrap_or_else(|| plain.state.into());
    // By the root first: k3s and RKE2 have one address. A moved root is k3s', which more nodes have.
    let known = KNOWN
        .iter()
        .find(|known| root == Path::new(known.root))
        .or_else(|| KNOWN.iter().find(|known| address == Path::new(known.address)))
        .unwrap_or(plain);
    Some(Found { distribution: known.name, images: images(known.images, &root), address, root, state, by })
}

/// What a containerd config says of these three.
#[derive(Default)]
struct Paths {
    address: Option<PathBuf>,
    root: Option<PathBuf>,
    state: Option<PathBuf>,
}

/// An unreadable or malformed config is containerd's to complain about: it says nothing here.
fn containerd_config(path: &Path) -> Paths {
    let table = fs::read_to_string(path).ok().and_then(|text| toml::from_str::<toml::Table>(&text).ok());
    let Some(table) = table else { return Paths::default() };
    let path = |value: Option<&toml::Value>| {
        value.and_then(toml::Value::as_str).filter(|text| !text.is_empty()).map(PathBuf::from)
    };
    Paths {
        address: path(table.get("grpc").and_then(|grpc| grpc.get("address"))),
        root: path(table.get("root")),
        state: path(table.get("state")),
    }
}

/// Fills in what no file names: the node's name, containerd's paths, the image directories, the link directory.
pub(super) fn complete(config: &mut Config, node: &Path) {
    let said = |config: &Config, key: &str| config.sources.contains_key(key);
    let explicit = Some(config.containerd.address.clone()).filter(|path| !path.as_os_str().is_empty());
    let found = find(node, explicit.as_deref());
    let mut note = Vec::new();

    if let Some(Found { distribution, address, root, state, images, by }) = found {
        let source = Source::Found(format!("{distribution}, {by}"));
        let containerd = &mut config.containerd;
        for (key, value, found) in [
            ("containerd.address", &mut containerd.address, address),
            ("containerd.root", &mut containerd.root, root),
            ("containerd.state", &mut containerd.state, state),
        ] {
            if value.as_os_str().is_empty() {
                *value = found;
                note.push((key, source.clone()));
            }
        }
        if !said(config, "archives.dirs") {
            config.archives.dirs = images;
            note.push(("archives.dirs", source));
        }
    } else if explicit.is_none() {
        // Nothing is installed yet: plain containerd is waited for.
        let plain = &KNOWN[KNOWN.len() - 1];
        let containerd = &mut config.containerd;
        containerd.address = plain.address.into();
        for (value, path) in [(&mut containerd.root, plain.root), (&mut containerd.state, plain.state)] {
            if value.as_os_str().is_empty() {
                *value = path.into();
            }
        }
    }
    if config.holds.link_dir.as_os_str().is_empty() && !config.containerd.root.as_os_str().is_empty() {
        let (dir, by) = link_dir(&config.containerd.root, &config.state_dir, node);
        config.holds.link_dir = dir;
        note.push(("holds.link_dir", Source::Found(by.to_owned())));
    }
    if config.node.is_empty() {
        let (name, by) = node_name();
        config.node = name;
        note.push(("node", Source::Found(by.to_owned())));
    }
    config.sources.extend(note.into_iter().map(|(key, source)| (key.to_owned(), source)));
}

/// Hard links need the filesystem of containerd's root: beside it, or in it where it is a mount of its own.
fn link_dir(root: &Path, state_dir: &Path, node: &Path) -> (PathBuf, &'static str) {
    let device = |path: &Path| fs::metadata(under(node, path)).map(|metadata| metadata.dev()).ok();
    let parent = root.parent().unwrap_or(root);
    if device(root).is_some() && device(root) != device(parent) {
        return (root.join("imgwarden"), "in containerd's root, which is a mount");
    }
    let beside = parent.join("imgwarden");
    if beside == state_dir {
        return (state_dir.join("links"), "in state_dir, which is beside containerd's root");
    }
    (beside, "beside containerd's root")
}

fn node_name() -> (String, &'static str) {
    match std::env::var("NODE_NAME") {
        Ok(name) if !name.is_empty() => (name, "NODE_NAME"),
        _ => (rustix::system::uname().nodename().to_string_lossy().into_owned(), "host name"),
    }
}
