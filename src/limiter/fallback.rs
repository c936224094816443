//! What is answered when the store cannot say: `allow`, `deny`, or `local`, this process's memory with its share of the policy.
//!
//! After a few failures in a row the store is left alone for a moment and then tried by one request at a time, so that answers stay fast
//! while it is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::clock::{SystemClock, unix_micros};
use crate::config::OnFailure;
use crate::limit::{Decision, Micros, US, without_limits};
use crate::store::{Ask, ErrorKind, MemoryStore, StoreError};

/// Failures in a row after which the store is left alone.
const FAILURES: u32 = 3;
/// How long it is left alone before one request tries it, µs.
const PAUSE: Micros = US / 2;
/// The most subjects that are remembered during an outage.
const MOST_SUBJECTS: usize = 100_000;

/// Stands in for a store.
pub(super) struct Fallback {
    processes: u32,
    memory: MemoryStore,
    /// The memory holds something of an outage.
    used: AtomicBool,
    failures: AtomicU32,
    /// When the store may be tried again, µs.
    try_at: AtomicU64,
}

impl Fallback {
    pub(super) fn new(processes: u32) -> Self {
        Self {
            processes: processes.max(1),
            memory: MemoryStore::new(MOST_SUBJECTS, Arc::new(SystemClock)),
            used: AtomicBool::new(false),
            failures: AtomicU32::new(0),
            try_at: AtomicU64::new(0),
        }
    }

    /// Puts `question` to the store, unless that is being left alone.
    pub(super) async fn ask<T>(&self, question: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.failures.load(Ordering::Relaxed) >= FAILURES && !self.may_try() {
            return Err(StoreError::not_run(ErrorKind::Unavailable, "it failed a moment ago and is left alone"));
        }
        let decided = question.await;
        match &decided {
            Ok(_) => self.succeeded(),
            // A store that is full answers, and quickly.
            Err(error) if error.kind == ErrorKind::Full => {}
            Err(_) => {
                self.failures.fetch_add(1, Ordering::Relaxed);
                self.try_at.store(later(PAUSE), Ordering::Relaxed);
            }
        }
        decided
    }

    /// The answer in place of the store's.
    pub(super) fn decide(&self, on_failure: OnFailure, ask: Ask<'_>, error: StoreError) -> Result<Decision, StoreError> {
        match on_failure {
            OnFailure::Allow => Ok(without_limits(ask.policy, unix_micros())),
            OnFailure::Deny => Err(error),
            OnFailure::Local => {
                self.used.store(true, Ordering::Relaxed);
                let share = ask.policy.divided(self.processes);
                self.memory.decide(Ask { policy: &share, ..ask })
            }
        }
    }

    /// One request at a time, each once the pause is over. (A try that hangs is over when its deadline is.)
    fn may_try(&self) -> bool {
        let due = self.try_at.load(Ordering::Relaxed);
        due <= later(0) && self.try_at.compare_exchange(due, later(PAUSE), Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn succeeded(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
        // What was counted during the outage is worth nothing once the store counts again.
        if self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed) {
            self.memory.clear();
        }
    }
}

fn later(by: Micros) -> u64 {
    u64::try_from(unix_micros() + by).unwrap_or(0)
}
