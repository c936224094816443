//! What is counted, as typed methods: no caller writes a metric's name or a label. Made once in a process and shared by all
//! workers, with a registry of its own, so that a second one (in tests) collides with nothing.
//!
//! Labels take their values from enums and from the names of routes and tiers, of which the file may have 256 each; all series are
//! there from the start. No id, address, key or path is ever a label. On the way of a request nothing is looked up: counters are
//! found when the metrics are made, and those of a config's routes and tiers when that comes into force ([`Tally`]).
//!
//! Layout: one file per group of series; `docs/metrics.md` has the table, which a test holds against this.

mod config;
mod decisions;
mod distinct;
mod labels;
mod register;
mod store;

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus::{Encoder, IntCounter, IntGauge, Registry, TextEncoder};

use crate::config::{Config, OnFailure};
use crate::limit::Decision;
use crate::overrides::CacheCounts;
use crate::store::StoreError;
use config::{ConfigMetrics, OverrideMetrics, raise};
use decisions::Decisions;
pub use decisions::{Outcomes, Tally};
use labels::CLASSES;
pub use labels::Endpoint;
use register::Register;
pub use store::InFlight;
use store::StoreMetrics;

/// The counters of one process.
pub struct Metrics {
    registry: Registry,
    decisions: Decisions,
    store: StoreMetrics,
    config: ConfigMetrics,
    overrides: OverrideMetrics,
    /// By [`Endpoint::ALL`], then by class.
    http_requests: Vec<[IntCounter; 5]>,
    claims_ignored: IntCounter,
    draining: IntGauge,
    /// Held while counters are brought up to what was counted elsewhere.
    raising: Mutex<()>,
}

impl Metrics {
    /// All counters at zero.
    ///
    /// # Errors
    /// When a name is taken or not allowed, which a test would have shown.
    pub fn new() -> Result<Self, prometheus::Error> {
        let new = Register(Registry::new());
        let http_requests =
            new.counters("weir_http_requests_total", "HTTP requests by endpoint and class of the status.", &["endpoint", "status"])?;
        let build = new.gauges("weir_build_info", "Always 1; the version is a label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        #[cfg(target_os = "linux")]
        new.0.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;
        let metrics = Self {
            decisions: Decisions::new(&new)?,
            store: StoreMetrics::new(&new)?,
            config: ConfigMetrics::new(&new)?,
            overrides: OverrideMetrics::new(&new)?,
            http_requests: Endpoint::ALL
                .iter()
                .map(|endpoint| CLASSES.map(|class| http_requests.with_label_values(&[endpoint.name(), class])))
                .collect(),
            claims_ignored: new.counter("weir_claims_ignored_total", "Requests in which somebody who is not trusted said who asks.")?,
            draining: new.gauge("weir_draining", "1 while the process is on its way out.")?,
            raising: Mutex::default(),
            registry: new.0,
        };
        metrics.set_processes(1);
        Ok(metrics)
    }

    /// A request was answered with `decision` after `took`, the store's time included.
    pub fn decided(&self, decision: &Decision, took: Duration) {
        self.decisions.answered(decision, took);
    }

    /// The counters for the routes and tiers of `config`. Those of names that are not in it leave.
    #[must_use]
    pub fn tally(&self, config: &Config) -> Tally {
        self.decisions.tally(config)
    }

    /// So many refusals were answered without asking the store, since the start.
    pub fn set_refused_from_memory(&self, refusals: u64) {
        let _alone = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        raise(&self.decisions.from_memory, refusals);
    }

    /// A question to the store begins; it is under way until what this returns is dropped.
    pub fn store_call(&self) -> InFlight {
        self.store.call()
    }

    /// The store was asked about `subject` and took `took`.
    pub fn store_answered(&self, subject: impl Hash, answer: &Result<Decision, StoreError>, took: Duration) {
        self.store.answered(answer.as_ref().err(), took);
        if let Ok(decision) = answer {
            self.decisions.breaker(subject, decision);
        }
    }

    /// Whether the store answered when it was last probed.
    pub fn set_store_up(&self, up: bool) {
        self.store.up.set(i64::from(up));
    }

    /// Whether the store is not asked for now because it kept failing.
    pub fn set_store_left_alone(&self, left_alone: bool) {
        self.store.left_alone.set(i64::from(left_alone));
    }

    /// So many processes, at least this one, share the store.
    pub fn set_processes(&self, processes: u32) {
        self.store.processes.set(i64::from(processes));
    }

    /// A request was answered with `status`.
    pub fn answered(&self, endpoint: Endpoint, status: u16) {
        let class = usize::from(status / 100).checked_sub(1);
        if let Some(counter) = self.http_requests.get(endpoint as usize).zip(class).and_then(|(classes, class)| classes.get(class)) {
            counter.inc();
        }
    }

    /// The memory store remembers so many subjects, of `most` at most.
    pub fn set_memory_subjects(&self, subjects: usize, most: usize) {
        self.store.memory_subjects.set(i64::try_from(subjects).unwrap_or(i64::MAX));
        self.store.memory_most.set(i64::try_from(most).unwrap_or(i64::MAX));
    }

    /// So many stored states were none of ours and were replaced, since the start.
    pub fn set_corrupt_states(&self, states: u64) {
        let _alone = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        raise(&self.store.corrupt_states, states);
    }

    /// What the cache of overrides has counted since the start.
    pub fn set_override_cache(&self, counts: &CacheCounts) {
        let _alone = self.raising.lock().unwrap_or_else(PoisonError::into_inner);
        self.overrides.report(counts);
    }

    /// So many parts of the store fail, and so many subjects are remembered in its place.
    pub fn set_failing(&self, parts: usize, local_subjects: usize) {
        self.store.failing_parts.set(i64::try_from(parts).unwrap_or(i64::MAX));
        self.store.local_subjects.set(i64::try_from(local_subjects).unwrap_or(i64::MAX));
    }

    /// Somebody who is not trusted said who asks.
    pub fn claim_ignored(&self) {
        self.claims_ignored.inc();
    }

    /// An operator changed something.
    pub fn admin_write(&self) {
        self.overrides.writes.inc();
    }

    /// Somebody called the admin API without a token that is taken.
    pub fn login_failed(&self) {
        self.overrides.failed_logins.inc();
    }

    /// The store could not decide a request, and this was to be done instead.
    pub fn degraded(&self, policy: OnFailure) {
        self.decisions.degraded(policy);
    }

    /// The limits with this content hash are in force since `at`, seconds since the Unix epoch. One series: the old hash goes.
    pub fn config_in_force(&self, hash: &str, at: i64) {
        self.config.reload_ok.set(1);
        self.config.reloaded_at.set(at);
        self.config.hash.reset();
        self.config.hash.with_label_values(&[hash]).set(1);
    }

    /// The file that is there now is in force.
    pub fn reload_ok(&self) {
        self.config.reload_ok.set(1);
    }

    /// A change of the file is in force, or cannot be used.
    pub fn reloaded(&self, applied: bool) {
        self.config.reloads[usize::from(!applied)].inc();
        self.config.reload_ok.set(i64::from(applied));
    }

    /// The process is on its way out.
    pub fn set_draining(&self) {
        self.draining.set(1);
    }

    /// Everything in Prometheus' text format.
    ///
    /// # Errors
    /// When a value cannot be written, which would be a fault of this program.
    pub fn text(&self) -> Result<Vec<u8>, prometheus::Error> {
        self.decisions.report();
        let mut text = Vec::with_capacity(32 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_in_one_process_do_not_collide_and_each_counts_on_its_own() {
        let all: Vec<_> = (0..16).map(|_| Metrics::new().unwrap()).collect();
        all[3].answered(Endpoint::Check, 200);
        let count = |metrics: &Metrics| {
            String::from_utf8(metrics.text().unwrap()).unwrap().contains(r#"weir_http_requests_total{endpoint="check",status="2xx"} 1"#)
        };
        assert!(count(&all[3]));
        assert!(!count(&all[4]));
    }

    #[test]
    fn a_status_that_is_none_counts_nothing() {
        let metrics = Metrics::new().unwrap();
        for status in [0, 99, 600, 999] {
            metrics.answered(Endpoint::Other, status);
        }
        let text = String::from_utf8(metrics.text().unwrap()).unwrap();
        assert!(text.lines().filter(|line| line.starts_with("weir_http_requests_total{")).all(|line| line.ends_with(" 0")));
    }

    #[test]
    fn a_call_that_is_dropped_on_the_way_is_no_longer_in_flight() {
        let metrics = Metrics::new().unwrap();
        let in_flight =
            |count: usize| String::from_utf8(metrics.text().unwrap()).unwrap().contains(&format!("\nweir_store_calls_in_flight {count}\n"));
        let calls = [metrics.store_call(), metrics.store_call()];
        assert!(in_flight(2));
        drop(calls);
        assert!(in_flight(0));
    }
}
