//! The one path that every door uses: who, which route, which policy, store, decision; and what is answered when the store cannot say.

mod anonymous;
mod fallback;
mod known;
mod operate;
mod refusals;
mod snapshot;

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::{StreamExt, stream};

use crate::clock::{Clock, SystemClock, elapsed, monotonic};
use crate::config::{Config, OnFailure};
use crate::identity::Subject;
use crate::limit::{Decision, Policy, Reason, Units, without_state};
use crate::overrides::{Cache, FRESH, RedisOverrides};
use crate::store::{Ask, Key, MemoryStore, RedisOptions, RedisStore, Resilient, Store, StoreError, UrlError};
use crate::telemetry::Metrics;
use crate::top::{Kind, Top};
use fallback::Fallback;
pub use operate::{Described, OperateError, Order};
use refusals::Refusals;
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
    store: Resilient,
    fallback: Fallback,
    overrides: Option<Arc<Cache>>,
    top: Option<Arc<Top>>,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<Metrics>>,
    refusals: Refusals,
}

impl Limiter {
    /// A limiter with these limits on this store.
    #[must_use]
    pub fn new(config: Config, store: Arc<dyn Store>) -> Self {
        Self {
            snapshot: ArcSwap::from_pointee(Snapshot::new(config)),
            store: Resilient::new(store),
            fallback: Fallback::new(),
            overrides: None,
            top: None,
            clock: Arc::new(SystemClock),
            metrics: None,
            refusals: Refusals::default(),
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
    pub fn on_redis(config: Config, options: RedisOptions) -> Result<Self, UrlError> {
        let store = Arc::new(RedisStore::new(options)?);
        let overrides = Arc::new(Cache::new(Arc::new(RedisOverrides::beside(&store)), FRESH));
        Ok(Self::new(config, store).with_overrides(overrides))
    }

    /// Counts what it decides in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<Metrics>) -> Self {
        self.metrics = Some(metrics);
        self.reload(Config::clone(&self.config()));
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

    /// Counts in `top` who is refused and admitted.
    #[must_use]
    pub fn with_top(mut self, top: Arc<Top>) -> Self {
        self.top = Some(top);
        self
    }

    /// How many processes share the store: while it is away and the limits say `local`, each decides with its share. 1 until it is said.
    pub fn set_processes(&self, processes: u32) {
        self.fallback.set_processes(processes);
    }

    /// How many parts of the store failed when they were last asked, as far as that was lately.
    #[must_use]
    pub fn failing(&self) -> usize {
        self.store.failing()
    }

    /// How many subjects are remembered in place of a store that is away.
    #[must_use]
    pub fn local_subjects(&self) -> usize {
        self.fallback.subjects()
    }

    /// Bounded work for a timer: looks at up to `looks` subjects of each shard that are remembered in place of a store that is away, and
    /// forgets those whose state means nothing any more.
    pub fn sweep(&self, looks: usize) {
        self.fallback.sweep(looks);
    }

    /// Puts other limits in force, for the next request on. State is kept.
    pub fn reload(&self, config: Config) {
        self.snapshot.store(Arc::new(Snapshot::new(config).counted_in(self.metrics.as_ref())));
    }

    /// The limits in force.
    #[must_use]
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.snapshot.load().config)
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        self.store.inner()
    }

    /// Brings up to date what is counted elsewhere than in the metrics, for somebody who is about to read them.
    pub fn report(&self) {
        let Some(metrics) = &self.metrics else { return };
        metrics.set_store_left_alone(self.store.is_left_alone());
        if let Some(overrides) = &self.overrides {
            metrics.set_override_cache(&overrides.counts());
        }
    }

    /// Writes one line to the log about everything that was refused since it last did; none when nothing was.
    pub fn sum_up_refusals(&self) {
        self.refusals.sum_up();
    }

    /// Does that every ten seconds, without an end.
    pub async fn sum_up_regularly(self: Arc<Self>) {
        loop {
            tokio::time::sleep(refusals::SUM_UP_EVERY).await;
            self.sum_up_refusals();
        }
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
        let start = monotonic();
        let snapshot = self.snapshot.load_full();
        let mut place = snapshot.place(request.path.as_deref(), request.method.as_deref());
        place.on_failure = on_failure.unwrap_or(place.on_failure);
        self.check_in(&snapshot, &place, request, start).await
    }

    /// Decides one request on the route of this name, wherever its path would lead; nothing when no route has it.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn check_on(&self, route: &str, request: Request) -> Result<Option<Answer>, StoreError> {
        let start = monotonic();
        let snapshot = self.snapshot.load_full();
        let Some(place) = snapshot.named(route) else { return Ok(None) };
        self.check_in(&snapshot, &place, request, start).await.map(Some)
    }

    async fn check_in(&self, snapshot: &Snapshot, place: &Place<'_>, request: Request, start: Instant) -> Result<Answer, StoreError> {
        let cost = request.cost.unwrap_or_else(|| place.route.map_or(1, |route| route.cost));
        let checked = self.check_at(snapshot, place, request.subject, cost).await;
        self.count(place, &checked, cost, start);
        checked
    }

    fn count(&self, place: &Place<'_>, checked: &Result<Answer, StoreError>, cost: Units, start: Instant) {
        let Ok(answer) = checked else {
            // What was answered without the store counts itself; what was not answered is counted here.
            if let Some(metrics) = &self.metrics {
                metrics.degraded(place.on_failure);
            }
            return;
        };
        let kind = if answer.decision.admitted { Kind::Admitted } else { Kind::Refused };
        // (A peek is no request.)
        if let Some(top) = self.top.as_ref().filter(|_| cost > 0) {
            top.count(kind, &answer.subject);
        }
        if kind == Kind::Refused {
            self.refusals.count(&answer.subject, answer.decision.reason);
        }
        if let Some(metrics) = &self.metrics {
            metrics.decided(&answer.decision, elapsed(start));
            if let Some(outcomes) = place.outcomes {
                outcomes.count(&answer.decision);
            }
        }
    }

    async fn check_at(&self, snapshot: &Snapshot, place: &Place<'_>, subject: Subject, cost: Units) -> Result<Answer, StoreError> {
        if matches!(subject, Subject::Address(_))
            && let Some(policy) = &place.policies.shared
            && let Some(answer) = self.check_shared(place, policy, cost).await?
        {
            return Ok(answer);
        }
        let key = Key::new(&subject, place.scope());
        self.check_own(snapshot, place, subject, &key, cost).await
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
        let in_flight = self.metrics.as_ref().map(|metrics| metrics.store_call());
        let decided = self.store.decide(ask).await;
        drop(in_flight);
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
            metrics.store_answered(ask.key, &decided, took);
        }
        let (decision, degraded) = match decided {
            Ok(decision) => {
                if without_state(policy, decision.decided_at).is_none() {
                    self.fallback.store_decided(ask.key, || self.store.failing() > 0);
                }
                (decision, None)
            }
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
