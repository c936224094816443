//! The one path that every door uses: who, which route, which policy, store, decision; and what is answered when the store cannot say.

mod anonymous;
mod fallback;
mod known;
mod operate;
mod snapshot;

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures_util::{StreamExt, stream};

use crate::clock::{Clock, SystemClock, elapsed, monotonic};
use crate::config::{Config, OnFailure};
use crate::identity::Subject;
use crate::limit::{Decision, Policy, Reason, Units};
use crate::overrides::{Cache, FRESH, RedisOverrides};
use crate::store::{Ask, Key, MemoryStore, RedisOptions, RedisStore, Store, StoreError};
use crate::telemetry::Metrics;
use fallback::Fallback;
pub use operate::{Described, OperateError, Order};
use snapshot::{Place, Snapshot};

/// How many questions of one batch wait for the store at a time.
const BATCH_IN_FLIGHT: usize = 64;

/// What a door asks.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks; an address is an anonymous client.
    pub subject: Subject,
    /// What is asked for, to find its route: the path, as it stands.
    pub path: Option<Box<str>>,
    /// How, in capitals.
    pub method: Option<Box<str>>,
    /// What it takes; 0 asks without taking; nothing is what the route costs.
    pub cost: Option<Units>,
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
    /// The route that the request is on.
    pub route: Option<Box<str>>,
    /// What decided in place of a store that could not say.
    pub degraded: Option<OnFailure>,
}

/// Decides for all doors. One per process, shared by all workers.
pub struct Limiter {
    snapshot: ArcSwap<Snapshot>,
    store: Arc<dyn Store>,
    fallback: Fallback,
    overrides: Option<Arc<Cache>>,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<Metrics>>,
}

impl Limiter {
    /// A limiter with these limits on this store.
    #[must_use]
    pub fn new(config: Config, store: Arc<dyn Store>) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::new(config)),
            store,
            fallback: Fallback::new(1),
            overrides: None,
            clock: Arc::new(SystemClock),
            metrics: None,
        }
    }

    /// A limiter in this process's memory, for at most `max_subjects` subjects at a time (about 200 bytes each).
    #[must_use]
    pub fn in_memory(config: Config, max_subjects: usize) -> Self {
        Self::new(config, Arc::new(MemoryStore::new(max_subjects, Arc::new(SystemClock))))
    }

    /// A limiter whose state and overrides are in the Redis at `options.url`, shared with every other process there, `weir serve`
    /// included. It connects when it is first asked. Overrides are read anew after 30 s at the latest.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn on_redis(config: Config, options: RedisOptions) -> Result<Self, StoreError> {
        let store = Arc::new(RedisStore::new(options)?);
        let overrides = Arc::new(Cache::new(Arc::new(RedisOverrides::beside(&store)), FRESH));
        Ok(Self::new(config, store).with_overrides(overrides))
    }

    /// Counts what it decides in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Takes the time of day from `clock`, as the store of a test does.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Lays what operators have set for single users over the limits of the file.
    #[must_use]
    pub fn with_overrides(mut self, overrides: Arc<Cache>) -> Self {
        self.overrides = Some(overrides);
        self
    }

    /// How many processes share the store: while it is away and the limits say `local`, each decides with its share.
    #[must_use]
    pub fn with_processes(mut self, processes: u32) -> Self {
        self.fallback = Fallback::new(processes);
        self
    }

    /// Puts other limits in force, for the next request on. State is kept.
    pub fn reload(&self, config: Config) {
        self.snapshot.store(Arc::new(Snapshot::new(config)));
    }

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.snapshot.load().config)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// Decides one request.
    ///
    /// # Errors
    /// When the store cannot say, and the limits say that nothing else may.
    pub async fn check(&self, request: Request) -> Result<Answer, StoreError> {
        self.check_or(request, None).await
    }

    /// As [`Self::check`]; `on_failure`, where it is given, counts instead of what the limits say of a store that cannot.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub async fn check_or(&self, request: Request, on_failure: Option<OnFailure>) -> Result<Answer, StoreError> {
        let snapshot = self.snapshot.load_full();
        let mut place = snapshot.place(request.path.as_deref(), request.method.as_deref());
        place.on_failure = on_failure.unwrap_or(place.on_failure);
        let cost = request.cost.unwrap_or_else(|| place.route.map_or(1, |route| route.cost));
        if matches!(request.subject, Subject::Address(_))
            && let Some(policy) = &place.policies.shared
            && let Some(answer) = self.check_shared(&place, policy, cost).await?
        {
            return Ok(answer);
        }
        let key = Key::new(&request.subject, place.scope());
        self.check_own(&snapshot, &place, request.subject, &key, cost).await
    }

    /// Decides many requests; the answers come in the order of the requests. Each is decided on its own: one that fails is
    /// its own error. (One place, so that a store that takes many questions in one call can be asked so.)
    pub async fn check_many(&self, requests: Vec<Request>) -> Vec<Result<Answer, StoreError>> {
        stream::iter(requests).map(|request| self.check(request)).buffered(BATCH_IN_FLIGHT).collect().await
    }

    /// Anonymous traffic together comes first. Nothing when it does not admit, or is in a storm: then the address's own limits decide
    /// alone, so neither a flood nor a steady taker shuts others out.
    async fn check_shared(&self, place: &Place<'_>, policy: &Arc<Policy>, cost: Units) -> Result<Option<Answer>, StoreError> {
        let Some(cost) = place.gate.cost_to_ask(cost, policy, self.clock.now()) else { return Ok(None) };
        let key = Key::new(&Subject::Anonymous, place.scope());
        let answer = self.decide(place, Subject::Anonymous, &key, Arc::clone(policy), cost).await?;
        place.gate.learned(answer.decision.breaker_open, self.clock.now());
        Ok(Some(answer).filter(|answer| answer.decision.admitted && !answer.decision.breaker_open))
    }

    async fn decide(&self, place: &Place<'_>, subject: Subject, key: &Key, policy: Arc<Policy>, cost: Units) -> Result<Answer, StoreError> {
        let ask = Ask { key, policy: &policy, cost, at: None };
        let start = monotonic();
        let decided = self.fallback.ask(self.store.decide(ask)).await;
        self.answer(place, subject, ask, &policy, decided, elapsed(start))
    }

    /// What a door is told of what the store said after `took`; or of what is said in its place.
    fn answer(
        &self,
        place: &Place<'_>,
        subject: Subject,
        ask: Ask<'_>,
        policy: &Arc<Policy>,
        decided: Result<Decision, StoreError>,
        took: Duration,
    ) -> Result<Answer, StoreError> {
        if let Some(metrics) = &self.metrics {
            metrics.decided(&decided, took);
        }
        let (decision, degraded) = match decided {
            Ok(decision) => (decision, None),
            Err(error) => {
                let on_failure = place.on_failure;
                let decision = self.fallback.decide(on_failure, ask, error)?;
                if let Some(metrics) = &self.metrics {
                    metrics.degraded(on_failure);
                }
                (decision, Some(on_failure))
            }
        };
        tracing::debug!(%subject, cost = ask.cost, admitted = decision.admitted, reason = decision.reason.map(Reason::name), "decided");
        Ok(Answer { subject, policy: Arc::clone(policy), decision, route: place.route.map(|route| route.name.clone()), degraded })
    }
}
