//! An image that nobody wants any more, because its name moved: its holds go once the image in its place is held.

use std::time::Duration;

use super::{Keeper, kept::LetGo, policy, repair, tell};
use crate::{
    audit::{self, Body, Draft},
    config::{Hold, Mode},
    digest::Digest,
};

impl Keeper {
    /// A name of the image points elsewhere now.
    pub(super) fn moved(&mut self, target: Digest, name: &str, to: Digest) {
        if self.options.policy.rules.mode() == Mode::Observe {
            return;
        }
        let Some(kept) = self.kept.get_mut(&target) else { return };
        if kept.selected.is_none() {
            kept.let_go = Some(LetGo { why: format!("superseded: {name} is {to} now"), after: to });
        }
        kept.look(Duration::ZERO);
    }

    /// Whether the image's holds may go now; `None`: they are not to go.
    pub(super) fn may_go(&self, target: Digest) -> Option<bool> {
        let kept = self.kept.get(&target).filter(|kept| kept.selected.is_none())?;
        let after = self.kept.get(&kept.let_go.as_ref()?.after);
        Some(after.is_none_or(|after| {
            let stands = after.holds.get(&Hold::Lease).is_none_or(repair::stands);
            !after.is_kept() || (stands && !after.holds.is_empty())
        }))
    }

    /// Holds of the image went.
    pub(super) async fn let_gone(&mut self, target: Digest, dropped: &[Hold], unfinished: bool) {
        let Some(kept) = self.kept.get_mut(&target) else { return };
        if kept.selected.is_some() {
            kept.let_go = None;
            return;
        }
        let Some(LetGo { why, after }) = kept.let_go.take() else { return };
        let mut drafts = Vec::new();
        for hold in dropped {
            let bytes = kept.holds.remove(hold).map(|taken| taken.bytes);
            drafts.push(Draft::now(Body::HoldDropped(Box::new(audit::repair::HoldChanged {
                image: policy::subject(kept.content.id, kept.want.keys().cloned(), None),
                hold: tell::hold(*hold),
                why: Some(why.clone()),
                bytes,
            }))));
        }
        if unfinished {
            kept.let_go = Some(LetGo { why, after });
        } else {
            kept.holds.clear();
        }
        for draft in drafts {
            self.tell(draft).await;
        }
        self.forget();
    }
}
