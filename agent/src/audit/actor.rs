//! Who did it: a process as the kernel knew it at the moment of the act, made fit for the journal.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cgroup, clock::Clock, clock::Time, redact, users};
use crate::probe::record::{Ancestor, Process};

/// The process that acted. Each field is marked: a *kernel fact* can't be forged by the process, what is *claimed by
/// the process* can.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Actor {
    /// *Kernel fact.* Process id, in the initial pid namespace.
    pub pid: u32,
    /// *Kernel fact.* When the process started, to 10 ms: with `pid` it names one process for ever.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Time>,
    /// *Kernel fact* that the process had this name; the process may choose it. At most 15 bytes.
    pub comm: String,
    /// *Kernel fact*, recorded at exec: the executable file. Absent when it was not seen in time; never guessed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// *Kernel fact*, recorded at exec: the script that an interpreter was started for, as it was typed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// *Claimed by the process.* The arguments, credentials masked, cut after 512 bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
    /// Whether `argv` was longer than what is kept. Absent when it wasn't.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub argv_cut: bool,
    /// *Kernel fact.* The user id, in the initial user namespace.
    pub uid: u32,
    /// The user's name, from the node's /etc/passwd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// *Kernel fact.* The audit login uid: who logged in, whatever `su` or `sudo` came after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_uid: Option<u32>,
    /// *Kernel fact.* `unset`: nobody logged in, this is a service's process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login: Option<Login>,
    /// The login user's name, from the node's /etc/passwd.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub login_user: Option<String>,
    /// *Kernel fact.* The audit session id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<u32>,
    /// *Kernel fact.* Parent, grandparent, …: at most four, nearest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parents: Option<Vec<Parent>>,
    /// *Kernel fact.* The last two elements of the process' cgroup path; `/` for the root cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The pod that the process ran in; its uid is read from the cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Pod>,
    /// The container that the process ran in; its id is read from the cgroup.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// *Kernel fact.* Whether the process is known to be outside any container.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<bool>,
}

/// A process above the actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Parent {
    /// *Kernel fact.*
    pub pid: u32,
    /// *Kernel fact* that the process had this name; the process may choose it.
    pub comm: String,
    /// *Kernel fact*, recorded at exec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exe: Option<String>,
    /// *Kernel fact*, recorded at exec: the script that an interpreter was started for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// *Claimed by the process.* Credentials masked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub argv: Option<Vec<String>>,
}

/// What is known of a login that has no uid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Login {
    /// The audit login uid is 4294967295.
    Unset,
}

/// A pod. Name and namespace are containerd's word (labels of its sandbox).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pod {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub uid: String,
}

/// A container. The name is containerd's word (a label).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Container {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl From<&Process> for Actor {
    fn from(process: &Process) -> Self {
        Self::at(process, &Clock::now())
    }
}

impl Actor {
    /// As [`Actor::from`], by a given clock.
    pub fn at(process: &Process, clock: &Clock) -> Self {
        let Process { key, uid, login_uid, session_id, comm, program, cgroup, host, parents } = process;
        let place = cgroup::Place::of(cgroup);
        Self {
            pid: key.pid,
            start: Some(clock.started(key.start)),
            comm: comm.clone(),
            exe: program.exe.clone(),
            script: program.script.clone(),
            argv: argv(&program.argv),
            argv_cut: program.argv_cut,
            uid: *uid,
            user: users::name(*uid),
            login_uid: *login_uid,
            login: login_uid.is_none().then_some(Login::Unset),
            login_user: login_uid.and_then(users::name),
            session_id: *session_id,
            parents: Some(parents.iter().map(Parent::from).collect()),
            cgroup: Some(format!("/{}", cgroup.join("/"))),
            pod: place.pod.map(|uid| Pod { namespace: None, name: None, uid }),
            container: place.container.map(|id| Container { id, name: None }),
            host: *host,
        }
    }

    /// The program's name for a sentence: of the executable if that is known, else what the process calls itself.
    pub fn program(&self) -> &str {
        let exe = self.exe.as_deref().and_then(|exe| exe.rsplit('/').next()).filter(|name| !name.is_empty());
        exe.unwrap_or(&self.comm)
    }
}

impl From<&Ancestor> for Parent {
    fn from(ancestor: &Ancestor) -> Self {
        let Ancestor { key, comm, program } = ancestor;
        Self {
            pid: key.pid,
            comm: comm.clone(),
            exe: program.exe.clone(),
            script: program.script.clone(),
            argv: argv(&program.argv),
        }
    }
}

/// No process has no arguments at all in practice: an empty list means that they weren't recorded.
fn argv(recorded: &[String]) -> Option<Vec<String>> {
    (!recorded.is_empty()).then(|| redact::argv(recorded))
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::probe::record::{Boottime, ProcessKey, Program};

    fn process() -> Process {
        let id = "9f".repeat(32);
        Process {
            key: ProcessKey { pid: 4242, start: 100 },
            uid: 0,
            login_uid: None,
            session_id: None,
            comm: "crictl".into(),
            program: Program {
                exe: Some("/usr/bin/crictl".into()),
                argv: ["crictl", "pull", "--creds", "me:hunter2", "app:1"].map(str::to_owned).into(),
                ..Program::default()
            },
            cgroup: vec!["pod0a1b2c3d-1111-2222-3333-444455556666".into(), id],
            host: Some(false),
            parents: vec![Ancestor {
                key: ProcessKey { pid: 4200, start: 90 },
                comm: "sh".into(),
                program: Program {
                    argv: ["sh", "-c", "crictl pull --creds me:hunter2 app:1"].map(str::to_owned).into(),
                    ..Program::default()
                },
            }],
        }
    }

    #[test]
    fn a_process_becomes_an_actor_without_its_credentials() {
        let now: Timestamp = "2026-01-02T03:04:05Z".parse().unwrap();
        let actor = Actor::at(&process(), &Clock::booted_before(now, Boottime(5_000_000_000)));
        let json = serde_json::to_value(&actor).unwrap();
        assert_eq!(
            json,
            serde_json::json!({
                "pid": 4242, "start": "2026-01-02T03:04:01.000000000Z", "comm": "crictl", "exe": "/usr/bin/crictl",
                "argv": ["crictl", "pull", "--creds", "me:*****", "app:1"], "uid": 0, "user": "root",
                "login": "unset",
                "parents": [
                    {"pid": 4200, "comm": "sh", "argv": ["sh", "-c", "crictl pull --creds me:***** app:1"]},
                ],
                "cgroup": format!("/pod0a1b2c3d-1111-2222-3333-444455556666/{}", "9f".repeat(32)),
                "pod": {"uid": "0a1b2c3d-1111-2222-3333-444455556666"},
                "container": {"id": "9f".repeat(32)}, "host": false,
            })
        );
    }

    #[test]
    fn an_executable_that_was_not_seen_is_not_guessed() {
        let mut process = process();
        process.program = Program::default();
        let actor = Actor::from(&process);
        assert_eq!((actor.exe.as_deref(), actor.argv.as_deref(), actor.program()), (None, None, "crictl"));
    }
}
