//! A store that keeps failing is left alone for a while, so that nobody waits for it, and tried by one at a time.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::store::{ErrorKind, StoreError};

/// Failures in a row after which the store is left alone.
const FAILURES: u32 = 3;
/// How long until one tries again. A try that is dropped on the way costs one more of these.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Default)]
struct State {
    failures: u32,
    try_at: Option<Instant>,
}

/// Whether the store seems to be away.
#[derive(Default)]
pub(super) struct Away(Mutex<State>);

impl Away {
    /// Whether the store may be asked at `now`.
    pub(super) fn may_ask(&self, now: Instant) -> Result<(), StoreError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match state.try_at {
            Some(try_at) if now < try_at => Err(StoreError::not_run(ErrorKind::Unavailable, "it failed a moment ago and is left alone")),
            Some(_) => {
                state.try_at = Some(now + PAUSE);
                Ok(())
            }
            None => Ok(()),
        }
    }

    pub(super) fn failed(&self, now: Instant) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.failures += 1;
        if state.failures >= FAILURES {
            state.try_at = Some(now + PAUSE);
        }
    }

    pub(super) fn answered(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }
}
