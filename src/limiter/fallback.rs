//! What is answered when the store cannot say: `allow`, `deny`, or `local`, this process's memory with its share of the policy.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::clock::{SystemClock, unix_micros};
use crate::config::OnFailure;
use crate::limit::{Decision, without_limits};
use crate::store::{Ask, ErrorKind, Key, MemoryStore, StoreError};

/// The most subjects that are remembered during an outage.
const MOST_SUBJECTS: usize = 100_000;

/// Stands in for a store.
pub(super) struct Fallback {
    /// How many processes share the store, as far as was last known.
    processes: AtomicU32,
    memory: MemoryStore,
    /// The memory holds something of an outage.
    used: AtomicBool,
}

impl Fallback {
    pub(super) fn new() -> Self {
        Self { processes: AtomicU32::new(1), memory: MemoryStore::new(MOST_SUBJECTS, Arc::new(SystemClock)), used: AtomicBool::new(false) }
    }

    pub(super) fn set_processes(&self, processes: u32) {
        self.processes.store(processes.max(1), Ordering::Relaxed);
    }

    /// The answer in place of the store's.
    pub(super) fn decide(&self, on_failure: OnFailure, ask: Ask<'_>, error: StoreError) -> Result<Decision, StoreError> {
        match on_failure {
            OnFailure::Allow => Ok(without_limits(ask.policy, unix_micros())),
            OnFailure::Deny => Err(error),
            // A memory that is full is not helped by another.
            OnFailure::Local if error.kind == ErrorKind::Full => Err(error),
            OnFailure::Local => {
                self.used.store(true, Ordering::Relaxed);
                let share = ask.policy.divided(self.processes.load(Ordering::Relaxed));
                self.memory.decide(Ask { policy: &share, ..ask })
            }
        }
    }

    /// The store has decided about `key`: what was counted during an outage is worth nothing once the store counts again. `failing`: a
    /// part of the store is away all the same; what was counted for its subjects stays.
    pub(super) fn store_decided(&self, key: &Key, failing: impl FnOnce() -> bool) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        if failing() {
            self.memory.forget(key);
        } else if self.used.swap(false, Ordering::Relaxed) {
            self.memory.clear();
        }
    }

    /// How many subjects are remembered of an outage.
    pub(super) fn subjects(&self) -> usize {
        self.memory.subjects()
    }

    /// Gives back memory of subjects that nobody asks about any more.
    pub(super) fn sweep(&self, looks: usize) {
        if self.used.load(Ordering::Relaxed) {
            self.memory.sweep(looks);
        }
    }
}
