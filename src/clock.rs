//! The only place that reads time. Everything else takes it as an argument.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::limit::Micros;

/// Where a store without a clock of its own gets the time from. (Redis has its own: `TIME`.)
pub trait Clock: Send + Sync {
    /// The time of day, µs since the Unix epoch.
    fn now(&self) -> Micros;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Micros {
        unix_micros()
    }
}

/// A clock that stands still until it is told otherwise: for tests and replays.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// A clock that shows `now`.
    #[must_use]
    pub const fn new(now: Micros) -> Self {
        Self(AtomicI64::new(now))
    }

    /// Shows `now` from here on; may step back.
    pub fn set(&self, now: Micros) {
        self.0.store(now, Ordering::SeqCst);
    }

    /// Moves on by `by`.
    pub fn advance(&self, by: Micros) {
        self.0.fetch_add(by, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Micros {
        self.0.load(Ordering::SeqCst)
    }
}

/// The time of day, µs since the Unix epoch; 0 on a machine whose clock lies before it.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn unix_micros() -> Micros {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| Micros::try_from(since.as_micros()).unwrap_or(Micros::MAX))
}

/// A moment of the monotonic clock: for durations, deadlines and cache ages, which a change of the wall clock must not touch.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub fn monotonic() -> Instant {
    Instant::now()
}

/// The time since `start` on the monotonic clock.
#[must_use]
pub fn elapsed(start: Instant) -> Duration {
    monotonic().saturating_duration_since(start)
}
