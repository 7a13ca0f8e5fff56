//! What a task did with an image: told, and entered into the incidents that it was for.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use uuid::Uuid;

use super::{
    Case, Done, Keeper, Kept, PIN, RETRY, RepairError,
    by_hand::refusal,
    policy,
    repair::{self, Repaired},
    tell,
};
use crate::{
    audit::{self, Body, Clock, Draft},
    config::Hold,
    digest::Digest,
    hold::State,
    serve::RestoreRefused,
};

impl Keeper {
    pub(super) async fn done(&mut self, done: Done) {
        let Done { target, holds, repair, faults, unverified, let_go, dropped, unheld, result, took, at } =
            done;
        let Some(kept) = self.kept.get_mut(&target) else { return };
        kept.busy = false;
        kept.unverified = unverified;
        let unheld_why = unheld.as_ref().map(ToString::to_string);
        kept.trouble = result.as_ref().err().map(ToString::to_string).or_else(|| unheld_why.clone());
        let now = Instant::now();
        let mut drafts = Vec::new();
        for (hold, taken) in holds {
            drafts.extend(changed_hold(kept, hold, &taken));
            kept.holds.insert(hold, taken);
        }
        let cases = std::mem::take(&mut kept.working);
        for draft in drafts {
            self.tell(draft).await;
        }
        if let_go {
            self.let_gone(target, &dropped, unheld.is_some()).await;
        }
        match result {
            Ok(repaired) => {
                let Some(kept) = self.kept.get_mut(&target) else { return };
                if let Some(why) = unheld_why {
                    kept.failures += 1;
                    let wait = retry(kept.failures, self.options.backoff_max);
                    kept.look(wait);
                    tracing::warn!(image = %target, %why, ?wait, "a hold could not be looked at; it is tried again");
                } else {
                    kept.failures = 0;
                }
                if let Some(repaired) = &repaired {
                    kept.backoff.began(now);
                    if repaired.bytes_moved > 0 {
                        kept.backoff.copied(now);
                    }
                    self.counts.restored.fetch_add(1, Ordering::Relaxed);
                }
                self.restored(target, cases, repaired, took, at).await;
                if !repair {
                    self.faulty(target, faults, at).await;
                }
            }
            Err(error) => {
                kept_again(self.kept.get_mut(&target), &cases, repair);
                let Some(kept) = self.kept.get_mut(&target) else { return };
                if error.is_unreachable() {
                    // Nothing is wrong with the image; it is looked at when containerd answers again.
                    kept.look(Duration::from_secs(1));
                    tracing::debug!(%error, "containerd can't be reached");
                    return;
                }
                kept.failures += 1;
                let wait = retry(kept.failures, self.options.backoff_max);
                kept.look(wait);
                if repair {
                    self.failed(target, &cases, &error, took, now + wait).await;
                } else {
                    // Nothing was to be put back.
                    tracing::warn!(image = %target, %error, ?wait, "an image could not be looked at; it is tried again");
                }
            }
        }
        self.count();
    }

    pub(super) async fn restored(
        &mut self,
        target: Digest,
        cases: Vec<Uuid>,
        repaired: Option<Repaired>,
        took: Duration,
        at: crate::probe::record::Boottime,
    ) {
        let clock = Clock::now();
        let took_ms = took.as_secs_f64() * 1000.0;
        let began = cases.iter().filter_map(|id| self.cases.get(id)).map(|case| case.incident.began).min();
        let usable = began.map(|began| at.0.saturating_sub(began.0) as f64 / 1e6);
        let by_hand = self.answer(target, repaired.as_ref(), took_ms);
        if let Some(repaired) = &repaired {
            let Some(kept) = self.kept.get(&target) else { return };
            let reason = cases.is_empty().then(|| {
                if by_hand {
                    "asked by hand".to_owned()
                } else {
                    "it was missing when it was looked at".to_owned()
                }
            });
            let body = Body::ImageRestored(Box::new(tell::restored(
                self.subject(kept),
                repaired,
                took_ms,
                usable,
                reason,
            )));
            let incident = cases.first().copied();
            self.tell(tell::draft(incident, at, &clock, body)).await;
        }
        for id in cases {
            if let Some(case) = self.cases.get_mut(&id) {
                case.until = case.until.max(at);
                if repaired.is_some() {
                    self.tallies.of(case.incident.burst).restored += 1;
                }
                case.repair = Some(match &repaired {
                    Some(repaired) => audit::repair::Repair {
                        outcome: audit::repair::Outcome::Restored,
                        method: Some(tell::method(repaired.method)),
                        bytes_moved: Some(repaired.bytes_moved),
                        took_ms: Some(took_ms),
                        delete_to_usable_ms: Some(at.0.saturating_sub(case.incident.began.0) as f64 / 1e6),
                        reason: None,
                    },
                    None => Case::ended(audit::repair::Outcome::NotNeeded, None),
                });
            }
            self.close(id).await;
        }
    }

    pub(super) async fn failed(
        &mut self,
        target: Digest,
        cases: &[Uuid],
        error: &RepairError,
        took: Duration,
        until: Instant,
    ) {
        let Some(kept) = self.kept.get(&target) else { return };
        // The same failure again is not news.
        let told = kept.failures > 1;
        let reason = error.to_string();
        let mut answers = Vec::new();
        let mut index = 0;
        while index < self.waiting.len() {
            if self.waiting[index].0 == target {
                answers.push(self.waiting.swap_remove(index).1);
            } else {
                index += 1;
            }
        }
        for answer in answers {
            let refused = RestoreRefused { reason: refusal(error), why: reason.clone() };
            // Who asked may have gone.
            drop(answer.send(Err(refused)));
        }
        if !told {
            let wait = until.saturating_duration_since(Instant::now());
            let at = jiff::Timestamp::now()
                .saturating_add(jiff::SignedDuration::try_from(wait).unwrap_or_default())
                .unwrap_or(jiff::Timestamp::MAX);
            let body = Body::ImageRestoreFailed(Box::new(audit::repair::NotRestored {
                image: self.subject(kept),
                method: error.source_path().map(|_| audit::repair::Method::Archive),
                reason: reason.clone(),
                until: Some(at.into()),
                source: error.source_path().map(|path| path.display().to_string()),
                bytes_moved: None,
                took_ms: Some(took.as_secs_f64() * 1000.0),
                verified: None,
                actor: None,
            }));
            let incident = cases.first().copied();
            self.tell(Draft { incident, ..Draft::now(body) }).await;
        }
        for id in cases {
            if let Some(case) = self.cases.get_mut(id) {
                case.repair = Some(Case::ended(audit::repair::Outcome::Failed, Some(reason.clone())));
            }
            self.close(*id).await;
        }
    }
}

/// What a failed job was to do is still to be done.
pub(super) fn kept_again(kept: Option<&mut Kept>, cases: &[Uuid], repair: bool) {
    if let Some(kept) = kept {
        kept.allowed.extend(cases);
        kept.repair |= repair;
    }
}

/// How long the next try waits after so many failures in a row.
pub(super) fn retry(failures: u32, longest: Duration) -> Duration {
    RETRY.saturating_mul(1 << failures.saturating_sub(1).min(10)).min(longest)
}

/// What a hold's change is told as.
pub(super) fn changed_hold(kept: &mut Kept, hold: Hold, taken: &crate::hold::Taken) -> Vec<Draft> {
    let image = || policy::subject(kept.content.id, kept.want.keys().cloned(), kept.selected.as_ref());
    let mut drafts = Vec::new();
    let before = kept.holds.get(&hold);
    let pin = |names: Option<&[String]>, why: Option<String>| {
        Box::new(audit::image::Pin {
            image: match names {
                Some(names) => {
                    policy::subject(kept.content.id, names.iter().cloned(), kept.selected.as_ref())
                }
                None => image(),
            },
            actor: None,
            candidates: None,
            candidates_count: None,
            request: None,
            label: PIN.to_owned(),
            why,
            images: None,
            images_count: None,
            would: None,
        })
    };
    if hold == Hold::Pin && taken.changed && before.is_some() && !kept.unpinned.is_empty() {
        drafts.push(Draft::now(Body::ImageRepinned(pin(Some(&kept.unpinned), None))));
    } else if repair::stands(taken) && before.map_or(taken.changed, |before| !repair::stands(before)) {
        drafts.push(Draft::now(Body::HoldTaken(Box::new(audit::repair::HoldChanged {
            image: image(),
            hold: tell::hold(hold),
            why: kept.selected.as_ref().map(|selected| format!("rule {}", selected.rule)),
            bytes: Some(taken.bytes),
        }))));
    }
    if let State::Ineffective { why } = &taken.state
        && hold == Hold::Pin
        && !kept.told_ineffective
    {
        drafts.push(Draft::now(Body::ImagePinIneffective(pin(None, Some(why.clone())))));
        kept.told_ineffective = true;
    }
    if hold == Hold::Pin {
        kept.unpinned.clear();
    }
    drafts
}
