//! The lines of an access log in the order of their seconds, spread evenly within each.
//!
//! A log is written as requests complete and flushed by several workers, so its lines are nearly but not quite in order. A
//! buffer of [`LINES_HELD`] lines puts them right without holding the log: only when it is full does the earliest second leave,
//! whole. A single line with a date far ahead waits at the end and harms nothing.

use std::collections::BTreeMap;

use crate::identity::Subject;
use crate::limit::{Micros, US};

/// How many lines a line may come too late and still be put in its place.
pub const LINES_HELD: usize = 50_000;

#[derive(Default)]
pub(super) struct Order {
    seconds: BTreeMap<i64, Vec<Subject>>,
    held: usize,
    /// The last time given out.
    reached: Micros,
    /// Lines that came after their second had left.
    late: u64,
}

impl Order {
    pub(super) fn add(&mut self, second: i64, subject: Subject) {
        self.seconds.entry(second).or_default().push(subject);
        self.held += 1;
    }

    /// Whether the earliest second must leave before another line is added.
    pub(super) const fn is_full(&self) -> bool {
        self.held >= LINES_HELD
    }

    /// Takes the earliest second out: its requests in the order of the log, evenly over it. One whose time has passed happens at
    /// the time reached, as a clock that steps back would be taken for corrected, and what is known of the subject dropped.
    pub(super) fn take(&mut self) -> Option<Vec<(Micros, Subject)>> {
        let (second, subjects) = self.seconds.pop_first()?;
        self.held -= subjects.len();
        let start = second.saturating_mul(US);
        let count = subjects.len();
        let times = (0..count).map(|index| start.saturating_add(offset(index, count)));
        let mut taken = Vec::with_capacity(count);
        for (at, subject) in times.zip(subjects) {
            if at < self.reached {
                self.late += 1;
            }
            self.reached = self.reached.max(at);
            taken.push((self.reached, subject));
        }
        Some(taken)
    }

    /// How many lines came too late.
    pub(super) const fn late(&self) -> u64 {
        self.late
    }
}

/// Where the `index`th of `count` stands within a second, µs.
fn offset(index: usize, count: usize) -> Micros {
    let (index, count) = (Micros::try_from(index).unwrap_or(0), Micros::try_from(count).unwrap_or(1));
    index * US / count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str) -> Subject {
        Subject::user(id).expect("a valid id")
    }

    #[test]
    fn lines_are_sorted_by_second_and_spread_within_it() {
        let mut order = Order::default();
        for (second, id) in [(11, "c"), (10, "a"), (11, "d"), (10, "b")] {
            order.add(second, user(id));
        }
        let taken: Vec<_> = std::iter::from_fn(|| order.take()).flatten().collect();
        assert_eq!(taken, [(10_000_000, user("a")), (10_500_000, user("b")), (11_000_000, user("c")), (11_500_000, user("d"))]);
        assert_eq!(order.late(), 0);
    }

    #[test]
    fn a_line_whose_second_has_left_is_counted_and_happens_at_the_time_reached() {
        let mut order = Order::default();
        order.add(10, user("a"));
        assert!(order.take().is_some());
        order.add(9, user("b"));
        assert_eq!(order.take(), Some(vec![(10_000_000, user("b"))]));
        assert_eq!(order.late(), 1);
    }

    #[test]
    fn it_is_full_at_its_bound() {
        let mut order = Order::default();
        for _ in 0..LINES_HELD {
            assert!(!order.is_full());
            order.add(1, user("a"));
        }
        assert!(order.is_full());
    }
}
