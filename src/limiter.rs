//! The one path that every door uses: subject, policy, store, decision.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::clock::{elapsed, monotonic};
use crate::config::Config;
use crate::identity::Subject;
use crate::limit::{Decision, Policy, Reason, Units};
use crate::store::{Ask, Key, Store, StoreError};
use crate::telemetry::Metrics;

/// What a door asks.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks.
    pub subject: Subject,
    /// What it takes; 0 asks without taking.
    pub cost: Units,
}

/// What a door is told. Headers and bodies are functions of this alone.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Whose limits these are.
    pub subject: Subject,
    /// The policy that decided.
    pub policy: Arc<Policy>,
    /// The decision.
    pub decision: Decision,
}

/// Decides for all doors. One per process, shared by all workers.
pub struct Limiter {
    snapshot: ArcSwap<Snapshot>,
    store: Arc<dyn Store>,
    metrics: Arc<Metrics>,
}

/// A config with what is worked out from it once.
struct Snapshot {
    config: Config,
    default_policy: Arc<Policy>,
}

impl Snapshot {
    fn new(config: Config) -> Self {
        // Config::compile has shown that the defaults compile; the built-in policy is what is left if that were ever untrue.
        let default_policy = Arc::new(config.policy(None, &[]).unwrap_or_default());
        Self { config, default_policy }
    }
}

impl Limiter {
    /// A limiter with these limits on this store, counted in these metrics.
    #[must_use]
    pub fn new(config: Config, store: Arc<dyn Store>, metrics: Arc<Metrics>) -> Self {
        Self { snapshot: ArcSwap::from_pointee(Snapshot::new(config)), store, metrics }
    }

    /// Puts other limits in force, for the next request on. State is kept.
    pub fn reload(&self, config: Config) {
        self.snapshot.store(Arc::new(Snapshot::new(config)));
    }

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> Config {
        self.snapshot.load().config.clone()
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Decides one request.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn check(&self, request: Request) -> Result<Answer, StoreError> {
        let policy = self.snapshot.load().default_policy.clone();
        let key = Key::new(&request.subject, None);
        let start = monotonic();
        let decision = self.store.decide(Ask { key: &key, policy: &policy, cost: request.cost, at: None }).await.inspect_err(|error| {
            self.metrics.store_failed(error.kind);
            tracing::debug!(%error, "not decided");
        })?;
        self.metrics.decided(&decision, elapsed(start));
        tracing::debug!(subject = %request.subject, cost = request.cost, admitted = decision.admitted, reason = decision.reason.map(Reason::name), "decided");
        Ok(Answer { subject: request.subject, policy, decision })
    }
}
