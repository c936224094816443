//! Each admission with its time and cost. Twin: `lua/window/exact.lua`.

use std::collections::VecDeque;

use super::Used;
use crate::limit::decision::Wait;
use crate::limit::{Micros, Policy, Units};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Micros,
    cost: Units,
}

/// Admissions in the order of their times. Holds at most `window_limit` units plus one entry: older ones can decide nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExactWindow {
    entries: VecDeque<Entry>,
    total: Units,
}

impl ExactWindow {
    /// How many admissions are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn used(&self, policy: &Policy, now: Micros, cost: Units) -> Used {
        let mut counted = self.entries.iter().skip_while(|entry| is_out(**entry, policy, now)).copied().peekable();
        let units = if self.entries.front().is_none_or(|oldest| !is_out(*oldest, policy, now)) {
            self.total
        } else {
            counted.clone().map(|entry| entry.cost).sum()
        };
        let empty_at = counted.peek().and_then(|_| self.empty_at(policy));
        Used { units, wait: wait(counted, units, policy, now, cost), empty_at }
    }

    pub(super) fn write(&mut self, policy: &Policy, now: Micros, admitted: Units) {
        while let Some(oldest) = self.entries.front()
            && is_out(*oldest, policy, now)
        {
            self.drop_oldest();
        }
        if admitted == 0 {
            return;
        }
        let later = self.entries.iter().rev().take_while(|entry| entry.at > now).count();
        self.entries.insert(self.entries.len() - later, Entry { at: now, cost: admitted });
        self.total += admitted;
        while let Some(oldest) = self.entries.front()
            && self.total - oldest.cost > policy.window_limit
        {
            self.drop_oldest();
        }
    }

    pub(super) fn drop_after(&mut self, now: Micros) {
        while let Some(newest) = self.entries.back()
            && newest.at > now
        {
            self.total -= newest.cost;
            self.entries.pop_back();
        }
    }

    /// When the newest will have left, µs; nothing when nothing is remembered.
    pub(super) fn empty_at(&self, policy: &Policy) -> Option<Micros> {
        self.entries.back().map(|newest| newest.at + policy.window)
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.entries.pop_front() {
            self.total -= oldest.cost;
        }
    }
}

/// An entry at `t` counts while `now − t` is less than the window.
const fn is_out(entry: Entry, policy: &Policy, now: Micros) -> bool {
    now - entry.at >= policy.window
}

/// The time until enough of the oldest have left: as many as it takes.
fn wait(counted: impl Iterator<Item = Entry>, used: Units, policy: &Policy, now: Micros, cost: Units) -> Wait {
    if used + cost <= policy.window_limit {
        return Wait::NONE;
    }
    if cost > policy.window_limit {
        return Wait::Never;
    }
    let mut left = used;
    for entry in counted {
        left -= entry.cost;
        if left + cost <= policy.window_limit {
            return Wait::For(entry.at + policy.window - now);
        }
    }
    Wait::NONE
}
