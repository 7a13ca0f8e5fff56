//! The one exception to "imgwarden undoes deletions; it does not deploy": a critical image that is absent and lies in an
//! archive is put in, seen before or not, once imports have been quiet. Without the sandbox image nothing on the node
//! can start.

use std::time::{Duration, Instant};

use super::{Keeper, copy};
use crate::{
    config::{Mode, Priority},
    inventory::image::Image,
};

/// How long nothing may have been imported: a distribution's importer comes first.
pub(super) const QUIET: Duration = Duration::from_secs(60);

/// When it is looked for what is absent.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    due: Option<Instant>,
}

impl Quiet {
    /// containerd answers, or an image came: the wait begins anew.
    pub(super) fn disturb(&mut self, now: Instant) {
        self.due = Some(now + QUIET);
    }

    /// When the wait is over, if it has begun.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Whether the wait is over; it is then not begun again until something comes.
    fn over(&mut self, now: Instant) -> bool {
        let over = self.due.is_some_and(|due| due <= now);
        if over {
            self.due = None;
        }
        over
    }
}

impl Keeper {
    /// Has what is critical, absent and archived put in, if it is time.
    pub(super) async fn put_in_critical(&mut self) {
        if !self.quiet.over(Instant::now()) {
            return;
        }
        let Some(tools) = self.tools.clone() else { return };
        tools.shelf.rescan().await;
        for archived in tools.shelf.images() {
            let image = copy::wanted(&archived);
            let target = image.content.target.digest;
            if self.is_critical(&image) && self.is_absent(&image) {
                self.present(image);
                if let Some(kept) = self.kept.get_mut(&target) {
                    kept.repair = true;
                    kept.look(Duration::ZERO);
                }
            }
        }
    }

    fn is_critical(&self, image: &Image) -> bool {
        let names = image.records.iter().map(|record| record.name.as_str());
        let selected = self.options.policy.select(image.content.id, names, None);
        selected
            .is_some_and(|selected| selected.priority == Priority::Critical && selected.mode == Mode::Protect)
    }

    /// Whether nothing is known by any of its names or its ID: what was there once is repaired, or was moved by somebody.
    fn is_absent(&self, image: &Image) -> bool {
        !self.kept.values().any(|kept| {
            let same = kept.content.id.is_some() && kept.content.id == image.content.id;
            same || image.records.iter().any(|record| kept.want.contains_key(&record.name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_import_begins_the_wait_anew() {
        let start = Instant::now();
        let mut quiet = Quiet::default();
        assert!(!quiet.over(start + QUIET), "nothing has begun");
        quiet.disturb(start);
        quiet.disturb(start + QUIET / 2);
        assert_eq!(quiet.due(), Some(start + QUIET / 2 + QUIET));
        assert!(!quiet.over(start + QUIET));
        assert!(quiet.over(start + QUIET / 2 + QUIET));
        assert!(!quiet.over(start + QUIET * 3), "once");
    }
}
