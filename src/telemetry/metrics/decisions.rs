//! What was decided.

use std::collections::BTreeMap;
use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge};

use super::distinct::Distinct;
use super::labels::{Outcome, REASONS, place, reasons};
use super::register::Register;
use crate::clock::monotonic;
use crate::config::{Config, OnFailure};
use crate::limit::Decision;

/// Upper bounds, seconds: from a lookup in memory to well over the deadline of a store's call.
const BUCKETS: [f64; 13] = [0.000_01, 0.000_025, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25];
/// The label for requests on no route: no route can be called that.
const NO_ROUTE: &str = "-";
/// An admission that leaves no more than one part in so many of its limit is near it.
const NEAR: u64 = 5;

/// The counters of one route or tier: admitted, refused, would be refused.
#[derive(Debug)]
pub struct Outcomes([IntCounter; 3]);

impl Outcomes {
    fn new(counters: &IntCounterVec, name: &str) -> Self {
        Self(Outcome::NAMES.map(|outcome| counters.with_label_values(&[name, outcome])))
    }

    /// A request was answered with `decision`.
    pub fn count(&self, decision: &Decision) {
        self.0[Outcome::of(decision) as usize].inc();
    }
}

/// The counters of the routes and tiers of one config, found once so that no decision looks for a label.
#[derive(Debug)]
pub struct Tally {
    /// In the order of the file.
    routes: Vec<Outcomes>,
    no_route: Outcomes,
    tiers: BTreeMap<Box<str>, Outcomes>,
}

impl Tally {
    /// The counters of the route at `index` in the file, or of no route.
    #[must_use]
    pub fn route(&self, index: Option<usize>) -> &Outcomes {
        index.and_then(|index| self.routes.get(index)).unwrap_or(&self.no_route)
    }

    /// The counters of a tier.
    #[must_use]
    pub fn tier(&self, name: &str) -> Option<&Outcomes> {
        self.tiers.get(name)
    }
}

/// The counters of what was decided.
pub(super) struct Decisions {
    /// By outcome, then by reason.
    all: [[IntCounter; REASONS]; 3],
    routes: IntCounterVec,
    tiers: IntCounterVec,
    near_limit: IntCounter,
    seconds: Histogram,
    /// By [`OnFailure`].
    degraded: [IntCounter; 3],
    pub(super) from_memory: IntCounter,
    breaker_openings: IntCounter,
    breaker_open: IntGauge,
    open: Distinct,
}

impl Decisions {
    pub(super) fn new(new: &Register) -> Result<Self, prometheus::Error> {
        let all = new.counters(
            "weir_decisions_total",
            "Requests that were answered with a decision, by outcome and reason.",
            &["outcome", "reason"],
        )?;
        let degraded = new.counters(
            "weir_degraded_decisions_total",
            "Requests that the store could not decide, by what was to be done then.",
            &["policy"],
        )?;
        Ok(Self {
            all: Outcome::NAMES.map(|outcome| reasons().map(|reason| all.with_label_values(&[outcome, reason]))),
            routes: new.counters(
                "weir_route_decisions_total",
                "The same by route (- is no route) and outcome. Routes that leave the file leave here.",
                &["route", "outcome"],
            )?,
            tiers: new.counters(
                "weir_tier_decisions_total",
                "The same for users that an override has put into a tier, by tier and outcome.",
                &["tier", "outcome"],
            )?,
            near_limit: new.counter("weir_near_limit_decisions_total", "Admissions that left a fifth of the limit or less.")?,
            seconds: new.seconds("weir_decision_duration_seconds", "Time that it took to decide a request, store included.", &BUCKETS)?,
            degraded: [OnFailure::Allow, OnFailure::Deny, OnFailure::Local].map(|policy| degraded.with_label_values(&[policy.name()])),
            from_memory: new.counter(
                "weir_memory_refusals_total",
                "Refusals that this process answered from its own memory, without asking the store.",
            )?,
            breaker_openings: new.counter("weir_breaker_openings_total", "How often a subject's breaker opened.")?,
            breaker_open: new.gauge(
                "weir_breaker_open_subjects",
                "About how many subjects this process met with an open breaker within the last 10 to 20 s.",
            )?,
            open: Distinct::new(monotonic()),
        })
    }

    /// A request was answered with `decision` after `took`.
    pub(super) fn answered(&self, decision: &Decision, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        let outcome = Outcome::of(decision);
        self.all[outcome as usize][place(decision.reason)].inc();
        if let (Outcome::Admitted, Some(quota)) = (outcome, decision.quota)
            && quota.remaining <= quota.limit / NEAR
        {
            self.near_limit.inc();
        }
    }

    /// `subject` was decided on with this breaker.
    pub(super) fn breaker(&self, subject: impl std::hash::Hash, decision: &Decision) {
        if decision.breaker_opened {
            self.breaker_openings.inc();
        }
        if decision.breaker_open {
            self.open.met(subject, monotonic());
        }
    }

    /// A request was not decided by the store.
    pub(super) fn degraded(&self, policy: OnFailure) {
        self.degraded[policy as usize].inc();
    }

    /// The counters for a config. Those whose names are not in it go, so that files that come and go leave nothing behind.
    pub(super) fn tally(&self, config: &Config) -> Tally {
        let routes: Vec<&str> = config.routes.iter().map(|route| &*route.name).collect();
        forget_others(&self.routes, |name| name == NO_ROUTE || routes.contains(&name));
        forget_others(&self.tiers, |name| config.tiers.contains_key(name));
        Tally {
            routes: routes.iter().map(|name| Outcomes::new(&self.routes, name)).collect(),
            no_route: Outcomes::new(&self.routes, NO_ROUTE),
            tiers: config.tiers.keys().map(|name| (name.clone(), Outcomes::new(&self.tiers, name))).collect(),
        }
    }

    /// Brings up what is only worked out for a reader.
    pub(super) fn report(&self) {
        self.breaker_open.set(self.open.count(monotonic()));
    }
}

/// Removes the series whose label, the one beside `outcome`, is not to stay.
fn forget_others(counters: &IntCounterVec, stays: impl Fn(&str) -> bool) {
    for family in counters.collect() {
        for metric in family.get_metric() {
            let Some(label) = metric.get_label().iter().find(|label| label.name() != "outcome") else { continue };
            if !stays(label.value()) {
                for outcome in Outcome::NAMES {
                    // Already gone with its first outcome: that is as well.
                    let _ = counters.remove_label_values(&[label.value(), outcome]);
                }
            }
        }
    }
}
