//! Ends what outlives a containerd: shims, their containers, their sockets, cgroups and runc's records.
//!
//! A shim is known by the address of the containerd that started it, which it carries in its arguments: the address
//! is in a test's private directory, so no other containerd's shim can match.

use std::{
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};

use crate::process::poll;

/// The parts of a bundle's path below the state directory: the shim runtime's own.
const TASKS: &str = "io.containerd.runtime.v2.task";

/// Ends every shim of the containerd at `address` and every container below `state`.
pub(super) fn end(address: &Path, state: &Path) {
    let bundles = bundles(state);
    let mut pids = shims(address);
    pids.extend(bundles.iter().filter_map(|bundle| init_pid(bundle)));
    for pid in &pids {
        if let Some(pid) = Pid::from_raw(*pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let gone = poll(Duration::from_secs(10), || {
        pids.iter().all(|pid| !Path::new("/proc").join(pid.to_string()).join("exe").exists()).then_some(())
    });
    if gone.is_none() {
        eprintln!("still there after SIGKILL: {pids:?}");
    }
    for bundle in &bundles {
        remove_shim_socket(bundle);
        remove_cgroups(bundle);
        remove_runc_state(bundle);
    }
}

/// The shims of the containerd at `address`.
#[must_use]
pub(super) fn shims(address: &Path) -> Vec<i32> {
    processes()
        .filter(|pid| {
            let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let mut arguments = arguments.split(|byte| *byte == 0);
            arguments.next().is_some_and(|program| {
                let shim: &[u8] = b"containerd-shim";
                program.windows(shim.len()).any(|window| window == shim)
            }) && arguments.any(|argument| argument == address.as_os_str().as_bytes())
        })
        .collect()
}

/// Every process of this machine that this one can see.
fn processes() -> impl Iterator<Item = i32> {
    fs::read_dir("/proc")
        .expect("/proc is mounted")
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse().ok()))
}

/// The bundle directories of all namespaces.
fn bundles(state: &Path) -> Vec<PathBuf> {
    let below = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path());
    below(state.join(TASKS)).flat_map(below).collect()
}

/// The container's first process, unless it is gone already.
fn init_pid(bundle: &Path) -> Option<i32> {
    let pid = fs::read_to_string(bundle.join("init.pid")).ok()?.trim().parse().ok()?;
    // A pid that was reused is another's: the container's root must be this bundle's.
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).ok()?;
    let snapshots = bundle.file_name()?.to_str()?;
    let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    (cgroup.contains(snapshots) || mounts.contains(snapshots)).then_some(pid)
}

/// The socket lies outside the state directory, in one that all containerds share.
fn remove_shim_socket(bundle: &Path) {
    if let Ok(address) = fs::read_to_string(bundle.join("address"))
        && let Some(path) = address.trim().strip_prefix("unix://")
    {
        let _ = fs::remove_file(path);
    }
}

/// A cgroup of a container that was killed stays until somebody removes it.
fn remove_cgroups(bundle: &Path) {
    let Ok(config) = fs::read(bundle.join("config.json")) else { return };
    let Ok(config) = serde_json::from_slice::<serde_json::Value>(&config) else { return };
    let Some(path) = config["linux"]["cgroupsPath"].as_str().map(|path| path.trim_start_matches('/')) else {
        return;
    };
    if path.is_empty() || path.contains("..") {
        return;
    }
    let root = Path::new("/sys/fs/cgroup");
    let _ = fs::remove_dir(root.join(path));
    for controller in fs::read_dir(root).into_iter().flatten().flatten() {
        let _ = fs::remove_dir(controller.path().join(path));
    }
}

/// runc keeps its record of a container in a directory that all containerds share, by namespace and id; while it is
/// there no other container of that id starts.
fn remove_runc_state(bundle: &Path) {
    let (Some(id), Some(namespace)) = (bundle.file_name(), bundle.parent().and_then(Path::file_name)) else {
        return;
    };
    let record = Path::new("/run/containerd/runc").join(namespace).join(id);
    let state = fs::read(record.join("state.json")).unwrap_or_default();
    // The same id may be another containerd's container.
    let ours = bundle.as_os_str().as_bytes();
    if state.windows(ours.len()).any(|window| window == ours) {
        let _ = fs::remove_dir_all(&record);
    }
}
