//! From the kernel's stamp to a [`Process`]: what ran is looked up in the map that was filled at exec.
//!
//! Processes older than the agent are read from /proc when it starts. What neither knows is asked of /proc while the
//! process lives, and only believed when its start time is the stamp's. Nothing is guessed from argv.

use std::{
    collections::{HashMap, VecDeque},
    fs,
    os::unix::fs::MetadataExt,
    path::Path,
    sync::Arc,
};

use aya::maps::MapData;
use imgwarden_ebpf::{Exec, FileKey, Kin, Stamp, read};
use zeroize::{Zeroize as _, Zeroizing};

use super::{
    record::{Ancestor, Process, ProcessKey, Program},
    ring::{key_bytes, process_key, text, until_zero},
};
use crate::audit::redact;

/// Processes that are kept ready: clients of one node are few, and a new one costs five look-ups.
const KEPT: usize = 512;
/// Of /proc/PID/cmdline, as of the exec map.
const ARGV_LIMIT: usize = imgwarden_ebpf::ARGV;

type Execs = aya::maps::HashMap<MapData, [u8; 16], [u8; size_of::<Exec>()]>;

/// Knows processes by stamp.
#[derive(Debug)]
pub(super) struct Processes {
    execs: Execs,
    /// Programs of processes that ran before the agent.
    older: HashMap<ProcessKey, Program>,
    kept: HashMap<ProcessKey, (Image, Arc<Process>)>,
    /// Keys of `kept`, oldest first.
    order: VecDeque<ProcessKey>,
    /// The host's mount namespace.
    host: Option<u32>,
}

/// What must be the same for a kept process to be the stamp's.
#[derive(Debug, PartialEq, Eq)]
struct Image {
    exec: u32,
    file: FileKey,
    uid: u32,
    comm: [u8; 16],
    parent: ProcessKey,
}

impl Image {
    fn of(stamp: &Stamp) -> Self {
        let mut comm = [0; 16];
        let name = until_zero(&stamp.process.comm);
        comm[..name.len()].copy_from_slice(name);
        Self {
            exec: stamp.process.key.image,
            file: stamp.exe,
            uid: stamp.uid,
            comm,
            parent: process_key(&stamp.parents[0]),
        }
    }
}

impl Processes {
    /// To be called after the exec hook is attached: what starts in between is then in one of the two.
    pub(super) fn new(execs: Execs) -> Self {
        let host = fs::metadata("/proc/1/ns/mnt").ok().and_then(|found| u32::try_from(found.ino()).ok());
        Self { execs, older: running(), kept: HashMap::new(), order: VecDeque::new(), host }
    }

    /// The process that a later part of a write belongs to; its first part was seen before.
    pub(super) fn known(&self, key: ProcessKey) -> Option<Arc<Process>> {
        self.kept.get(&key).map(|(_, process)| Arc::clone(process))
    }

    pub(super) fn of(&mut self, stamp: &Stamp) -> Arc<Process> {
        let key = process_key(&stamp.process);
        let image = Image::of(stamp);
        if let Some((kept, process)) = self.kept.get(&key)
            && *kept == image
        {
            return Arc::clone(process);
        }
        let process = Arc::new(self.read(stamp));
        if self.kept.insert(key, (image, Arc::clone(&process))).is_none() {
            self.order.push_back(key);
            if self.order.len() > KEPT
                && let Some(oldest) = self.order.pop_front()
            {
                self.kept.remove(&oldest);
            }
        }
        process
    }

    fn read(&self, stamp: &Stamp) -> Process {
        let key = process_key(&stamp.process);
        let chain: Vec<&Kin> = stamp.parents.iter().take_while(|kin| kin.key.pid != 0).collect();
        let own = self
            .recorded(&stamp.process)
            // A child that has not executed anything runs what its parent ran when it forked; that it is still the
            // same file shows that the parent has not moved on.
            .or_else(|| {
                chain.iter().filter_map(|kin| self.recorded(kin)).find(|(file, _)| *file == stamp.exe)
            })
            .map(|(_, program)| program)
            .or_else(|| self.older.get(&key).cloned())
            .or_else(|| alive(key))
            .unwrap_or_default();
        let parents = chain
            .iter()
            .map(|kin| {
                let key = process_key(kin);
                let program = self
                    .recorded(kin)
                    .map(|(_, program)| program)
                    .or_else(|| self.older.get(&key).cloned())
                    .or_else(|| alive(key))
                    .unwrap_or_default();
                Ancestor { key, comm: text(&kin.comm), program }
            })
            .collect();
        let cgroup = cgroup(stamp);
        Process {
            key,
            uid: stamp.uid,
            login_uid: Some(stamp.login_uid).filter(|&id| id != u32::MAX),
            session_id: Some(stamp.session_id).filter(|&id| id != u32::MAX),
            comm: text(&stamp.process.comm),
            program: own,
            host: match self.host {
                Some(host) if stamp.mounts == host => Some(true),
                _ if contained(&cgroup) => Some(false),
                _ => None,
            },
            cgroup,
            parents,
        }
    }

    fn recorded(&self, kin: &Kin) -> Option<(FileKey, Program)> {
        let mut value = Zeroizing::new(self.execs.get(&key_bytes(kin.key), 0).ok()?);
        let mut exec: Exec = read(&*value)?;
        let recorded = (exec.file, program(&exec));
        exec.argv.zeroize();
        value.zeroize();
        Some(recorded)
    }
}

/// The last two cgroup directories: of v2, or of the `pids` hierarchy where v2 only has the root.
fn cgroup(stamp: &Stamp) -> Vec<String> {
    [&stamp.unified_cgroup, &stamp.pids_cgroup]
        .into_iter()
        .map(|names| names.iter().rev().map(|name| text(name)).filter(|name| !name.is_empty()).collect())
        .find(|names: &Vec<String>| !names.is_empty())
        .unwrap_or_default()
}

/// Whether cgroup names are those of a container: its id, or a pod's directory.
fn contained(cgroup: &[String]) -> bool {
    cgroup.iter().any(|name| {
        name.contains("kubepods")
            || name.as_bytes().windows(64).any(|part| part.iter().all(u8::is_ascii_hexdigit))
    })
}

fn program(exec: &Exec) -> Program {
    let argv_cut = exec.argv_len > ARGV_LIMIT as u64;
    let len = usize::try_from(exec.argv_len).map_or(ARGV_LIMIT, |len| len.min(ARGV_LIMIT));
    Program {
        exe: exe(exec),
        script: (exec.script == 1).then(|| text(&exec.filename)).filter(|name| !name.is_empty()),
        argv: arguments(&exec.argv[..len]),
        argv_cut,
    }
}

/// The path from its components, the last of which stands first.
fn exe(exec: &Exec) -> Option<String> {
    let used = exec.exe.get(..usize::try_from(exec.exe_len).ok()?)?;
    let parts: Vec<&[u8]> = used.split(|&byte| byte == 0).filter(|part| !part.is_empty()).collect();
    let memory = parts.len() == 1 && parts[0].starts_with(b"memfd:");
    if parts.is_empty() || (exec.exe_whole != 1 && !memory) {
        return None;
    }
    Some(parts.iter().rev().map(|part| format!("/{}", String::from_utf8_lossy(part))).collect())
}

/// What a process was told, without its credentials: they are not even kept in memory.
fn arguments(bytes: &[u8]) -> Vec<String> {
    let bytes = bytes.strip_suffix(&[0]).unwrap_or(bytes);
    if bytes.is_empty() {
        return Vec::new();
    }
    let told = bytes.split(|&byte| byte == 0).map(|part| String::from_utf8_lossy(part).into_owned());
    let told = Zeroizing::new(told.collect::<Vec<_>>());
    redact::argv(&told)
}

/// Every process of /proc.
fn running() -> HashMap<ProcessKey, Program> {
    let Ok(entries) = fs::read_dir("/proc") else { return HashMap::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok())
        .filter_map(|pid| {
            let key = ProcessKey { pid, start: start(pid)? };
            Some((key, alive(key)?))
        })
        .collect()
}

/// What /proc says of a process, if it is still the same one.
fn alive(key: ProcessKey) -> Option<Program> {
    if start(key.pid)? != key.start {
        return None;
    }
    let dir = Path::new("/proc").join(key.pid.to_string());
    let exe = fs::read_link(dir.join("exe")).ok();
    let argv = Zeroizing::new(fs::read(dir.join("cmdline")).unwrap_or_default());
    // It may have ended and its pid been given away while it was read.
    if start(key.pid)? != key.start {
        return None;
    }
    let argv_cut = argv.len() > ARGV_LIMIT;
    Some(Program {
        exe: exe.map(|path| {
            let path = path.to_string_lossy();
            path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned()
        }),
        script: None,
        argv: arguments(&argv[..argv.len().min(ARGV_LIMIT)]),
        argv_cut,
    })
}

/// Field 22 of /proc/PID/stat. The name before it may hold blanks and parentheses.
pub(super) fn start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}
