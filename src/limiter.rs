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
use crate::limit::{Decision, Policy, Reason, Units, without_state};
use crate::overrides::Cache;
use crate::store::{Ask, Key, Resilient, Store, StoreError};
use crate::telemetry::Metrics;
use crate::top::{Kind, Top};
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
    store: Resilient,
    fallback: Fallback,
    overrides: Option<Arc<Cache>>,
    top: Option<Arc<Top>>,
    clock: Arc<dyn Clock>,
    metrics: Option<Arc<Metrics>>,
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
        }
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
        self.store.inner()
    }

    /// Decides one request.
    ///
    /// # Errors
    /// When the store cannot say, and the limits say that nothing else may.
    pub async fn check(&self, request: Request) -> Result<Answer, StoreError> {
        let snapshot = self.snapshot.load_full();
        let place = snapshot.place(request.path.as_deref(), request.method.as_deref());
        self.check_in(&snapshot, &place, request).await
    }

    /// Decides one request on the route of this name, wherever its path would lead; nothing when no route has it.
    ///
    /// # Errors
    /// As [`Limiter::check`].
    pub async fn check_on(&self, route: &str, request: Request) -> Result<Option<Answer>, StoreError> {
        let snapshot = self.snapshot.load_full();
        let Some(place) = snapshot.named(route) else { return Ok(None) };
        self.check_in(&snapshot, &place, request).await.map(Some)
    }

    async fn check_in(&self, snapshot: &Snapshot, place: &Place<'_>, request: Request) -> Result<Answer, StoreError> {
        let cost = request.cost.unwrap_or_else(|| place.route.map_or(1, |route| route.cost));
        let checked = self.check_at(snapshot, place, request.subject, cost).await;
        match (&checked, &self.metrics, &self.top) {
            // What was answered without the store counts itself; what was not answered is counted here.
            (Err(_), Some(metrics), _) => metrics.degraded(place.on_failure),
            // (A peek is no request.)
            (Ok(answer), _, Some(top)) if cost > 0 => {
                top.count(if answer.decision.admitted { Kind::Admitted } else { Kind::Refused }, &answer.subject);
            }
            _ => {}
        }
        checked
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
        let decided = self.store.decide(ask).await;
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
