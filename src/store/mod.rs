//! Where the state of subjects lives. A store fetches, decides and keeps in one indivisible step; what it decides is
//! [`limit`](crate::limit)'s business alone.
//!
//! Every store passes the same contract (`tests/store_contract.rs`). Failure handling, faults and delays come as
//! decorators of [`Store`], not as mocks of it.

mod error;
mod guard;
mod key;
mod memory;
mod redis;
mod resilient;

use async_trait::async_trait;

pub(crate) use self::redis::{RedisConnection, RedisServers};
pub use self::redis::{RedisFiles, RedisOptions, RedisStore, UrlError};
pub use error::{ErrorKind, StoreError};
pub(crate) use guard::Guard;
pub use key::Key;
pub use memory::MemoryStore;
pub use resilient::Resilient;

use crate::limit::{Decision, Micros, Policy, Units};

/// One question to a store.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Whose state.
    pub key: &'a Key,
    /// The policy that applies to it now.
    pub policy: &'a Policy,
    /// What the request takes; 0 asks without taking.
    pub cost: Units,
    /// The time to decide for: nothing in service (the store's own clock), given in tests and replays.
    pub at: Option<Micros>,
}

/// What a store that looked for overrides before deciding says.
#[derive(Debug, Clone, PartialEq)]
pub enum Guarded {
    /// There are none; this is the decision.
    Decided(Decision),
    /// There are some: nothing was decided or charged. What was found, one for each key looked at, in their order.
    Overridden(Vec<Found>),
}

/// What is stored where an override may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Names and values; none when there is nothing.
    Fields(Vec<(String, String)>),
    /// Something of another type, which is no override of ours.
    WrongType,
}

/// A store that has the overrides at hand where it decides, so that a subject without any costs one call even when nothing is
/// known of it.
#[async_trait]
pub trait GuardingStore: Send + Sync {
    /// Decides as [`Store::decide`] does, unless something is set at any of `looked_at` (at least one, all of the subject of
    /// `ask.key`): looking and deciding are one indivisible step.
    ///
    /// # Errors
    /// As [`Store::decide`].
    async fn decide_unless_overridden(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Result<Guarded, StoreError>;
}

/// Keeps the state of subjects and decides on it.
#[async_trait]
pub trait Store: Send + Sync {
    /// Decides one request. Charged exactly when the answer says that it was admitted (and not in shadow refused).
    ///
    /// # Errors
    /// When the store cannot say. The request may have been charged unless its `did_not_run` is set.
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError>;

    /// Forgets the state of a subject: full bucket, empty window, no load, closed breaker.
    ///
    /// # Errors
    /// When the store cannot say.
    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError>;

    /// Whether the store answers at all.
    ///
    /// # Errors
    /// When it does not.
    async fn ping(&self) -> Result<(), StoreError>;

    /// This store as one that can look for overrides inside a decision, if it can.
    fn guarding(&self) -> Option<&dyn GuardingStore> {
        None
    }

    /// Which part of the store has `key`, of those that fail each on its own: a server of several. The number says nothing else.
    fn part(&self, _key: &Key) -> usize {
        0
    }
}
