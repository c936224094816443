//! Per-user limits that operators change while everything runs.
//!
//! An [`Override`] is a layer over what a subject inherits; a *temporary* part of it lies over the standing part and ends by
//! itself. It is kept by an [`OverrideStore`] (Redis, or a local database file), read through a [`Cache`], and changed in one
//! indivisible step that checks the version, writes, and appends to the audit. What a change means ([`Change::apply`]) is worked
//! out here, purely; a store only compares and writes.

mod cache;
mod change;
mod embedded;
mod fields;
mod redis;

use std::sync::Arc;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

pub use self::redis::RedisOverrides;
pub use cache::{Cache, CacheCounts, FRESH, Known, Look, Looked};
pub use change::{Change, ChangeError, Set};
pub use embedded::EmbeddedOverrides;
pub use fields::{Fields, Malformed};

use crate::identity::Subject;
use crate::limit::{Micros, Part};
use crate::store::{Key, StoreError};

/// Whose override: a subject's, in general or for one route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// The subject.
    pub subject: Subject,
    /// The route with limits of its own, if it is for one.
    pub route: Option<Box<str>>,
}

impl Target {
    /// The general override of `subject`.
    #[must_use]
    pub const fn general(subject: Subject) -> Self {
        Self { subject, route: None }
    }

    /// The name of it in a store.
    #[must_use]
    pub fn key(&self) -> Key {
        Key::new(&self.subject, self.route.as_deref())
    }

    /// The target that `key` names, if it names one.
    #[must_use]
    pub fn from_key(key: &str) -> Option<Self> {
        let (subject, rest) = key.strip_prefix('{')?.split_once('}')?;
        let route = match rest {
            "" => None,
            rest => Some(rest.strip_prefix(":route:")?.into()),
        };
        Some(Self { subject: Subject::from_encoded(subject)?, route })
    }
}

/// One part of an override: some fields of a policy, and a tier.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// The tier that the user is in.
    pub tier: Option<Box<str>>,
    /// What is set.
    pub part: Part,
}

impl Layer {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tier.is_none() && self.part.is_empty()
    }
}

/// A part that ends by itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Temporary {
    /// What is set until then.
    pub layer: Layer,
    /// When it ends, on the store's clock, µs.
    pub until: Micros,
}

/// Everything that is set for a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Override {
    /// What holds until it is changed.
    pub standing: Layer,
    /// What lies over it for a while.
    pub temporary: Option<Temporary>,
    /// Why, in an operator's words.
    pub note: Option<Box<str>>,
    /// Rises with every change, also across a deletion; 0 when there never was one.
    pub version: u64,
}

impl Override {
    /// Whether nothing is set (there may be a version: something was).
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.standing.is_empty() && self.temporary.is_none() && self.note.is_none()
    }

    /// The temporary part, unless its time is over at `now`.
    #[must_use]
    pub fn temporary_at(&self, now: Micros) -> Option<&Layer> {
        self.temporary.as_ref().filter(|temporary| now < temporary.until).map(|temporary| &temporary.layer)
    }

    /// The tier at `now`.
    #[must_use]
    pub fn tier_at(&self, now: Micros) -> Option<&str> {
        self.temporary_at(now).and_then(|layer| layer.tier.as_deref()).or(self.standing.tier.as_deref())
    }
}

/// What a store has for a target.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stored {
    /// The override; empty when there is none.
    pub own: Override,
    /// Fields whose value could not be read: what is inherited holds for them.
    pub malformed: Vec<Malformed>,
}

impl From<Override> for Stored {
    /// An override of which every field can be read.
    fn from(own: Override) -> Self {
        Self { own, malformed: Vec::new() }
    }
}

/// What to write in place of version `expected`.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    /// The version that must be there; 0 when none ever was.
    pub expected: u64,
    /// What is to hold from then on. `version` is the store's to give.
    pub own: Override,
    /// The temporary part ends this long after the write, µs; nothing keeps the end that it has.
    pub expires_in: Option<Micros>,
    /// Nothing is written before this, on the store's own clock, µs: a process whose clock is ahead ends no temporary part early.
    pub not_before: Option<Micros>,
    /// For the audit.
    pub entry: Entry,
}

/// Who changed what, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The name of the token, or `weir` for an end that came by itself.
    pub by: String,
    /// `update`, `replace`, `delete`, `import`, `temporary_ended`.
    pub action: String,
    /// In the operator's words.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// The stored fields before.
    pub from: Fields,
    /// The stored fields after.
    pub to: Fields,
}

/// An entry as it was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When, on the store's clock, µs.
    pub at: Micros,
    /// The version that it made.
    pub version: u64,
    /// What.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The version that holds now.
    pub version: u64,
    /// When the temporary part ends, if there is one.
    pub until: Option<Micros>,
    /// Whether it would survive the loss of the server (embedded: of the process) that took it; nothing when that cannot be told.
    pub durable: Option<bool>,
}

/// Why nothing was written.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WriteError {
    /// Another version is there.
    #[error("the override was changed meanwhile: it has version {0}")]
    Stale(u64),
    /// It is not time yet.
    #[error("it is too early for this change on the store's clock")]
    TooEarly,
    /// The store cannot say.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A stretch of the list of overrides.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Targets and what is set for them, in the order of their keys.
    pub items: Vec<(Target, Stored)>,
    /// Where the next stretch begins; nothing at the end.
    pub next: Option<String>,
}

/// Told by a store when something changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The override of this key was changed.
    Changed(String),
    /// News may have been missed: everything may have changed.
    Gap,
}

/// Who wants to know.
pub type Listener = Arc<dyn Fn(News) + Send + Sync>;

/// Keeps overrides.
#[async_trait]
pub trait OverrideStore: Send + Sync {
    /// What is set for `target`.
    ///
    /// # Errors
    /// When the store cannot say; never to be taken for "nothing".
    async fn read(&self, target: &Target) -> Result<Stored, StoreError>;

    /// Compares and writes, in one step with the audit.
    ///
    /// # Errors
    /// When another version is there, or the store cannot say (it may have been written then).
    async fn write(&self, target: &Target, write: Write) -> Result<Written, WriteError>;

    /// Up to `limit` overrides whose keys begin with `prefix`, after `cursor`.
    ///
    /// # Errors
    /// When the store cannot say.
    async fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError>;

    /// The last `limit` changes of `target`, the newest first.
    ///
    /// # Errors
    /// When the store cannot say.
    async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, StoreError>;

    /// Tells all processes that what they remember of `target` is no longer so, though nothing that is set for it has changed. A store of
    /// one process tells nobody.
    ///
    /// # Errors
    /// When they cannot be told.
    async fn announce(&self, _target: &Target) -> Result<(), StoreError> {
        Ok(())
    }

    /// The time on the store's clock, µs: what `until` is compared with.
    fn now(&self) -> Micros;
}
