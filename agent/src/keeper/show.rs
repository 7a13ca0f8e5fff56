//! What is held, and what another config would do, for a person to read.

use super::{
    Keeper,
    kept::Kept,
    policy::{Policy, Selected},
    repair,
};
use crate::{
    config::{Hold, Mode},
    hold::State,
    serve::{ArchiveStatus, HoldState, HoldStatus, ImageStatus, Plan, PlanAction, PlannedImage},
};

impl Keeper {
    pub(super) fn images(&self) -> Vec<ImageStatus> {
        let mut images: Vec<ImageStatus> = self.kept.values().map(|kept| self.image_status(kept)).collect();
        images.sort_by(|one, other| one.names.cmp(&other.names));
        images
    }

    fn image_status(&self, kept: &Kept) -> ImageStatus {
        let path = kept.content.id.and_then(|id| self.tools.as_ref()?.shelf.path(id));
        let holds = kept.selected.as_ref().map_or_else(Vec::new, |selected| {
            Hold::ALL.into_iter().map(|hold| hold_status(kept, selected, hold, path.is_some())).collect()
        });
        ImageStatus {
            id: kept.content.id.map(|id| id.to_string()),
            names: kept.want.keys().cloned().collect(),
            rule: kept.selected.as_ref().map(|selected| selected.rule.clone()),
            priority: kept.selected.as_ref().map(|selected| selected.priority),
            mode: kept.selected.as_ref().map(|selected| selected.mode),
            present: !kept.is_missing(),
            bytes: Some(kept.content.blobs.iter().map(|blob| blob.size).sum()),
            holds,
            archive: path.map(|path| ArchiveStatus { path, verified: None }),
        }
    }

    pub(super) fn plan(&self, policy: Option<&Policy>) -> Plan {
        let mut images: Vec<PlannedImage> = self
            .kept
            .values()
            .map(|kept| {
                let names = || kept.want.keys().map(String::as_str);
                let planned = match policy {
                    Some(policy) => {
                        let known = self.options.policy.known.clone();
                        Policy { known, ..policy.clone() }.select(kept.content.id, names(), None)
                    }
                    None => kept.selected.clone(),
                };
                planned_image(kept, planned)
            })
            .collect();
        images.sort_by(|one, other| one.names.cmp(&other.names));
        Plan { images }
    }
}

fn hold_status(kept: &Kept, selected: &Selected, hold: Hold, archived: bool) -> HoldStatus {
    let (state, why) = if !selected.holds.contains(hold) {
        (HoldState::Off, None)
    } else {
        match (hold, kept.holds.get(&hold)) {
            (Hold::Archive, _) if archived => (HoldState::Yes, None),
            (Hold::Archive, _) => (HoldState::Absent, Some("no archive has it".to_owned())),
            (Hold::Link, _) => (HoldState::Off, Some("this version takes no links".to_owned())),
            _ if selected.mode == Mode::Observe => (HoldState::No, Some("mode is observe".to_owned())),
            (_, None) => {
                (HoldState::No, Some(kept.trouble.clone().unwrap_or_else(|| "not yet taken".to_owned())))
            }
            (_, Some(taken)) => match &taken.state {
                State::Yes => (HoldState::Yes, None),
                State::No { why } => (HoldState::No, Some(why.clone())),
                State::Ineffective { why } => (HoldState::Ineffective, Some(why.clone())),
            },
        }
    };
    HoldStatus { hold, state, why }
}

fn planned_image(kept: &Kept, planned: Option<Selected>) -> PlannedImage {
    let held: Vec<Hold> =
        kept.holds.iter().filter(|(_, taken)| repair::stands(taken)).map(|(hold, _)| *hold).collect();
    let would = planned.as_ref().filter(|planned| planned.mode == Mode::Protect);
    let action = match (would, held.is_empty()) {
        (Some(_), _) if kept.is_missing() => PlanAction::Absent,
        (Some(_), true) => PlanAction::Hold,
        (Some(_), false) => PlanAction::Keep,
        (None, false) => PlanAction::LetGo,
        (None, true) => PlanAction::Leave,
    };
    PlannedImage {
        id: kept.content.id.map(|id| id.to_string()),
        names: kept.want.keys().cloned().collect(),
        action,
        rule: planned.as_ref().map(|planned| planned.rule.clone()),
        priority: planned.as_ref().map(|planned| planned.priority),
        holds: would.map_or(held, |planned| planned.holds.iter().collect()),
        bytes: Some(kept.content.blobs.iter().map(|blob| blob.size).sum()),
        why: planned.filter(|planned| planned.mode == Mode::Observe).map(|_| "mode is observe".to_owned()),
    }
}
