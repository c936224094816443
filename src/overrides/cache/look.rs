//! One look at what is set for a subject: from finding that too little is known to keeping what was found.
//!
//! A look knows what was remembered when it began. That decides what it may keep: nothing is believed that was read while news came;
//! and a version lower than a remembered one is kept only if that one was already remembered when the look began, for then the store
//! truly went back (the key was deleted by hand, or a replica took over that lacked it). Else the look was merely slow.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use arc_swap::ArcSwapOption;
use tokio::sync::MutexGuard as AsyncGuard;

use super::{Cache, Entry, Known, MOST_PER_SHARD, RETRY, Turn, forget_one, lock};
use crate::overrides::{Stored, Target};
use crate::store::{ErrorKind, Found, Key, StoreError};

/// What came of wanting to look.
pub enum Looked<'a> {
    /// Another had looked by then, or failed to while something is remembered: what is known of each key.
    Known(Vec<Arc<Known>>),
    /// Another looked while the caller waited, and failed: what is remembered, empty where nothing is.
    Failed(Vec<Arc<Known>>, StoreError),
    /// Nobody had: it is the caller's turn.
    Nobody(Look<'a>),
}

/// Somebody's turn to look. Dropped, it is the next one's.
pub struct Look<'a> {
    cache: &'a Cache,
    keys: &'a [&'a Key],
    now: Instant,
    epoch: u64,
    /// For each key, what there was when the look began.
    before: Vec<Before>,
    turn: &'a Turn,
    _alone: AsyncGuard<'a, ()>,
}

/// What was remembered of a key.
struct Before {
    /// The news of its shard.
    news: u64,
    known: Option<Arc<Known>>,
    /// What is remembered is as good as another look.
    fresh: bool,
}

impl Cache {
    /// Waits for one's turn to look for `keys`, all of one subject.
    pub async fn look<'a>(&'a self, keys: &'a [&'a Key], now: Instant) -> Looked<'a> {
        let subject = keys.first().map_or("", |key| key.as_str().split_once('}').map_or("", |(subject, _)| subject));
        let turn = &self.turns[self.place(subject, self.turns.len())];
        let failures = turn.failures.load(Ordering::SeqCst);
        let alone = turn.lock.lock().await;
        let epoch = self.epoch.load(Ordering::SeqCst);
        let before: Vec<Before> = keys
            .iter()
            .map(|key| {
                let shard = self.shard(key);
                let entries = lock(shard);
                let entry = entries.get(*key);
                Before {
                    news: shard.news.load(Ordering::SeqCst),
                    known: entry.map(|entry| Arc::clone(&entry.known)),
                    fresh: entry.is_some_and(|entry| entry.epoch == epoch && now < entry.until),
                }
            })
            .collect();
        if before.iter().all(|before| before.fresh) {
            return Looked::Known(before.into_iter().filter_map(|before| before.known).collect());
        }
        if turn.failures.load(Ordering::SeqCst) != failures {
            let unknown = before.iter().any(|before| before.known.is_none());
            let last = before.into_iter().map(|before| before.known.unwrap_or_default()).collect();
            if !unknown {
                return Looked::Known(last);
            }
            return Looked::Failed(
                last,
                StoreError::not_run(ErrorKind::Unavailable, "somebody looked for overrides a moment ago, in vain"),
            );
        }
        Looked::Nobody(Look { cache: self, keys, now, epoch, before, turn, _alone: alone })
    }
}

impl Look<'_> {
    /// Whether nothing was set for any of the keys, as far as is remembered: then a decision on what is inherited is likely to hold.
    #[must_use]
    pub fn expects_nothing(&self) -> bool {
        self.before.iter().all(|before| before.known.as_ref().is_none_or(|known| known.stored == Stored::default()))
    }

    /// Reads the store. While that is away, what was remembered stays. The error is why the store could not say what is set for a key of
    /// which nothing is remembered either; that one is empty.
    pub async fn read(self) -> (Vec<Arc<Known>>, Option<StoreError>) {
        let (mut known, mut unknown) = (Vec::with_capacity(self.keys.len()), None);
        for index in 0..self.keys.len() {
            known.push(match self.read_one(index).await {
                Ok(known) => known,
                Err(error) => {
                    unknown = Some(error);
                    Arc::default()
                }
            });
        }
        if unknown.is_some() {
            self.turn.failures.fetch_add(1, Ordering::SeqCst);
        }
        (known, unknown)
    }

    async fn read_one(&self, index: usize) -> Result<Arc<Known>, StoreError> {
        if let Before { known: Some(fresh), fresh: true, .. } = &self.before[index] {
            return Ok(Arc::clone(fresh));
        }
        // Keys are made from targets, so each names one.
        let Some(target) = Target::from_key(self.keys[index].as_str()) else { return Ok(Arc::default()) };
        let read = match self.cache.guard.may_ask(self.now) {
            Ok(()) => self.cache.store.read(&target).await.inspect_err(|_| {
                self.cache.guard.failed(self.now);
            }),
            left_alone => left_alone.map(|()| Stored::default()),
        };
        match read {
            Ok(stored) => {
                self.cache.guard.answered();
                Ok(self.keep(index, stored))
            }
            Err(error) => self.last(index).ok_or(error),
        }
    }

    /// The store could not say: those who wait for a turn need not each ask in vain.
    pub fn failed(self) {
        for index in 0..self.keys.len() {
            self.last(index);
        }
        self.turn.failures.fetch_add(1, Ordering::SeqCst);
    }

    /// A decision found that nothing is set.
    pub fn nothing(self) {
        for index in 0..self.keys.len() {
            self.keep(index, Stored::default());
        }
    }

    /// A decision found what is set, one for each key.
    ///
    /// # Errors
    /// The turn itself, when that was made by hand: reading it through the store also puts it on the list of overrides.
    pub fn found(self, found: &[Found]) -> Result<Vec<Arc<Known>>, Box<Self>> {
        let stored: Vec<Stored> = found.iter().map(Stored::from_found).collect();
        if stored.len() != self.keys.len() || stored.iter().any(Stored::is_made_by_hand) {
            return Err(Box::new(self));
        }
        Ok(stored.into_iter().enumerate().map(|(index, stored)| self.keep(index, stored)).collect())
    }

    /// What was remembered of a key, good for a while more.
    fn last(&self, index: usize) -> Option<Arc<Known>> {
        let mut entries = lock(self.cache.shard(self.keys[index]));
        let entry = entries.get_mut(self.keys[index])?;
        (entry.until, entry.looking_since, entry.epoch) = (self.now + RETRY, None, self.epoch);
        Some(Arc::clone(&entry.known))
    }

    /// Keeps what the store has for a key, unless something newer is known.
    fn keep(&self, index: usize, stored: Stored) -> Arc<Known> {
        let (cache, key) = (self.cache, self.keys[index]);
        let before = &self.before[index];
        cache.reads.fetch_add(1, Ordering::Relaxed);
        cache.malformed.fetch_add(stored.malformed.len() as u64, Ordering::Relaxed);
        for field in &stored.malformed {
            tracing::warn!(key = key.as_str(), %field, "a stored field of an override cannot be read: what is inherited holds for it");
        }
        let shard = cache.shard(key);
        let mut entries = lock(shard);
        let no_news = shard.news.load(Ordering::SeqCst) == before.news;
        if let Some(entry) = entries.get_mut(key)
            && entry.known.stored.own.version > stored.own.version
            && !(no_news && before.known.as_ref().is_some_and(|known| Arc::ptr_eq(known, &entry.known)))
        {
            entry.looking_since = None;
            return Arc::clone(&entry.known);
        }
        let known = Arc::new(Known { stored, made: ArcSwapOption::empty(), ending: AtomicBool::new(false) });
        if entries.len() >= MOST_PER_SHARD && !entries.contains_key(key) {
            forget_one(&mut entries);
        }
        // One that was read because it was old is read again a full life later: the readers are spread out by then.
        let old = entries.get(key).is_some_and(|entry| entry.epoch == self.epoch);
        let life = if old { cache.fresh } else { cache.fresh.mul_f64(cache.share(key)) };
        let epoch = if no_news { self.epoch } else { u64::MAX };
        entries.insert(key.clone(), Entry { known: Arc::clone(&known), until: self.now + life, epoch, looking_since: None });
        known
    }
}
