//! The load of a subject, and the breaker that it opens. Twin: `lua/load.lua`.
//!
//! The load is the cost that arrived during the last second, admitted or not: two counters by whole second, the older one
//! weighted with the share of it that the last second still covers.

use super::{Micros, Policy, TOLERANCE, US, Units};

/// Cost that arrived, by whole second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Load {
    /// The whole second (`now // US`) that `current` counts.
    pub second: i64,
    /// Cost that arrived in that second.
    pub current: f64,
    /// Cost that arrived in the second before.
    pub previous: f64,
}

impl Load {
    /// No load at `now`.
    #[must_use]
    pub const fn none(now: Micros) -> Self {
        Self { second: now.div_euclid(US), current: 0.0, previous: 0.0 }
    }

    /// The counters moved on to the second of `now`.
    #[must_use]
    pub fn rolled(self, now: Micros) -> Self {
        let second = now.div_euclid(US);
        if second == self.second {
            self
        } else if second == self.second + 1 {
            Self { second, current: 0.0, previous: self.current }
        } else {
            Self { second, current: 0.0, previous: 0.0 }
        }
    }

    /// The load at `at`, which is not before the second counted, if nothing more arrives.
    #[must_use]
    pub fn at(self, at: Micros) -> f64 {
        let second = at.div_euclid(US);
        let share = 1.0 - (at - second * US) as f64 / US as f64;
        if second == self.second {
            self.current + self.previous * share
        } else if second == self.second + 1 {
            self.current * share
        } else {
            0.0
        }
    }

    /// Whether the load at `at` is above the policy's trip point.
    #[must_use]
    pub fn trips(self, policy: &Policy, at: Micros) -> bool {
        self.at(at) > policy.trip_point + TOLERANCE
    }

    /// With `cost` arrived.
    #[must_use]
    pub fn plus(self, cost: Units) -> Self {
        Self { current: self.current + cost as f64, ..self }
    }
}

/// Open while the load is, or was a moment ago, above the trip point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Breaker {
    /// Open before this time, µs; 0 when it never opened.
    pub open_until: Micros,
}

impl Breaker {
    /// Whether it is open at `now`; a trip point of 0 keeps it open.
    #[must_use]
    pub fn is_open(self, policy: &Policy, now: Micros) -> bool {
        now < self.open_until || policy.trip_point == 0.0
    }
}
