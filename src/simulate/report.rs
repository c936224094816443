//! What a replay found, per user and overall.

use std::collections::HashMap;

use serde::{Serialize, Serializer};

use super::BadLines;
use crate::identity::Subject;
use crate::limit::{Decision, Micros, Reason, Wait};

/// How many users are counted one by one; those that turn up later are counted together.
pub const MAX_COUNTED_USERS: usize = 100_000;

/// What happened to some requests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests that were decided. Peeks (cost 0) count too.
    pub requests: u64,
    /// Of these, admitted.
    pub admitted: u64,
    /// Of these, not fitting, in the order of [`Reason::ALL`].
    pub reasons: [u64; Reason::ALL.len()],
    /// Admitted although they did not fit (mode `shadow`).
    pub shadowed: u64,
    /// The longest finite wait that a refusal named, µs.
    pub longest_wait: Micros,
    /// Requests that the store had no room to decide.
    pub undecided: u64,
}

impl Tally {
    /// Requests that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.requests - self.admitted
    }

    /// Admitted ÷ decided, 0 … 1; 1 without requests.
    #[must_use]
    pub fn success_rate(&self) -> f64 {
        if self.requests == 0 { 1.0 } else { self.admitted as f64 / self.requests as f64 }
    }

    fn count(&mut self, decision: Option<&Decision>) {
        let Some(decision) = decision else {
            self.undecided += 1;
            return;
        };
        self.requests += 1;
        self.admitted += u64::from(decision.admitted);
        if let Some(reason) = decision.reason {
            self.reasons[reason as usize] += 1;
            self.shadowed += u64::from(decision.admitted);
        }
        if let Wait::For(wait) = decision.retry_after {
            self.longest_wait = self.longest_wait.max(wait);
        }
    }

    /// Adds what happened to others.
    pub fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.admitted += other.admitted;
        self.shadowed += other.shadowed;
        self.undecided += other.undecided;
        self.longest_wait = self.longest_wait.max(other.longest_wait);
        for (sum, count) in self.reasons.iter_mut().zip(other.reasons) {
            *sum += count;
        }
    }
}

impl Serialize for Tally {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let reasons: serde_json::Map<_, _> =
            Reason::ALL.into_iter().zip(self.reasons).map(|(reason, count)| (reason.name().to_owned(), count.into())).collect();
        serde_json::json!({
            "requests": self.requests,
            "admitted": self.admitted,
            "refused": self.refused(),
            "reasons": reasons,
            "shadowed": self.shadowed,
            "undecided": self.undecided,
            "success_rate": self.success_rate(),
            "longest_wait_us": self.longest_wait,
        })
        .serialize(serializer)
    }
}

/// What a replay found.
#[derive(Debug, Default)]
pub struct Report {
    /// Lines that could not be used.
    pub bad_lines: BadLines,
    /// Lines read, bad and empty ones too.
    pub lines: u64,
    /// Whether times are those of an access log: whole seconds, spread evenly.
    pub spread: bool,
    /// Lines of an access log that came too late to be put in their place.
    pub late_lines: u64,
    /// All requests.
    pub overall: Tally,
    /// Those of users beyond [`MAX_COUNTED_USERS`].
    pub uncounted: Tally,
    users: HashMap<Subject, Tally>,
}

impl Report {
    /// Counts one request; nothing is a store without room.
    pub(super) fn count(&mut self, subject: &Subject, decision: Option<&Decision>) {
        self.overall.count(decision);
        if let Some(tally) = self.users.get_mut(subject) {
            tally.count(decision);
        } else if self.users.len() < MAX_COUNTED_USERS {
            self.users.entry(subject.clone()).or_default().count(decision);
        } else {
            self.uncounted.count(decision);
        }
    }

    /// How many users are counted one by one.
    #[must_use]
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// The `most` users with the most refusals (then requests, then by name), and how many others there are and what happened
    /// to them; those not counted one by one are among the others' requests but not in their number.
    #[must_use]
    pub fn top(&self, most: usize) -> (Vec<(String, Tally)>, usize, Tally) {
        let mut users: Vec<_> = self.users.iter().map(|(subject, tally)| (subject.to_string(), *tally)).collect();
        users.sort_unstable_by(|(a_name, a), (b_name, b)| {
            (b.refused(), b.shadowed, b.requests).cmp(&(a.refused(), a.shadowed, a.requests)).then_with(|| a_name.cmp(b_name))
        });
        let others = users.split_off(most.min(users.len()));
        let mut rest = self.uncounted;
        for (_, tally) in &others {
            rest.add(tally);
        }
        (users, others.len(), rest)
    }
}
