//! What the kernel let the probe do: for `imgwarden probe`, status, metrics and the first event.

use serde::Serialize;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The backend that was loaded.
    pub backend: &'static str,
    /// Why the trampoline backend was not.
    pub trampoline: &'static str,
    /// The kernel's release.
    pub kernel: String,
    pub hooks: Vec<Hook>,
    pub request_ring_bytes: u32,
    pub removal_ring_bytes: u32,
    /// Capabilities that some look-ups need, with what they are for.
    pub missing_capabilities: Vec<&'static str>,
    /// What can't be seen.
    pub unseen: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hook {
    /// The tracepoint.
    pub name: &'static str,
    #[serde(flatten)]
    pub state: State,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    Attached {
        /// Instructions that the verifier walked; absent before 5.16.
        verified: Option<u32>,
    },
    Missing {
        why: String,
    },
}

impl Hook {
    pub fn attached(&self) -> bool {
        matches!(self.state, State::Attached { .. })
    }
}
