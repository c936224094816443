//! The one path that every door uses: subject, policy, store, decision.

use std::sync::Arc;

use arc_swap::ArcSwap;
use futures_util::{StreamExt, stream};

use crate::clock;
use crate::config::Config;
use crate::identity::Subject;
use crate::limit::{Decision, Policy, Units};
use crate::store::{Ask, Key, Store, StoreError};
use crate::telemetry::Metrics;

/// How many questions of one batch wait for the store at a time.
const BATCH_IN_FLIGHT: usize = 64;

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
    metrics: Option<Arc<Metrics>>,
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
    /// A limiter with these limits on this store.
    #[must_use]
    pub fn new(config: Config, store: Arc<dyn Store>) -> Self {
        Self { snapshot: ArcSwap::from_pointee(Snapshot::new(config)), store, metrics: None }
    }

    /// Counts what it decides in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
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
        let start = clock::monotonic();
        let decided = self.store.decide(Ask { key: &key, policy: &policy, cost: request.cost, at: None }).await;
        if let Some(metrics) = &self.metrics {
            metrics.decided(&decided, clock::elapsed(start));
        }
        Ok(Answer { subject: request.subject, policy, decision: decided? })
    }

    /// Decides many requests; the answers come in the order of the requests. Each is decided on its own: one that fails is
    /// its own error. (One place, so that a store that takes many questions in one call can be asked so.)
    pub async fn check_many(&self, requests: Vec<Request>) -> Vec<Result<Answer, StoreError>> {
        stream::iter(requests).map(|request| self.check(request)).buffered(BATCH_IN_FLIGHT).collect().await
    }
}
