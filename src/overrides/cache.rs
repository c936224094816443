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
use crate::store::{Key, StoreError};

/// The longest that an entry is believed without another look.
pub const FRESH: Duration = Duration::from_secs(30);
/// How long the last good value is believed after a look that failed.
const RETRY: Duration = Duration::from_secs(1);
const SHARDS: usize = 64;
/// The most entries of a shard.
const MOST_PER_SHARD: usize = 4_096;

/// What is set for a target, and the policy that it makes.
#[derive(Debug, Default)]
pub struct Known {
    /// What the store had.
    pub stored: Stored,
    /// The policy that was worked out last, and what it was worked out for.
    policy: ArcSwapOption<(u64, bool, Arc<Policy>)>,
    /// Somebody is taking away the temporary part.
    ending: AtomicBool,
}

impl Known {
    /// Whether the time of a temporary part is over at `now` (µs, asked only when there is one) and nobody has seen it here before.
    pub fn first_to_see_the_end(&self, now: impl FnOnce() -> Micros) -> bool {
        let over = self.stored.own.temporary.as_ref().is_some_and(|temporary| temporary.until <= now());
        over && !self.ending.swap(true, Ordering::Relaxed)
    }

    /// The policy for the config of `generation`, with or without the temporary part; worked out by `make` when it is another than last time.
    pub fn policy(&self, generation: u64, temporary: bool, make: impl FnOnce() -> Arc<Policy>) -> Arc<Policy> {
        if let Some(made) = &*self.policy.load()
            && (made.0, made.1) == (generation, temporary)
        {
            return Arc::clone(&made.2);
        }
        let policy = make();
        self.policy.store(Some(Arc::new((generation, temporary, Arc::clone(&policy)))));
        policy
    }
}

struct Entry {
    known: Arc<Known>,
    /// When to look again.
    until: Instant,
    /// Before the last gap: good only as long as nothing better can be had.
    epoch: u64,
    refreshing: bool,
}

#[derive(Default)]
struct Shard {
    entries: Mutex<IndexMap<Key, Entry>>,
    /// One reader of a shard at a time; others wait and find what it found.
    reading: AsyncMutex<()>,
    /// Counts news, so that a value read while some came is not kept.
    news: AtomicU64,
}

/// Remembers overrides.
pub struct Cache {
    store: Arc<dyn OverrideStore>,
    shards: Vec<Shard>,
    hasher: RandomState,
    epoch: AtomicU64,
    fresh: Duration,
    reads: AtomicU64,
    malformed: AtomicU64,
}

impl Cache {
    /// A cache of `store`, whose entries are believed for at most `fresh` ([`FRESH`] in service).
    #[must_use]
    pub fn new(store: Arc<dyn OverrideStore>, fresh: Duration) -> Self {
        Self {
            store,
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            hasher: RandomState::new(),
            epoch: AtomicU64::new(0),
            fresh,
            reads: AtomicU64::new(0),
            malformed: AtomicU64::new(0),
        }
    }

    /// The store behind it.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn OverrideStore> {
        &self.store
    }

    /// How often the store was read.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// How many stored fields could not be read.
    #[must_use]
    pub fn malformed(&self) -> u64 {
        self.malformed.load(Ordering::Relaxed)
    }

    /// What is set for the target that `key` names, as far as is known at `now`.
    ///
    /// # Errors
    /// When the store cannot say and nothing is remembered.
    pub async fn get(&self, key: &Key, now: Instant) -> Result<Arc<Known>, StoreError> {
        let shard = self.shard(key);
        match self.remembered(shard, key, now) {
            Remembered::Fresh(known) => return Ok(known),
            Remembered::Stale(known) => {
                // This caller looks; others go on with what is there.
                return Ok(self.look(shard, key, now).await.unwrap_or(known));
            }
            Remembered::Nothing => {}
        }
        let _alone = shard.reading.lock().await;
        match self.remembered(shard, key, now) {
            Remembered::Fresh(known) => Ok(known),
            Remembered::Stale(_) | Remembered::Nothing => self.look(shard, key, now).await,
        }
    }

    /// Forgets what news says has changed.
    pub fn heed(&self, news: &News) {
        match news {
            News::Gap => {
                self.epoch.fetch_add(1, Ordering::Relaxed);
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

    fn remembered(&self, shard: &Shard, key: &Key, now: Instant) -> Remembered {
        let epoch = self.epoch.load(Ordering::Relaxed);
        let mut entries = lock(shard);
        let Some(entry) = entries.get_mut(key) else { return Remembered::Nothing };
        if entry.epoch != epoch {
            return Remembered::Nothing;
        }
        if now < entry.until || entry.refreshing {
            return Remembered::Fresh(Arc::clone(&entry.known));
        }
        entry.refreshing = true;
        Remembered::Stale(Arc::clone(&entry.known))
    }

    /// Reads the store, and keeps what it says unless news came meanwhile or something newer is known.
    async fn look(&self, shard: &Shard, key: &Key, now: Instant) -> Result<Arc<Known>, StoreError> {
        // Keys are made from targets, so each names one.
        let Some(target) = Target::from_key(key.as_str()) else { return Ok(Arc::default()) };
        let (news, epoch) = (shard.news.load(Ordering::SeqCst), self.epoch.load(Ordering::Relaxed));
        self.reads.fetch_add(1, Ordering::Relaxed);
        let read = self.store.read(&target).await;
        let mut entries = lock(shard);
        let stored = match read {
            Ok(stored) => stored,
            Err(error) => {
                let Some(entry) = entries.get_mut(key) else { return Err(error) };
                (entry.until, entry.refreshing, entry.epoch) = (now + RETRY, false, epoch);
                return Ok(Arc::clone(&entry.known));
            }
        };
        if !stored.malformed.is_empty() {
            self.malformed.fetch_add(stored.malformed.len() as u64, Ordering::Relaxed);
            for field in &stored.malformed {
                tracing::warn!(key = key.as_str(), %field, "a stored field of an override cannot be read: what is inherited holds for it");
            }
        }
        if let Some(entry) = entries.get_mut(key)
            && entry.known.stored.own.version > stored.own.version
        {
            entry.refreshing = false;
            return Ok(Arc::clone(&entry.known));
        }
        let known = Arc::new(Known { stored, policy: ArcSwapOption::empty(), ending: AtomicBool::new(false) });
        let epoch = if shard.news.load(Ordering::SeqCst) == news { epoch } else { u64::MAX };
        if entries.len() >= MOST_PER_SHARD && !entries.contains_key(key) {
            forget_one(&mut entries);
        }
        let until = now + self.fresh.mul_f64(self.share(key));
        entries.insert(key.clone(), Entry { known: Arc::clone(&known), until, epoch, refreshing: false });
        Ok(known)
    }

    /// How much of the time an entry is believed: 0.7 … 1, so that what was read together is not read together again.
    fn share(&self, key: &Key) -> f64 {
        let spread = self.hasher.hash_one((key, self.reads.load(Ordering::Relaxed))) % 1_000;
        0.7 + 0.3 * spread as f64 / 1_000.0
    }

    #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the number of shards")]
    fn shard(&self, key: &Key) -> &Shard {
        &self.shards[(self.hasher.hash_one(key) % SHARDS as u64) as usize]
    }
}

enum Remembered {
    Fresh(Arc<Known>),
    Stale(Arc<Known>),
    Nothing,
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
