//! What is answered when the store cannot say: `allow`, `deny`, or `local`, this process's memory with its share of the policy.
//!
//! A store that keeps failing is left alone ([`Guard`]), so that answers stay fast while it is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::clock::{SystemClock, monotonic, unix_micros};
use crate::config::OnFailure;
use crate::limit::{Decision, without_limits};
use crate::store::{Ask, ErrorKind, Guard, MemoryStore, StoreError};

/// The most subjects that are remembered during an outage.
const MOST_SUBJECTS: usize = 100_000;

/// Stands in for a store.
pub(super) struct Fallback {
    processes: u32,
    memory: MemoryStore,
    /// The memory holds something of an outage.
    used: AtomicBool,
    guard: Guard,
}

impl Fallback {
    pub(super) fn new(processes: u32) -> Self {
        Self {
            processes: processes.max(1),
            memory: MemoryStore::new(MOST_SUBJECTS, Arc::new(SystemClock)),
            used: AtomicBool::new(false),
            guard: Guard::default(),
        }
    }

    /// Puts `question` to the store, unless that is being left alone.
    pub(super) async fn ask<T>(&self, question: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        self.guard.may_ask(monotonic())?;
        let decided = question.await;
        match &decided {
            Ok(_) => self.succeeded(),
            // A store that is full answers, and quickly.
            Err(error) if error.kind == ErrorKind::Full => {}
            Err(_) => self.guard.failed(monotonic()),
        }
        decided
    }

    /// Whether the store is not asked for now.
    pub(super) fn leaves_alone(&self) -> bool {
        self.guard.is_shut()
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

    fn succeeded(&self) {
        self.guard.answered();
        // What was counted during the outage is worth nothing once the store counts again.
        if self.used.load(Ordering::Relaxed) && self.used.swap(false, Ordering::Relaxed) {
            self.memory.clear();
        }
    }
}
