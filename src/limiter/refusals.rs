//! Refusals, summed up for the log: one line in a while, however many there were, instead of one for each.
//!
//! Bounded: the first [`MOST_SUBJECTS`] who are refused in a stretch are counted by name, all others together.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock::{elapsed, monotonic};
use crate::identity::Subject;
use crate::limit::Reason;

/// How often a line is written.
pub(super) const SUM_UP_EVERY: Duration = Duration::from_secs(10);
/// How many subjects are told apart between two summaries.
const MOST_SUBJECTS: usize = 1_000;
/// How many of them a summary names.
const NAMED: usize = 5;

/// What was refused since the last summary.
#[derive(Debug)]
struct Tally {
    since: Instant,
    /// By [`Reason::ALL`].
    reasons: [u64; Reason::ALL.len()],
    subjects: HashMap<Subject, u64>,
    /// Refusals of subjects for whom there was no room.
    others: u64,
}

impl Default for Tally {
    fn default() -> Self {
        Self { since: monotonic(), reasons: Default::default(), subjects: HashMap::default(), others: 0 }
    }
}

/// Sums up refusals between two lines of the log.
#[derive(Debug, Default)]
pub(super) struct Refusals(Mutex<Tally>);

impl Refusals {
    /// `subject` was refused.
    pub(super) fn count(&self, subject: &Subject, reason: Option<Reason>) {
        let mut tally = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = reason.and_then(|reason| Reason::ALL.iter().position(|one| *one == reason)) {
            tally.reasons[place] += 1;
        }
        if let Some(count) = tally.subjects.get_mut(subject) {
            *count += 1;
        } else if tally.subjects.len() < MOST_SUBJECTS {
            tally.subjects.insert(subject.clone(), 1);
        } else {
            tally.others += 1;
        }
    }

    /// Writes what was refused to the log, and begins anew. Nothing when nobody was.
    pub(super) fn sum_up(&self) {
        let tally = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let refused: u64 = tally.subjects.values().sum::<u64>() + tally.others;
        if refused == 0 {
            return;
        }
        let [bucket, window, cost_exceeds_limit, blocked] = tally.reasons;
        tracing::info!(
            refused,
            bucket,
            window,
            cost_exceeds_limit,
            blocked,
            subjects = tally.subjects.len(),
            more_subjects = tally.others > 0,
            busiest = busiest(&tally.subjects),
            seconds = elapsed(tally.since).as_secs_f64(),
            "refusals since the last summary"
        );
    }
}

/// The busiest of them with their counts, as in `alice 120, ip:203.0.113.7 30`.
fn busiest(subjects: &HashMap<Subject, u64>) -> String {
    let mut sorted: Vec<_> = subjects.iter().map(|(subject, count)| (*count, subject.to_string())).collect();
    sorted.sort_unstable_by(|(count, name), (other, other_name)| other.cmp(count).then_with(|| name.cmp(other_name)));
    sorted.iter().take(NAMED).map(|(count, name)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &impl ToString) -> Subject {
        Subject::user(&id.to_string()).unwrap()
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost() {
        let refusals = Refusals::default();
        for id in 0..10 * MOST_SUBJECTS {
            refusals.count(&user(&id), Some(Reason::Bucket));
            refusals.count(&user(&7), Some(Reason::Window));
        }
        let tally = refusals.0.lock().unwrap();
        assert_eq!(tally.subjects.len(), MOST_SUBJECTS);
        assert_eq!(tally.subjects.values().sum::<u64>() + tally.others, 20 * MOST_SUBJECTS as u64);
        assert_eq!(tally.reasons, [10_000, 10_000, 0, 0]);
        assert!(busiest(&tally.subjects).starts_with("7 10001, "), "{}", busiest(&tally.subjects));
    }

    #[test]
    fn a_summary_begins_anew() {
        let refusals = Refusals::default();
        refusals.count(&user(&"a"), Some(Reason::Blocked));
        refusals.sum_up();
        assert!(refusals.0.lock().unwrap().subjects.is_empty());
    }
}
