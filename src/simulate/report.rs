//! What a replay found, per user and in all, in bounded memory.

use std::collections::HashMap;

use serde::Serialize;

use crate::limit::{Decision, Micros, Reason, US};

/// Users that are counted one by one; the others are counted together.
const MOST_USERS: usize = 100_000;
/// Bad lines that are named; the others are counted.
const MOST_NAMED: usize = 20;

/// Counts of one user, or of all.
#[derive(Debug, Clone, Default, Serialize, PartialEq)]
pub struct UserReport {
    /// Requests, peeks too.
    pub requests: u64,
    /// Requests that were admitted.
    pub admitted: u64,
    /// Requests refused by the bucket.
    pub refused_by_bucket: u64,
    /// Requests refused by the window.
    pub refused_by_window: u64,
    /// Requests whose cost could never fit, or whose user is blocked.
    pub refused_for_good: u64,
    /// Requests that mode `shadow` admitted and `enforce` would not have.
    pub shadow_refused: u64,
    /// The longest wait that a refusal named, seconds.
    pub longest_wait_seconds: f64,
}

impl UserReport {
    fn add(&mut self, decision: &Decision) {
        self.requests += 1;
        if decision.admitted {
            self.admitted += 1;
            self.shadow_refused += u64::from(decision.reason.is_some());
            return;
        }
        match decision.reason {
            Some(Reason::Bucket) => self.refused_by_bucket += 1,
            Some(Reason::Window) => self.refused_by_window += 1,
            Some(Reason::CostExceedsLimit | Reason::Blocked) | None => self.refused_for_good += 1,
        }
        self.longest_wait_seconds = self.longest_wait_seconds.max(decision.retry_after.micros().map_or(0.0, seconds));
    }

    /// Requests that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.requests - self.admitted
    }

    /// The share of requests that were admitted, 0 … 1; 1 when there were none.
    #[must_use]
    pub fn success_rate(&self) -> f64 {
        if self.requests == 0 { 1.0 } else { self.admitted as f64 / self.requests as f64 }
    }
}

/// What a replay found.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    users: HashMap<String, UserReport>,
    /// All together.
    pub overall: UserReport,
    /// The users beyond the first 100 000, together.
    pub other_users: UserReport,
    /// Lines that could not be understood.
    pub bad_lines: u64,
    /// The first of them, with what is wrong.
    pub first_bad_lines: Vec<(u64, String)>,
    /// Requests that the store could not decide: it was full of active subjects.
    pub undecided: u64,
    /// Lines of an access log that came too late to be put in order.
    pub late_lines: u64,
    /// Whether times were whole seconds and were spread within them.
    pub times_were_spread: bool,
}

impl Report {
    /// A request of `user` was decided.
    pub fn add(&mut self, user: &str, decision: &Decision) {
        self.overall.add(decision);
        if let Some(report) = self.users.get_mut(user) {
            report.add(decision);
        } else if self.users.len() < MOST_USERS {
            self.users.entry(user.to_owned()).or_default().add(decision);
        } else {
            self.other_users.add(decision);
        }
    }

    /// A line could not be understood.
    pub fn add_bad(&mut self, line: u64, why: String) {
        self.bad_lines += 1;
        if self.first_bad_lines.len() < MOST_NAMED {
            self.first_bad_lines.push((line, why));
        }
    }

    /// The `most` users with the most refusals, then with the most requests; and the others together, with their number.
    #[must_use]
    pub fn busiest(&self, most: usize) -> (Vec<(&str, &UserReport)>, usize) {
        let mut users: Vec<_> = self.users.iter().map(|(user, report)| (user.as_str(), report)).collect();
        users.sort_by(|(name, a), (other, b)| (b.refused(), b.requests).cmp(&(a.refused(), a.requests)).then_with(|| name.cmp(other)));
        let others = users.len().saturating_sub(most);
        users.truncate(most);
        (users, others)
    }
}

fn seconds(span: Micros) -> f64 {
    span as f64 / US as f64
}
