//! A person asks for an image.

use std::{path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::oneshot;

use super::{Keeper, RepairError, Tools, copy, repair::Repaired, tell};
use crate::{
    config::Mode,
    digest::Digest,
    name,
    serve::{Refusal, RestoreRefused, Restored},
};

impl Keeper {
    pub(super) async fn restore(
        &mut self,
        image: &str,
        from: Option<PathBuf>,
        answer: oneshot::Sender<Result<Restored, RestoreRefused>>,
    ) {
        let refuse = |reason, why: String| Err(RestoreRefused { reason, why });
        let Some(tools) = self.tools.clone() else {
            drop(answer.send(refuse(Refusal::Containerd, "containerd does not answer".to_owned())));
            return;
        };
        let id: Option<Digest> = image.parse().ok();
        let spelt = name::normalise(image).ok();
        if id.is_none() && spelt.is_none() {
            drop(
                answer
                    .send(refuse(Refusal::NotAName, format!("{image:?} is neither a name nor an image ID"))),
            );
            return;
        }
        let shelf = match from {
            Some(path) => tools.shelf.with(path),
            None => tools.shelf.clone(),
        };
        shelf.rescan().await;
        let known = self.kept.iter().find(|(_, kept)| {
            id.is_some() && kept.content.id == id
                || kept.want.keys().any(|name| spelt.as_deref() == Some(name.as_str()))
        });
        let target = match known {
            Some((target, _)) => *target,
            None => match shelf.image(id, spelt.as_deref()) {
                Some(archived) => {
                    let target = archived.target.digest;
                    let image = copy::wanted(&archived);
                    self.present(image);
                    target
                }
                None => {
                    let mut why = format!("nothing on this node has {image}");
                    let unreadable = shelf.unreadable();
                    let reason = if unreadable.is_empty() { Refusal::NotFound } else { Refusal::Archive };
                    if !unreadable.is_empty() {
                        why = format!("{why}; unusable: {}", unreadable.join("; "));
                    }
                    drop(answer.send(refuse(reason, why)));
                    return;
                }
            },
        };
        let Some(kept) = self.kept.get_mut(&target) else { return };
        if self.options.policy.rules.mode() == Mode::Observe {
            let why = "mode is \"observe\": nothing is changed on this node".to_owned();
            drop(answer.send(refuse(Refusal::Observing, why)));
            return;
        }
        kept.repair = true;
        kept.look(Duration::ZERO);
        self.tools = Some(Arc::new(Tools { hold: tools.hold.clone(), shelf }));
        self.waiting.push((target, answer));
    }

    /// Tells those who wait for an image that it is back.
    pub(super) fn answer(&mut self, target: Digest, repaired: Option<&Repaired>, took_ms: f64) -> bool {
        let Some(kept) = self.kept.get(&target) else { return false };
        let mut any = false;
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 != target {
                index += 1;
                continue;
            }
            any = true;
            let (_, answer) = self.waiting.swap_remove(index);
            let restored = Restored {
                id: kept.content.id.map(|id| id.to_string()),
                names: kept.want.keys().cloned().collect(),
                method: repaired.map(|repaired| tell::method_name(repaired.method).to_owned()),
                bytes_moved: repaired.map_or(0, |repaired| repaired.bytes_moved),
                took_ms,
                verified: true,
                source: repaired.and_then(|repaired| repaired.source.clone()),
            };
            // Who asked may have gone.
            drop(answer.send(Ok(restored)));
        }
        any
    }
}

pub(super) fn refusal(error: &RepairError) -> Refusal {
    match error {
        RepairError::Copy(_) | RepairError::NoCopies { .. } => Refusal::Archive,
        RepairError::NoArchive { .. } => Refusal::NotFound,
        RepairError::Hold(_)
        | RepairError::Containerd(_)
        | RepairError::Unlink { .. }
        | RepairError::NotWhole { .. } => Refusal::Containerd,
    }
}
