//! A store that is asked only when it is likely to answer: one that keeps failing is left alone and tried now and then, so that nobody
//! waits for it while it is away ([`Guard`]).
//!
//! A store may consist of parts that fail each on its own ([`Store::part`]: the nodes of a cluster). Each part has a guard to itself,
//! so that one that is away neither slows down nor shuts out the subjects of the others.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Ask, ErrorKind, Guard, Guarded, GuardingStore, Key, Store, StoreError};
use crate::clock::{monotonic, unix_micros};
use crate::limit::{Decision, Policy, without_state};

/// How many parts are told apart; more share guards.
const PARTS: usize = 64;

/// A [`Store`] around another that may fail.
pub struct Resilient {
    inner: Arc<dyn Store>,
    guards: [Guard; PARTS],
}

impl Resilient {
    /// `inner`, left alone when it keeps failing.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, guards: std::array::from_fn(|_| Guard::default()) }
    }

    /// The store itself.
    #[must_use]
    pub fn inner(&self) -> &Arc<dyn Store> {
        &self.inner
    }

    /// How many parts of the store failed when they were last asked, as far as that was lately.
    #[must_use]
    pub fn failing(&self) -> usize {
        let now = monotonic();
        self.guards.iter().filter(|guard| guard.is_failing(now)).count()
    }

    /// Whether any part of the store is not asked for now.
    #[must_use]
    pub fn is_left_alone(&self) -> bool {
        self.guards.iter().any(Guard::is_shut)
    }

    /// Puts `question` about `key` to the store, unless its part is being left alone.
    async fn ask<T>(&self, key: &Key, question: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        let guard = &self.guards[self.inner.part(key) % PARTS];
        guard.may_ask(monotonic())?;
        let answer = question.await;
        match &answer {
            Ok(_) => {
                if guard.answered() {
                    tracing::info!("the store answers again");
                }
            }
            // It answers, and quickly; only not this.
            Err(StoreError { kind: ErrorKind::Full | ErrorKind::WrongType, .. }) => {}
            Err(error) => {
                if guard.failed(monotonic()) {
                    tracing::warn!(%error, "the store keeps failing: it is left alone, and tried now and then");
                }
            }
        }
        answer
    }
}

#[async_trait]
impl Store for Resilient {
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        // No store is asked about these, so their answers say nothing about it.
        if let Some(decision) = without_state(ask.policy, ask.at.unwrap_or_else(unix_micros)) {
            return Ok(decision);
        }
        self.ask(ask.key, self.inner.decide(ask)).await
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        self.inner.reset(key, policy).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }

    fn guarding(&self) -> Option<&dyn GuardingStore> {
        self.inner.guarding().map(|_| self as &dyn GuardingStore)
    }

    fn part(&self, key: &Key) -> usize {
        self.inner.part(key)
    }
}

#[async_trait]
impl GuardingStore for Resilient {
    async fn decide_unless_overridden(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Result<Guarded, StoreError> {
        match self.inner.guarding() {
            Some(inner) => self.ask(ask.key, inner.decide_unless_overridden(ask, looked_at)).await,
            None => self.decide(ask).await.map(Guarded::Decided),
        }
    }
}
