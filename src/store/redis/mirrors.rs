//! Refusals from memory: mirrors of subjects that were refused a moment ago, so that a flood of refused requests costs the server next to
//! nothing. What a mirror may say, and for how long, is [`Mirror`]'s business; this keeps a bounded number of them, tells them the
//! server's time, and sees to it that what they saw is handed on.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::{Ask, Key};
use super::calls::Calls;
use super::script::Question;
use crate::clock::{elapsed, monotonic};
use crate::limit::{Decision, HandedOn, KEPT, Micros, Mirror, Policy, Refused};

const SHARDS: usize = 16;
/// The most mirrors of a shard: a subject beyond that is asked of the server each time.
const MOST_PER_SHARD: usize = 1_024;
/// How often old mirrors are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A mirror that is as old as this hands on what it saw, well within the second in which it must.
const OLD: Duration = Duration::from_millis(700);

struct Kept {
    mirror: Mirror,
    policy: Policy,
    /// When the server's answer was here: its clock then was the mirror's, or a little later.
    since: Instant,
}

impl Kept {
    /// The server's time, at the latest.
    fn now(&self) -> Micros {
        self.mirror.made_at() + Micros::try_from(elapsed(self.since).as_micros()).unwrap_or(Micros::MAX / 2)
    }
}

type Shard = Mutex<HashMap<Key, Kept>>;

/// The mirrors of one process.
pub(super) struct Mirrors {
    shards: Vec<Shard>,
    hasher: RandomState,
    /// How many there are, so that a process without any looks nowhere.
    kept: AtomicUsize,
    answered: AtomicU64,
    /// Somebody sees to it that what was seen is handed on.
    tended: AtomicBool,
    calls: Arc<Calls>,
    prefix: Box<str>,
}

impl Mirrors {
    pub(super) fn new(calls: Arc<Calls>, prefix: &str) -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            kept: AtomicUsize::new(0),
            answered: AtomicU64::new(0),
            tended: AtomicBool::new(false),
            calls,
            prefix: prefix.into(),
        })
    }

    /// How many requests were answered here.
    pub(super) fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// The answer, if a mirror has one.
    pub(super) fn decide(&self, ask: Ask<'_>) -> Option<Decision> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut shard = self.shard(ask.key);
        let kept = shard.get_mut(ask.key).filter(|kept| kept.policy == *ask.policy)?;
        let now = ask.at.unwrap_or_else(|| kept.now());
        let decision = kept.mirror.decide(ask.policy, now, ask.cost)?;
        drop(shard);
        self.answered.fetch_add(1, Ordering::Relaxed);
        Some(decision)
    }

    /// What the mirror of `key` has seen, for a question that will write it; the mirror is gone.
    pub(super) fn take(&self, key: &Key) -> Option<HandedOn> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.remove(&mut self.shard(key), key).and_then(|kept| kept.mirror.handed_on())
    }

    /// The same for a question that will not write it; the mirror stays.
    pub(super) fn peek(&self, key: &Key) -> Option<HandedOn> {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return None;
        }
        self.shard(key).get(key).and_then(|kept| kept.mirror.handed_on())
    }

    /// Remembers a refusal, unless a later one is remembered.
    pub(super) fn keep(self: &Arc<Self>, ask: Ask<'_>, refused: Refused) {
        let mut shard = self.shard(ask.key);
        let known = shard.get(ask.key);
        if known.is_none() && shard.len() >= MOST_PER_SHARD || known.is_some_and(|kept| kept.mirror.made_at() > refused.decided_at) {
            return;
        }
        let kept = Kept { mirror: Mirror::new(refused), policy: ask.policy.clone(), since: monotonic() };
        if shard.insert(ask.key.clone(), kept).is_none() {
            self.kept.fetch_add(1, Ordering::Relaxed);
        }
        drop(shard);
        if !self.tended.swap(true, Ordering::SeqCst) {
            tokio::spawn(Tending(Arc::clone(self)).tend());
        }
    }

    /// Forgets what was refused to `key` up to `decided_at` (µs): it was admitted then, or what it has was reset.
    pub(super) fn forget(&self, key: &Key, decided_at: Micros) {
        if self.kept.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut shard = self.shard(key);
        if shard.get(key).is_some_and(|kept| kept.mirror.made_at() <= decided_at) {
            self.remove(&mut shard, key);
        }
    }

    /// Takes the mirrors that are old, and what of them must be handed on.
    fn take_old(&self) -> Vec<(Key, Policy, HandedOn)> {
        let mut old = Vec::new();
        if self.kept.load(Ordering::Relaxed) == 0 {
            return old;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            let keys: Vec<Key> = shard.iter().filter(|(_, kept)| elapsed(kept.since) >= OLD).map(|(key, _)| key.clone()).collect();
            for key in keys {
                if let Some(kept) = self.remove(&mut shard, &key)
                    && let Some(handed_on) = kept.mirror.handed_on()
                {
                    old.push((key, kept.policy, handed_on));
                }
            }
        }
        old
    }

    fn remove(&self, shard: &mut HashMap<Key, Kept>, key: &Key) -> Option<Kept> {
        let kept = shard.remove(key)?;
        self.kept.fetch_sub(1, Ordering::Relaxed);
        Some(kept)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the number of shards")]
    fn shard(&self, key: &Key) -> MutexGuard<'_, HashMap<Key, Kept>> {
        lock(&self.shards[(self.hasher.hash_one(key) % SHARDS as u64) as usize])
    }
}

/// Hands on what old mirrors saw, for as long as there are any.
struct Tending(Arc<Mirrors>);

impl Tending {
    async fn tend(self) {
        let Mirrors { kept, tended, prefix, calls, .. } = &*self.0;
        loop {
            while kept.load(Ordering::SeqCst) > 0 {
                tokio::time::sleep(LOOK_EVERY).await;
                let old = self.0.take_old();
                let handed_on =
                    old.iter().map(|(key, policy, handed_on)| calls.ask(key.as_str(), Question::hand_on(prefix, key, policy, handed_on)));
                // What the server cannot take is lost: load of the last second.
                futures_util::future::join_all(handed_on).await;
            }
            tended.store(false, Ordering::SeqCst);
            // One may have come in between, whose keeper thought that it is tended.
            if kept.load(Ordering::SeqCst) == 0 || tended.swap(true, Ordering::SeqCst) {
                return;
            }
        }
    }
}

impl Drop for Tending {
    /// The runtime that it lived in has ended, or there is nothing to tend. (Should another tend by now, there are two for a while.)
    fn drop(&mut self) {
        self.0.tended.store(false, Ordering::SeqCst);
    }
}

fn lock(shard: &Shard) -> MutexGuard<'_, HashMap<Key, Kept>> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

const _: () = assert!(KEPT >= 1_000_000 && OLD.as_millis() < 1_000);
