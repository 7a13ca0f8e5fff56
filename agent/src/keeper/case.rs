//! One incident on its way to its end: told, repaired, quiet; only then closed.

use super::policy::Selected;
use crate::{
    audit::repair::{Outcome as Ended, Repair},
    incident::{Incident, Lost},
    probe::record::Boottime,
};

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) incident: Incident,
    /// How the repair ended, once it has.
    pub(super) repair: Option<Repair>,
    /// What the kernel saw go, once nothing more is to come.
    pub(super) lost: Option<Lost>,
    /// The last thing that belongs to it.
    pub(super) until: Boottime,
    /// The rule that protected the image when it was told.
    pub(super) selected: Option<Selected>,
}

impl Case {
    pub(super) fn new(incident: Incident) -> Self {
        let until = incident.at;
        Self { incident, repair: None, lost: None, until, selected: None }
    }

    /// A repair without details.
    pub(super) fn ended(outcome: Ended, reason: Option<String>) -> Repair {
        Repair { outcome, method: None, bytes_moved: None, took_ms: None, delete_to_usable_ms: None, reason }
    }

    /// Whether both the kernel and the repair are done with it.
    pub(super) fn over(&self) -> bool {
        self.lost.is_some() && self.repair.is_some()
    }
}
