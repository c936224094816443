//! When to stop asking a store that keeps failing: it is left alone for a while, so that nobody waits for it, and then tried by one at a
//! time. On the monotonic clock: a wall clock that is set back must not keep a store shut out.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{ErrorKind, StoreError};

/// Failures in a row after which the store is left alone.
const FAILURES: u32 = 3;
/// How long until one tries again. A try that is dropped on the way costs one more of these.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a failure says something about now.
const LATELY: Duration = Duration::from_secs(10);

/// Whether a store seems to be away.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    failures: AtomicU32,
    /// When the store may be tried again; looked at only after that many failures, so a store that answers costs no lock.
    try_at: Mutex<Option<Instant>>,
}

impl Guard {
    /// Whether the store may be asked at `now`.
    pub(crate) fn may_ask(&self, now: Instant) -> Result<(), StoreError> {
        if self.failures.load(Ordering::Relaxed) < FAILURES {
            return Ok(());
        }
        let mut try_at = self.try_at.lock().unwrap_or_else(PoisonError::into_inner);
        if try_at.is_some_and(|try_at| now < try_at) {
            return Err(StoreError::not_run(ErrorKind::Unavailable, "it failed a moment ago and is left alone"));
        }
        *try_at = Some(now + PAUSE);
        Ok(())
    }

    /// Whether it is being left alone, but for who tries.
    pub(crate) fn is_shut(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES
    }

    /// It could not answer. Whether it is left alone from here on, and was not before.
    pub(crate) fn failed(&self, now: Instant) -> bool {
        *self.try_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(now + PAUSE);
        self.failures.fetch_add(1, Ordering::Relaxed) + 1 == FAILURES
    }

    /// It answered. Whether it had been left alone.
    pub(crate) fn answered(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0 && self.failures.swap(0, Ordering::Relaxed) >= FAILURES
    }

    /// Whether it failed when it was last asked, and that was lately: of one that nobody asks any more nothing is known.
    pub(crate) fn is_failing(&self, now: Instant) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
            && self.try_at.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|try_at| now < try_at + LATELY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    #[test]
    fn after_three_failures_one_asks_in_each_pause_until_there_is_an_answer() {
        let (guard, start) = (Guard::default(), monotonic());
        let may = |ms| guard.may_ask(start + Duration::from_millis(ms)).is_ok();
        for _ in 0..3 {
            assert!(may(0));
            guard.failed(start);
        }
        assert!(guard.is_failing(start));
        assert_eq!([may(0), may(499), may(500), may(501), may(999), may(1_000)], [false, false, true, false, false, true]);
        assert!(guard.answered() && !guard.is_failing(start));
        assert_eq!([may(1_001), may(1_001)], [true, true]);
    }

    #[test]
    fn a_failure_now_and_then_shuts_nothing() {
        let (guard, start) = (Guard::default(), monotonic());
        for _ in 0..10 {
            let _ = (guard.failed(start), guard.answered());
            assert!(guard.may_ask(start).is_ok());
        }
    }
}
