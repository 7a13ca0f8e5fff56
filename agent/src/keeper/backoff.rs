//! When a repair may begin: at once at first, later and later while the image keeps being deleted, never not at all.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Repairs that are not delayed.
const FREE: u32 = 3;
/// The first delay; it doubles from there.
const FIRST: Duration = Duration::from_secs(5);
/// After this long without a repair everything begins anew.
const QUIET: Duration = Duration::from_secs(600);

/// One image's repairs.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    repairs: u32,
    last: Option<Instant>,
    /// When archives were read for it.
    copies: VecDeque<Instant>,
}

/// How often an archive may be read for one image.
#[derive(Debug, Clone, Copy)]
pub struct Copies {
    pub count: u32,
    pub per: Duration,
}

impl Backoff {
    /// When the next repair may begin; absent when at once.
    pub(super) fn until(&self, now: Instant, longest: Duration) -> Option<Instant> {
        let last = self.last?;
        if now.duration_since(last) >= QUIET || self.repairs < FREE {
            return None;
        }
        let doublings = (self.repairs - FREE).min(16);
        let until = last + FIRST.saturating_mul(1 << doublings).min(longest);
        (until > now).then_some(until)
    }

    /// When an archive may be read again; absent when at once.
    pub(super) fn copy_until(&mut self, now: Instant, copies: Copies) -> Option<Instant> {
        while self.copies.front().is_some_and(|at| now.duration_since(*at) >= copies.per) {
            self.copies.pop_front();
        }
        let allowed = usize::try_from(copies.count).unwrap_or(usize::MAX);
        let first = *self.copies.front()?;
        (self.copies.len() >= allowed).then(|| first + copies.per)
    }

    /// A repair was begun.
    pub(super) fn began(&mut self, now: Instant) {
        if self.last.is_some_and(|last| now.duration_since(last) >= QUIET) {
            self.repairs = 0;
        }
        self.repairs = self.repairs.saturating_add(1);
        self.last = Some(now);
    }

    /// An archive was read.
    pub(super) fn copied(&mut self, now: Instant) {
        self.copies.push_back(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_repairs_are_free_then_the_wait_doubles_up_to_its_limit() {
        let longest = Duration::from_secs(60);
        let start = Instant::now();
        let mut backoff = Backoff::default();
        let mut now = start;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let until = backoff.until(now, longest).unwrap_or(now);
            waits.push(until.duration_since(now).as_secs());
            now = until;
            backoff.began(now);
        }
        assert_eq!(waits, [0, 0, 0, 5, 10, 20, 40, 60, 60]);
        assert_eq!(backoff.until(now + QUIET, longest), None, "ten quiet minutes forgive");
        backoff.began(now + QUIET);
        assert_eq!(backoff.until(now + QUIET, longest), None, "and start the count anew");
    }

    #[test]
    fn archives_are_read_a_limited_number_of_times() {
        let copies = Copies { count: 2, per: Duration::from_secs(3600) };
        let start = Instant::now();
        let mut backoff = Backoff::default();
        assert_eq!(backoff.copy_until(start, copies), None);
        backoff.copied(start);
        assert_eq!(backoff.copy_until(start, copies), None);
        backoff.copied(start + Duration::from_secs(1));
        assert_eq!(backoff.copy_until(start + Duration::from_secs(2), copies), Some(start + copies.per));
        assert_eq!(backoff.copy_until(start + copies.per, copies), None);
    }
}
