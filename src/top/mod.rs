//! The busiest subjects of the last minutes, over all processes.
//!
//! Each process counts in a [`Sketch`] of bounded size and adds the highest counts every few seconds to a [`Ranking`] that all share, which
//! keeps them by the minute and forgets them after [`MINUTES`]. Counts are at least what they say, never more: what a sketch leaves out,
//! and what was counted while the ranking was away, is missing.

mod memory;
mod redis;
mod sketch;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;

pub use self::redis::RedisRanking;
pub use memory::MemoryRanking;
pub use sketch::Sketch;

use crate::identity::Subject;
use crate::limit::{Micros, US};
use crate::store::StoreError;

/// How many minutes are looked back, the one under way included.
pub const MINUTES: i64 = 5;
/// The most subjects that a minute keeps of each kind.
pub const MOST_RANKED: usize = 1_000;
/// The most subjects that a process adds at a time, of each kind.
const MOST_ADDED: usize = 200;
/// Counters of each part of a sketch. At a hundred thousand decisions a second and an add every five seconds, whoever asks
/// twelve times a second or more is seen.
const COUNTERS: usize = 512;
/// Parts, so that workers seldom wait for each other; a subject is always in the same.
const PARTS: usize = 16;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Requests that were not let through, for whatever reason.
    Refused,
    /// Requests that were.
    Admitted,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Refused, Self::Admitted];

    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Admitted => "admitted",
        }
    }

    const fn index(self) -> usize {
        match self {
            Self::Refused => 0,
            Self::Admitted => 1,
        }
    }
}

/// A subject of the last minutes, and what was counted of it at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ranked {
    /// Who.
    pub subject: Subject,
    /// Requests refused, at least.
    pub refused: u64,
    /// Requests admitted, at least.
    pub admitted: u64,
}

impl Ranked {
    const fn count(&self, kind: Kind) -> u64 {
        match kind {
            Kind::Refused => self.refused,
            Kind::Admitted => self.admitted,
        }
    }
}

/// Adds up what processes counted, by the minute.
#[async_trait]
pub trait Ranking: Send + Sync {
    /// Adds counts of `kind` to the minute that `now` (µs) is in.
    ///
    /// # Errors
    /// When they cannot be kept; some may be.
    async fn add(&self, kind: Kind, counts: &[(Subject, u64)], now: Micros) -> Result<(), StoreError>;

    /// The counts of `kind` in the last [`MINUTES`] before `now`, highest first, at most [`MOST_RANKED`] for each minute.
    ///
    /// # Errors
    /// When they cannot be had.
    async fn counts(&self, kind: Kind, now: Micros) -> Result<Vec<(Subject, u64)>, StoreError>;
}

/// Counts who is refused and admitted.
pub struct Top {
    parts: Vec<[Mutex<Sketch<Subject>>; 2]>,
    hasher: RandomState,
    ranking: Arc<dyn Ranking>,
}

impl Top {
    /// Counts that are added up in `ranking`.
    #[must_use]
    pub fn new(ranking: Arc<dyn Ranking>) -> Self {
        let part = || Kind::ALL.map(|_| Mutex::new(Sketch::new(COUNTERS)));
        Self { parts: (0..PARTS).map(|_| part()).collect(), hasher: RandomState::new(), ranking }
    }

    /// A request of `subject` was refused or admitted.
    pub fn count(&self, kind: Kind, subject: &Subject) {
        #[expect(clippy::cast_possible_truncation, reason = "the remainder is below the number of parts")]
        let part = (self.hasher.hash_one(subject) % PARTS as u64) as usize;
        self.parts[part][kind.index()].lock().unwrap_or_else(PoisonError::into_inner).add(subject);
    }

    /// Hands what was counted here on to the ranking. What that cannot take is lost.
    ///
    /// # Errors
    /// When the ranking is away.
    pub async fn hand_on(&self, now: Micros) -> Result<(), StoreError> {
        for kind in Kind::ALL {
            let mut counts = Vec::new();
            for part in &self.parts {
                counts.extend(part[kind.index()].lock().unwrap_or_else(PoisonError::into_inner).take(MOST_ADDED));
            }
            counts.sort_unstable_by_key(|(_, count)| std::cmp::Reverse(*count));
            counts.truncate(MOST_ADDED);
            if !counts.is_empty() {
                self.ranking.add(kind, &counts, now).await?;
            }
        }
        Ok(())
    }

    /// The `limit` subjects with the highest counts of `by` in the last [`MINUTES`] before `now`, over all processes. What was counted
    /// here is in it to the last request, what others counted up to their last hand-on.
    ///
    /// # Errors
    /// When the ranking is away.
    pub async fn list(&self, by: Kind, limit: usize, now: Micros) -> Result<Vec<Ranked>, StoreError> {
        self.hand_on(now).await?;
        let mut ranked: std::collections::HashMap<Subject, Ranked> = std::collections::HashMap::new();
        for kind in Kind::ALL {
            for (subject, count) in self.ranking.counts(kind, now).await? {
                let one = ranked.entry(subject.clone()).or_insert(Ranked { subject, refused: 0, admitted: 0 });
                match kind {
                    Kind::Refused => one.refused = count,
                    Kind::Admitted => one.admitted = count,
                }
            }
        }
        let mut ranked: Vec<Ranked> = ranked.into_values().filter(|one| one.count(by) > 0).collect();
        // Equal counts stand in the order of their names, so that two looks show the same.
        ranked.sort_by_cached_key(|one| (std::cmp::Reverse(one.count(by)), one.subject.to_string()));
        ranked.truncate(limit);
        Ok(ranked)
    }
}

/// The minutes that count at `now`: the last ones, and one ahead, for a process whose clock is.
fn minutes(now: Micros) -> impl Iterator<Item = i64> {
    let minute = minute(now);
    (minute - MINUTES + 1)..=(minute + 1)
}

const fn minute(now: Micros) -> i64 {
    now.div_euclid(60 * US)
}
