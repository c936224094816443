//! The answer to one request. A refusal is a value with a time in it, never an error and never a bare bool.

use super::{Micros, Units};

/// How long to wait. `For(0)` is no wait; `Never` is longer than any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// So many µs.
    For(Micros),
    /// Waiting does not help.
    Never,
}

impl Wait {
    /// It fits now.
    pub const NONE: Self = Self::For(0);

    /// Whether it fits now.
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }

    /// The wait in µs; nothing when waiting does not help.
    #[must_use]
    pub const fn micros(self) -> Option<Micros> {
        match self {
            Self::For(micros) => Some(micros),
            Self::Never => None,
        }
    }
}

/// One of the two limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// The token bucket.
    Bucket,
    /// The sliding window.
    Window,
}

impl Limit {
    /// The word for it in answers, headers and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Window => "window",
        }
    }
}

/// Why a request is refused (or, in shadow mode, would have been).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The bucket counts and does not hold enough.
    Bucket,
    /// The window counts and has no room.
    Window,
    /// The cost is larger than a limit that always counts: it can never fit.
    CostExceedsLimit,
    /// The policy's mode is `block`.
    Blocked,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 4] = [Self::Bucket, Self::Window, Self::CostExceedsLimit, Self::Blocked];

    /// The word for it in answers, headers and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Window => "window",
            Self::CostExceedsLimit => "cost_exceeds_limit",
            Self::Blocked => "blocked",
        }
    }
}

/// What is left, of the limit that binds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Quota {
    /// The limit that binds: the one with less room among those that count.
    pub binding: Limit,
    /// Its size.
    pub limit: Units,
    /// Its room after this request, 0 … `limit`.
    pub remaining: Units,
    /// The time until it is whole again if nobody asks, µs.
    pub reset_after: Micros,
}

/// The limits that count and did not fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Violations {
    /// The bucket did not fit.
    pub bucket: bool,
    /// The window did not fit.
    pub window: bool,
}

impl Violations {
    /// Their limits, the bucket first.
    pub fn iter(self) -> impl Iterator<Item = Limit> {
        [(self.bucket, Limit::Bucket), (self.window, Limit::Window)].into_iter().filter_map(|(violated, limit)| violated.then_some(limit))
    }
}

/// The answer to one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Decision {
    /// What to tell the caller. In shadow mode always true.
    pub admitted: bool,
    /// Why it is refused, or in shadow mode would have been.
    pub reason: Option<Reason>,
    /// [`Wait::NONE`] when it fits. Whoever waits this long, while nobody else uses the subject's quota and nobody changes
    /// it, is admitted.
    pub retry_after: Wait,
    /// What is left; nothing where no state is kept (`block`, `bypass`).
    pub quota: Option<Quota>,
    /// Whether the subject's breaker is open after this request.
    pub breaker_open: bool,
    /// Whether this request opened it.
    pub breaker_opened: bool,
    /// The limits that count and did not fit.
    pub violations: Violations,
    /// The time of the decision, on the store's clock, µs.
    pub decided_at: Micros,
}

impl Decision {
    /// The answer of a policy that keeps no state: `block` when `reason` is given, else `bypass`.
    #[must_use]
    pub(crate) const fn without_state(reason: Option<Reason>, now: Micros) -> Self {
        Self {
            admitted: reason.is_none(),
            reason,
            retry_after: if reason.is_none() { Wait::NONE } else { Wait::Never },
            quota: None,
            breaker_open: false,
            breaker_opened: false,
            violations: Violations { bucket: false, window: false },
            decided_at: now,
        }
    }
}
