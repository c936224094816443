//! How many different subjects were met lately, in bounded memory.
//!
//! Linear counting: each subject sets one bit of a map, and the share of bits that are still clear tells how many set them. With 65 536
//! bits the error is below 1 % up to a hundred thousand subjects, and the estimate stops at about 700 000. Two maps take turns: what
//! is told is what is in either, so a subject counts for one to two [`TURN`]s after it was last met.

use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long one map is written.
const TURN: Duration = Duration::from_secs(10);
const WORDS: usize = 1_024;
const BITS: u64 = 64 * WORDS as u64;

type Map = Box<[AtomicU64]>;

/// Estimates how many different subjects were met within the last ten to twenty seconds; 16 KiB, whoever comes.
pub(super) struct Distinct {
    hasher: RandomState,
    start: Instant,
    maps: [Map; 2],
    /// Which turn it is; read without the lock, changed under it.
    turn: AtomicU64,
    turning: Mutex<()>,
}

impl Distinct {
    /// Nobody was met before `start`.
    pub(super) fn new(start: Instant) -> Self {
        let map = || (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        Self { hasher: RandomState::new(), start, maps: [map(), map()], turn: AtomicU64::new(0), turning: Mutex::default() }
    }

    /// `subject` was met at `now`.
    pub(super) fn met(&self, subject: impl Hash, now: Instant) {
        let map = &self.maps[usize::from(!self.turn_to(now).is_multiple_of(2))];
        let bit = self.hasher.hash_one(subject) % BITS;
        // The remainder is below the number of bits, so the quotient is below the number of words.
        if let Some(word) = usize::try_from(bit / 64).ok().and_then(|word| map.get(word)) {
            let mask = 1 << (bit % 64);
            if word.load(Ordering::Relaxed) & mask == 0 {
                word.fetch_or(mask, Ordering::Relaxed);
            }
        }
    }

    /// About how many were met lately.
    #[expect(clippy::cast_possible_truncation, reason = "an estimate of at most 65 536 × ln 65 536")]
    pub(super) fn count(&self, now: Instant) -> i64 {
        self.turn_to(now);
        let both = self.maps[0].iter().zip(&self.maps[1]);
        let clear: u32 = both.map(|(one, two)| (one.load(Ordering::Relaxed) | two.load(Ordering::Relaxed)).count_zeros()).sum();
        let share = f64::from(clear.max(1)) / BITS as f64;
        (-(BITS as f64) * share.ln()).round() as i64
    }

    /// Clears what is too old at `now`, and tells which turn it is.
    fn turn_to(&self, now: Instant) -> u64 {
        let due = now.saturating_duration_since(self.start).as_secs() / TURN.as_secs();
        if self.turn.load(Ordering::Acquire) >= due {
            return due;
        }
        let _alone = self.turning.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = self.turn.load(Ordering::Acquire);
        for old in (turn + 1..=due).take(2) {
            // After a long silence both go, in whichever order.
            self.maps[usize::from(!old.is_multiple_of(2))].iter().for_each(|word| word.store(0, Ordering::Relaxed));
        }
        self.turn.store(due.max(turn), Ordering::Release);
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn the_estimate_is_within_two_percent_up_to_a_hundred_thousand_and_repetition_counts_nothing() {
        for many in [0_i64, 1, 100, 1_000, 10_000, 100_000] {
            let start = monotonic();
            let distinct = Distinct::new(start);
            for subject in (0..many).chain(0..many) {
                distinct.met(subject, start);
            }
            let off = (distinct.count(start) - many).abs();
            assert!(off <= 1 + many / 50, "{} for {many}", distinct.count(start));
        }
    }

    #[test]
    fn who_is_not_met_again_is_forgotten_after_two_turns_at_most() {
        let start = monotonic();
        let distinct = Distinct::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        distinct.met("a", at(1));
        distinct.met("b", at(9));
        distinct.met("b", at(12));
        assert_eq!([distinct.count(at(12)), distinct.count(at(19)), distinct.count(at(20)), distinct.count(at(30))], [2, 2, 1, 0]);
        distinct.met("c", at(31));
        assert_eq!([distinct.count(at(39)), distinct.count(at(500))], [1, 0]);
    }

    #[test]
    fn a_map_that_is_full_tells_a_number() {
        let start = monotonic();
        let distinct = Distinct::new(start);
        for map in &distinct.maps {
            map.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
        }
        assert!((700_000..800_000).contains(&distinct.count(start)));
    }
}
