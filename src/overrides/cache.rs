//! Overrides as a process remembers them for up to half a minute.
//!
//! What is remembered may be stale in two known ways: a change made through Weir is announced and forgotten at once ([`Cache::heed`]);
//! one made behind its back is found when the entry is read anew, within [`FRESH`]. An error is never remembered as "no override":
//! the last good value stays for as long as the store is away.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use indexmap::IndexMap;
use tokio::sync::Mutex as AsyncMutex;

use super::{News, OverrideStore, Stored, Target};
use crate::limit::{Micros, Policy};
use crate::store::{Guard, Key, StoreError};

mod look;
pub use look::{Look, Looked};

/// The longest that an entry is believed without another look.
pub const FRESH: Duration = Duration::from_secs(30);
/// How long the last good value is believed after a look that failed, and how long one who looks may take before another does.
const RETRY: Duration = Duration::from_secs(1);
const SHARDS: usize = 64;
/// The most entries of a shard.
const MOST_PER_SHARD: usize = 4_096;
/// How many subjects can be looked for at a time, at most: each has one of these to itself, but for collisions.
const STRIPES: usize = 1_024;

/// What is set for a target, and the policy that it makes.
#[derive(Debug, Default)]
pub struct Known {
    /// What the store had.
    pub stored: Stored,
    /// The policy that was worked out last.
    made: ArcSwapOption<Made>,
    /// Somebody is taking away the temporary part.
    ending: AtomicBool,
}

/// A policy, and what it was worked out from.
#[derive(Debug)]
struct Made {
    /// The config.
    generation: u64,
    /// Whether the temporary parts counted: this one's, and the general one's.
    temporary: [bool; 2],
    /// What is set in general, where this is what is set for a route.
    general: Option<Arc<Known>>,
    policy: Arc<Policy>,
}

impl Known {
    /// Whether the time of a temporary part is over at `now` (µs, asked only when there is one) and nobody has seen it here before.
    pub fn first_to_see_the_end(&self, now: impl FnOnce() -> Micros) -> bool {
        let over = self.stored.own.temporary.as_ref().is_some_and(|temporary| temporary.until <= now());
        over && !self.ending.swap(true, Ordering::Relaxed)
    }

    /// The policy that this makes at `now` (µs) with the config of `generation`, over what is set in general if this is for a route;
    /// worked out by `make` when any of it is another than last time.
    pub fn policy(&self, generation: u64, general: Option<&Arc<Self>>, now: Micros, make: impl FnOnce() -> Arc<Policy>) -> Arc<Policy> {
        let counts = |known: &Self| known.stored.own.temporary_at(now).is_some();
        let temporary = [counts(self), general.is_some_and(|general| counts(general))];
        if let Some(made) = &*self.made.load()
            && (made.generation, made.temporary) == (generation, temporary)
            && made.general.as_ref().map(Arc::as_ptr) == general.map(Arc::as_ptr)
        {
            return Arc::clone(&made.policy);
        }
        let policy = make();
        self.made.store(Some(Arc::new(Made { generation, temporary, general: general.cloned(), policy: Arc::clone(&policy) })));
        policy
    }
}

struct Entry {
    known: Arc<Known>,
    /// When to look again.
    until: Instant,
    /// Before the last gap: good only as long as nothing better can be had.
    epoch: u64,
    /// When somebody last went to look. (Whoever goes may be dropped on the way: then, after a while, another does.)
    looking_since: Option<Instant>,
}

#[derive(Default)]
struct Shard {
    entries: Mutex<IndexMap<Key, Entry>>,
    /// Counts news, so that a value read while some came is not kept.
    news: AtomicU64,
    /// Counted for each shard, so that workers do not wait for each other's counts.
    hits: AtomicU64,
    misses: AtomicU64,
}

/// What a cache has counted since it was made, and holds now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Looks that it answered.
    pub hits: u64,
    /// Looks that had to go to the store.
    pub misses: u64,
    /// News that made it forget something.
    pub invalidations: u64,
    /// Keys of which it knows what is set.
    pub entries: usize,
    /// Stored fields that could not be read.
    pub malformed: u64,
}

/// One looks for a subject at a time; others wait and find what it found, or that it failed.
#[derive(Default)]
struct Turn {
    lock: AsyncMutex<()>,
    failures: AtomicU64,
}

/// Remembers overrides.
pub struct Cache {
    store: Arc<dyn OverrideStore>,
    shards: Vec<Shard>,
    turns: Vec<Turn>,
    guard: Guard,
    hasher: RandomState,
    epoch: AtomicU64,
    fresh: Duration,
    reads: AtomicU64,
    invalidations: AtomicU64,
    malformed: AtomicU64,
}

impl Cache {
    /// A cache of `store`, whose entries are believed for at most `fresh` ([`FRESH`] in service).
    #[must_use]
    pub fn new(store: Arc<dyn OverrideStore>, fresh: Duration) -> Self {
        Self {
            store,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            turns: (0..STRIPES).map(|_| Turn::default()).collect(),
            guard: Guard::default(),
            hasher: RandomState::new(),
            epoch: AtomicU64::new(0),
            fresh,
            reads: AtomicU64::new(0),
            invalidations: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn OverrideStore> {
        &self.store
    }

    /// How often the store was looked at for a subject, on its own or inside a decision.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How many stored fields could not be read.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// What is set for the target that `key` names, if that is known at `now`. Nothing for the first who finds it too old: that
    /// one looks ([`Self::look`]), while others go on with what there was.
    #[must_use]
    pub fn fresh(&self, key: &Key, now: Instant) -> Option<Arc<Known>> {
        let shard = self.shard(key);
        let mut entries = lock(shard);
        if let Some(entry) = entries.get_mut(key).filter(|entry| entry.epoch == self.epoch.load(Ordering::SeqCst)) {
            if now < entry.until || entry.looking_since.is_some_and(|since| now < since + RETRY) {
                shard.hits.fetch_add(1, Ordering::Relaxed);
                return Some(Arc::clone(&entry.known));
            }
            entry.looking_since = Some(now);
        }
        shard.misses.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// What it has counted. Walks the shards: for who reads metrics, not for a request.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let mut counts = CacheCounts {
            invalidations: self.invalidations.load(Ordering::Relaxed),
            malformed: self.malformed(),
            ..CacheCounts::default()
        };
        for shard in &self.shards {
            counts.hits += shard.hits.load(Ordering::Relaxed);
            counts.misses += shard.misses.load(Ordering::Relaxed);
            counts.entries += lock(shard).len();
        }
        counts
    }

    /// What is set for the target that `key` names, as far as is known at `now`; reads the store where that is not enough.
    ///
    /// # Errors
    /// When the store cannot say and nothing is remembered.
    pub async fn get(&self, key: &Key, now: Instant) -> Result<Arc<Known>, StoreError> {
        if let Some(known) = self.fresh(key, now) {
            return Ok(known);
        }
        let (mut known, unknown) = match self.look(&[key], now).await {
            Looked::Known(known) => (known, None),
            Looked::Failed(last, error) => (last, Some(error)),
            Looked::Nobody(look) => look.read().await,
        };
        unknown.map_or_else(|| Ok(known.pop().unwrap_or_default()), Err)
    }

    /// Forgets what news says has changed.
    pub fn heed(&self, news: &News) {
        self.invalidations.fetch_add(1, Ordering::Relaxed);
        match news {
            News::Gap => {
                self.epoch.fetch_add(1, Ordering::SeqCst);
            }
            News::Changed(key) => {
                if let Some(target) = Target::from_key(key) {
                    let key = target.key();
                    let shard = self.shard(&key);
                    shard.news.fetch_add(1, Ordering::SeqCst);
                    // The value stays for the case that the store is away, but is not believed before another look.
                    if let Some(entry) = lock(shard).get_mut(&key) {
                        entry.epoch = u64::MAX;
                    }
                }
            }
        }
    }

    /// How much of the time an entry is believed: 0.7 … 1, so that what was read together is not read together again.
    fn share(&self, key: &Key) -> f64 {
        let spread = self.hasher.hash_one((key, self.reads.load(Ordering::Relaxed))) % 1_000;
        0.7 + 0.3 * spread as f64 / 1_000.0
    }

    fn shard(&self, key: &Key) -> &Shard {
        &self.shards[self.place(key, SHARDS)]
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the number of places")]
    fn place(&self, what: impl std::hash::Hash, places: usize) -> usize {
        (self.hasher.hash_one(what) % places as u64) as usize
    }
}

/// Of a few, the one that would be looked at again first.
fn forget_one(entries: &mut IndexMap<Key, Entry>) {
    let oldest = entries.iter().take(16).enumerate().min_by_key(|(_, (_, entry))| entry.until).map(|(index, _)| index);
    if let Some(index) = oldest {
        entries.swap_remove_index(index);
    }
}

fn lock(shard: &Shard) -> MutexGuard<'_, IndexMap<Key, Entry>> {
    shard.entries.lock().unwrap_or_else(PoisonError::into_inner)
}
