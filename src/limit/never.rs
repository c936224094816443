//! A cost that can never fit. Twin: `lua/never.lua`.

use super::policy::{Algorithm, Policy};
use super::{Units, Violations};

/// Whether `cost` is above a limit that always counts. It is answered like a peek, and changes nothing.
#[must_use]
pub fn never_fits(policy: &Policy, cost: Units) -> bool {
    let window_always = policy.algorithm == Algorithm::SlidingWindow || (policy.algorithm == Algorithm::Hybrid && policy.trip_point == 0.0);
    (policy.uses_bucket() && cost > policy.bucket_capacity) || (window_always && cost > policy.window_limit)
}

/// The limits that are too small for `cost`.
pub(super) fn exceeded(policy: &Policy, cost: Units) -> Violations {
    Violations { bucket: policy.uses_bucket() && cost > policy.bucket_capacity, window: policy.uses_window() && cost > policy.window_limit }
}
