//! Incidents of one actor that follow each other within ten seconds share a burst.

use std::{sync::Arc, time::Duration};

use uuid::Uuid;

use super::Outcome;
use crate::{
    digest::Digest,
    probe::record::{Boottime, Process},
};

/// The pause that ends a burst.
const PAUSE: Duration = Duration::from_secs(10);
/// Bursts at a time: a shell loop of short-lived commands is many actors.
const MOST: usize = 256;

#[derive(Debug)]
struct Burst {
    id: Uuid,
    actor: Arc<Process>,
    from: Boottime,
    to: Boottime,
    images: Vec<(Option<Digest>, u64)>,
}

#[derive(Debug, Default)]
pub(super) struct Bursts(Vec<Burst>);

impl Bursts {
    /// The burst that this incident belongs to. Without an actor each is its own.
    pub(super) fn of(
        &mut self,
        actor: Option<&Arc<Process>>,
        image: Option<Digest>,
        bytes: u64,
        at: Boottime,
    ) -> Uuid {
        let Some(actor) = actor else { return Uuid::now_v7() };
        if let Some(burst) = self.0.iter_mut().find(|burst| burst.actor.key == actor.key) {
            burst.to = burst.to.max(at);
            burst.images.push((image, bytes));
            return burst.id;
        }
        let id = Uuid::now_v7();
        if self.0.len() >= MOST {
            self.0.remove(0);
        }
        self.0.push(Burst { id, actor: actor.clone(), from: at, to: at, images: vec![(image, bytes)] });
        id
    }

    /// Ends what had no incident for the pause; one incident alone is not worth an event.
    pub(super) fn expire(&mut self, now: Boottime, out: &mut Vec<Outcome>) {
        let over = |burst: &Burst| now.0.saturating_sub(burst.to.0) > PAUSE.as_nanos() as u64;
        for burst in self.0.extract_if(.., |burst| over(burst)) {
            let Burst { id, actor, from, to, mut images } = burst;
            if images.len() > 1 {
                images.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
                out.push(Outcome::BurstClosed { burst: id, actor, images, from, to });
            }
        }
    }

    pub(super) fn deadline(&self) -> Option<Boottime> {
        self.0.iter().map(|burst| Boottime(burst.to.0 + PAUSE.as_nanos() as u64 + 1)).min()
    }
}
