//! How many of a burst's images are protected and were put back: what `burst.closed` says.

use std::collections::VecDeque;

use uuid::Uuid;

/// Bursts that are counted at a time; an incident alone is one too.
const MOST: usize = 512;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) protected: u64,
    pub(super) restored: u64,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Tallies(VecDeque<(Uuid, Tally)>);

impl Tallies {
    /// The counts of a burst, to be added to.
    pub(super) fn of(&mut self, burst: Uuid) -> &mut Tally {
        let index = match self.0.iter().position(|(known, _)| *known == burst) {
            Some(index) => index,
            None => {
                if self.0.len() >= MOST {
                    self.0.pop_front();
                }
                self.0.push_back((burst, Tally::default()));
                self.0.len() - 1
            }
        };
        &mut self.0[index].1
    }

    /// The counts of a burst that is over.
    pub(super) fn take(&mut self, burst: Uuid) -> Tally {
        let index = self.0.iter().position(|(known, _)| *known == burst);
        index.and_then(|index| self.0.remove(index)).map(|(_, tally)| tally).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_burst_is_counted_by_itself_and_their_number_is_bounded() {
        let (one, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let mut tallies = Tallies::default();
        tallies.of(one).protected += 1;
        tallies.of(one).restored += 1;
        tallies.of(other).protected += 1;
        assert_eq!(tallies.take(one), Tally { protected: 1, restored: 1 });
        assert_eq!(tallies.take(one), Tally::default());
        for burst in 10..10 + MOST as u128 {
            tallies.of(Uuid::from_u128(burst)).protected = 1;
        }
        assert_eq!(tallies.take(other), Tally::default(), "the oldest makes room");
        assert_eq!(tallies.0.len(), MOST);
    }
}
