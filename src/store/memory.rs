//! State in this process's memory: for one instance on its own, for replays, and while Redis is away.
//!
//! Subjects are spread over shards, each a map behind a lock that is held for one decision. The number of subjects is
//! bounded. A subject whose state equals no state may be forgotten, and only such a one is: a subject that is being
//! refused, or has taken anything lately, is never pushed out by newcomers. When all are active, newcomers get an error,
//! and with it whatever the operator chose for a store that cannot answer.
//!
//! Requests never sweep. A new subject in a full shard looks at a few others at most; [`MemoryStore::sweep`] walks a bounded
//! stretch and is called from a timer.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use indexmap::IndexMap;

use super::{Ask, ErrorKind, Key, Store, StoreError};
use crate::clock::Clock;
use crate::limit::{Decision, EXPIRY_MARGIN, Micros, Policy, State, decide};

/// How many shards at most; locks are held for less than a microsecond, so this is plenty for any machine.
const MOST_SHARDS: usize = 64;
/// Below this many subjects a shard is not worth splitting.
const LEAST_PER_SHARD: usize = 1_024;
/// How many others a newcomer to a full shard looks at.
const LOOKS_PER_NEWCOMER: usize = 32;

struct Slot {
    state: State,
    /// When the state equals no state, µs.
    as_new_at: Micros,
}

#[derive(Default)]
struct Shard {
    slots: IndexMap<Key, Slot, RandomState>,
    /// Where the next look for a subject to forget begins.
    hand: usize,
}

/// Keeps state in memory, at most `max_subjects` of it.
pub struct MemoryStore {
    shards: Vec<Mutex<Shard>>,
    most_per_shard: usize,
    hasher: RandomState,
    clock: Arc<dyn Clock>,
}

impl MemoryStore {
    /// An empty store for at most `max_subjects` (at least 1) that takes the time from `clock`.
    #[must_use]
    pub fn new(max_subjects: usize, clock: Arc<dyn Clock>) -> Self {
        let shards = (max_subjects / LEAST_PER_SHARD).clamp(1, MOST_SHARDS);
        Self {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            most_per_shard: (max_subjects / shards).max(1),
            hasher: RandomState::new(),
            clock,
        }
    }

    /// How many subjects are remembered.
    #[must_use]
    pub fn subjects(&self) -> usize {
        self.shards.iter().map(|shard| lock(shard).slots.len()).sum()
    }

    /// How many can be remembered at most.
    #[must_use]
    pub const fn most_subjects(&self) -> usize {
        self.most_per_shard * self.shards.len()
    }

    /// How many admissions or slices the windows of a subject remember.
    #[must_use]
    pub fn window_entries(&self, key: &Key) -> usize {
        lock(self.shard(key)).slots.get(key).map_or(0, |slot| slot.state.window_entries())
    }

    /// Forgets the state of one subject.
    pub fn forget(&self, key: &Key) {
        lock(self.shard(key)).slots.swap_remove(key);
    }

    /// Forgets everything.
    pub fn clear(&self) {
        for shard in &self.shards {
            *lock(shard) = Shard::default();
        }
    }

    /// Looks at up to `looks` subjects of each shard and forgets those whose state has equalled no state for a minute.
    /// Bounded work for a timer; gives back memory that a wave of subjects left behind.
    pub fn sweep(&self, looks: usize) {
        let now = self.clock.now();
        for shard in &self.shards {
            let mut shard = lock(shard);
            for _ in 0..looks.min(shard.slots.len()) {
                shard.look(now - EXPIRY_MARGIN);
            }
            if shard.slots.capacity() > 4 * shard.slots.len().max(LEAST_PER_SHARD) {
                let keep = 2 * shard.slots.len();
                shard.slots.shrink_to(keep);
            }
        }
    }

    /// [`Store::decide`] without the async: nothing here ever waits.
    ///
    /// # Errors
    /// [`ErrorKind::Full`] when there is no room for a subject never seen.
    pub fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        let now = ask.at.unwrap_or_else(|| self.clock.now());
        let mut shard = lock(self.shard(ask.key));
        if let Some(slot) = shard.slots.get_mut(ask.key) {
            let decision = decide(ask.policy, &mut slot.state, now, ask.cost);
            slot.as_new_at = slot.state.as_new_at(ask.policy);
            return Ok(decision);
        }
        let mut state = State::default();
        let decision = decide(ask.policy, &mut state, now, ask.cost);
        if state != State::default() {
            if shard.slots.len() >= self.most_per_shard && !(0..LOOKS_PER_NEWCOMER).any(|_| shard.look(now)) {
                return Err(StoreError::not_run(ErrorKind::Full, format!("it holds {} active subjects", self.most_subjects())));
            }
            let as_new_at = state.as_new_at(ask.policy);
            shard.slots.insert(ask.key.clone(), Slot { state, as_new_at });
        }
        Ok(decision)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the number of shards")]
    fn shard(&self, key: &Key) -> &Mutex<Shard> {
        let index = self.hasher.hash_one(key) % self.shards.len() as u64;
        &self.shards[index as usize]
    }
}

impl Shard {
    /// Looks at the next subject and forgets it if its state equals no state at `now`. Whether it did.
    fn look(&mut self, now: Micros) -> bool {
        if self.hand >= self.slots.len() {
            self.hand = 0;
        }
        let forget = self.slots.get_index(self.hand).is_some_and(|(_, slot)| slot.as_new_at <= now);
        if forget {
            self.slots.swap_remove_index(self.hand);
        } else {
            self.hand += 1;
        }
        forget
    }
}

/// A panic while a shard was locked (there is no known one) left whole values behind: the state is written last.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Store for MemoryStore {
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        self.decide(ask)
    }

    async fn reset(&self, key: &Key, _policy: &Policy) -> Result<(), StoreError> {
        self.forget(key);
        Ok(())
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
