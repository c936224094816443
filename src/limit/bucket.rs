//! The token bucket. Twin: `lua/bucket.lua`.
//!
//! Tokens, not a time-to-admit, are what is stored: when the policy changes, tokens keep their meaning.

use super::decision::Wait;
use super::policy::span;
use super::{Micros, Policy, TOLERANCE, US, Units};

/// What a bucket holds, and since when.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Tokens at `refilled_at`; at least −0.000001, the debt that rounding left.
    pub tokens: f64,
    /// When `tokens` was worked out, µs.
    pub refilled_at: Micros,
}

impl Bucket {
    /// The full bucket of a subject without state.
    #[must_use]
    pub const fn full(policy: &Policy, now: Micros) -> Self {
        Self { tokens: policy.bucket_capacity as f64, refilled_at: now }
    }

    /// The bucket at `now`, which is not before `refilled_at`.
    #[must_use]
    pub fn refilled(self, policy: &Policy, now: Micros) -> Self {
        let gained = (now - self.refilled_at) as f64 * policy.tokens_per_second / US as f64;
        Self { tokens: (self.tokens + gained).min(policy.bucket_capacity as f64), refilled_at: now }
    }

    /// How long until `cost` fits; [`Wait::NONE`] when it does.
    #[must_use]
    pub fn wait(self, policy: &Policy, cost: Units) -> Wait {
        let cost_tokens = cost as f64;
        if self.tokens >= cost_tokens - TOLERANCE {
            return Wait::NONE;
        }
        if cost > policy.bucket_capacity {
            return Wait::Never;
        }
        Wait::For(span(((cost_tokens - self.tokens) * US as f64 / policy.tokens_per_second).ceil()))
    }

    /// Whole tokens that are there to be taken.
    #[must_use]
    pub fn room(self) -> Units {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0 and above; at most the capacity")]
        let room = (self.tokens + TOLERANCE).floor().max(0.0) as Units;
        room
    }

    /// How long until the bucket is full if nobody asks, µs.
    #[must_use]
    pub fn reset_after(self, policy: &Policy) -> Micros {
        let missing = policy.bucket_capacity as f64 - self.tokens;
        if missing <= TOLERANCE { 0 } else { span((missing * US as f64 / policy.tokens_per_second).ceil()) }
    }
}
