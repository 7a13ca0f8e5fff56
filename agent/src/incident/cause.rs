//! The judgement: which of the known causes is it, and what does that rest on?
//!
//! Programs are told apart by the executable file; where several are one file (k3s, k0s), by the method that was
//! called, with argv as a hint that the evidence marks as such.

use crate::{
    audit::cause::{Cause, Confidence, Kind},
    probe::record::{Process, Removal},
    wire::request::{Call, Method},
};

use super::asked::{Asked, Blame, senders};

/// Command-line tools by the name of their executable.
const TOOLS: [&str; 8] = ["crictl", "ctr", "nerdctl", "docker", "podman", "buildctl", "kim", "cri-client"];
/// Distributions that are one executable under many names.
const DISTRIBUTIONS: [&str; 5] = ["k3s", "rke2", "k0s", "kubelite", "microk8s"];

/// The label by which containerd itself expires an image.
pub const EXPIRES: &str = "containerd.io/gc.expire";

/// The cause of something that was asked for on the socket (or by nobody).
pub fn of_request(blame: &Blame, expiry: Option<&str>, facts: &[String]) -> Cause {
    let mut cause = match blame {
        Blame::Seen { asked, count } => {
            let (kind, tool) = program(&asked.request.process, Some(&asked.request.call));
            let what = match (&asked.request.method, count) {
                (Method::Path(path), 1) => format!("request {path} seen on containerd's socket from"),
                (Method::Path(path), count) => {
                    format!("{count} requests, the last {path}, seen on containerd's socket from")
                }
                (Method::Symbol(_) | Method::Lost, _) => {
                    "request seen on containerd's socket from".to_owned()
                }
            };
            let mut evidence = vec![format!("{what} pid {}", asked.request.process.key.pid)];
            evidence.extend(claimed(&asked.request.process, tool.as_deref()));
            Cause { kind, tool, confidence: Confidence::Seen, evidence }
        }
        Blame::Inferred { asked, .. } => {
            let (kind, tool) = program(&asked.request.process, None);
            let mut evidence = vec![format!(
                "pid {} sent a message that names this image, on a connection older than the agent: its method is \
                 not known, and nobody else sent one",
                asked.request.process.key.pid
            )];
            evidence.extend(claimed(&asked.request.process, tool.as_deref()));
            Cause { kind, tool, confidence: Confidence::Inferred, evidence }
        }
        Blame::Several { candidates } => {
            let pids: Vec<String> =
                senders(candidates).iter().map(|process| process.key.pid.to_string()).collect();
            let evidence =
                vec![format!("several processes asked for it at that time: pids {}", pids.join(", "))];
            Cause { kind: Kind::Unknown, tool: None, confidence: Confidence::Inferred, evidence }
        }
        Blame::Nobody => match expiry {
            Some(at) => Cause {
                kind: Kind::ContainerdExpired,
                tool: None,
                confidence: Confidence::Inferred,
                evidence: vec![format!(
                    "the record carried {EXPIRES}={at}, and nobody asked for its deletion"
                )],
            },
            None => Cause {
                kind: Kind::Unknown,
                tool: None,
                confidence: Confidence::None,
                evidence: vec!["no request for it was seen on containerd's socket".to_owned()],
            },
        },
    };
    // How full the disk is explains the kubelet, and nobody who was asked by a person.
    if !matches!(cause.kind, Kind::Cli | Kind::Client | Kind::Imgwarden) {
        cause.evidence.extend_from_slice(facts);
    }
    cause
}

/// The cause of files that went without containerd.
pub fn of_removal(removal: &Removal) -> Cause {
    let process = &removal.process;
    let name = name_of(process);
    Cause {
        kind: Kind::Filesystem,
        tool: name.map(str::to_owned),
        confidence: Confidence::Seen,
        evidence: vec![format!("pid {} removed the files itself, without containerd", process.key.pid)],
    }
}

/// The cause of files that containerd removed though nothing was deleted.
pub fn of_collection() -> Cause {
    Cause {
        kind: Kind::ContainerdGc,
        tool: None,
        confidence: Confidence::Inferred,
        evidence: vec![
            "containerd removed the files itself, and no deletion of an image explains it: its metadata no longer \
             referenced them"
                .to_owned(),
        ],
    }
}

/// What a program is: the kind of cause and the tool's name.
fn program(process: &Process, call: Option<&Call>) -> (Kind, Option<String>) {
    let Some(name) = name_of(process) else { return (Kind::Client, None) };
    if name == "imgwarden" {
        return (Kind::Imgwarden, None);
    }
    if name == "kubelet" {
        return (Kind::Kubelet, None);
    }
    if TOOLS.contains(&name) {
        return (Kind::Cli, Some(name.to_owned()));
    }
    if DISTRIBUTIONS.contains(&name) {
        // One file under many names: argv[0] or the first argument tells which part of it runs.
        let word = |index: usize| process.program.argv.get(index).map(|word| base(word));
        if let Some(tool) = [word(0), word(1)].into_iter().flatten().find(|word| TOOLS.contains(word)) {
            return (Kind::Cli, Some(tool.to_owned()));
        }
        return match call {
            Some(Call::RemoveImage { .. }) => (Kind::Kubelet, Some(name.to_owned())),
            _ => (Kind::Distro, Some(name.to_owned())),
        };
    }
    (Kind::Client, Some(name.to_owned()))
}

/// That the tool's name is only what the process says of itself.
fn claimed(process: &Process, tool: Option<&str>) -> Option<String> {
    let name = name_of(process).filter(|name| DISTRIBUTIONS.contains(name))?;
    let tool = tool.filter(|tool| TOOLS.contains(tool))?;
    Some(format!("its arguments call it {tool}, which {name} is too: the process claims that itself"))
}

fn name_of(process: &Process) -> Option<&str> {
    process.program.exe.as_deref().map(base)
}

fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether the blame rests on one request: then it is the one to be shown.
pub fn request(blame: &Blame) -> Option<(&Asked, u32)> {
    match blame {
        Blame::Seen { asked, count } | Blame::Inferred { asked, count } => Some((asked, *count)),
        Blame::Several { .. } | Blame::Nobody => None,
    }
}
