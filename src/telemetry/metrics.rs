//! What is counted, as typed methods: no caller writes a metric's name or a label. Made once in a process and shared by all
//! workers, with a registry of its own, so that a second one (in tests) collides with nothing.
//!
//! Every label takes its values from an enum, so the number of series is fixed when the process starts; no id, address, key or
//! path is ever one.

use std::time::Duration;

use prometheus::core::Collector;
use prometheus::{Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::config::OnFailure;
use crate::limit::{Decision, Reason};
use crate::store::{ErrorKind, StoreError};

/// Upper bounds of the latency histogram, seconds: from a lookup in memory to the deadline of a decision.
const LATENCY_BUCKETS: [f64; 14] =
    [0.000_005, 0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25];
/// First digits of status codes, as labels.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const OUTCOMES: [&str; 3] = ["admitted", "refused", "would_refuse"];

/// What was asked over HTTP, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/check`.
    Check,
    /// `/v1/check/batch`.
    Batch,
    /// `/v1/auth`, and below it.
    Auth,
    /// `/health/…`.
    Health,
    /// `/metrics`.
    Metrics,
    /// Everything else.
    Other,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 6] = [Self::Check, Self::Batch, Self::Auth, Self::Health, Self::Metrics, Self::Other];

    /// Where a request for `path` goes.
    #[must_use]
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/check" => Self::Check,
            "/v1/check/batch" => Self::Batch,
            "/health/live" | "/health/ready" => Self::Health,
            "/metrics" => Self::Metrics,
            "/v1/auth" => Self::Auth,
            below if below.starts_with("/v1/auth/") => Self::Auth,
            _ => Self::Other,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Batch => "batch",
            Self::Auth => "auth",
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Other => "other",
        }
    }
}

/// The counters of one process.
pub struct Metrics {
    registry: Registry,
    /// By outcome, then by reason; the last reason is none.
    decisions: Vec<[IntCounter; Reason::ALL.len() + 1]>,
    breaker_openings: IntCounter,
    decision_seconds: Histogram,
    /// By [`ErrorKind::ALL`].
    store_errors: Vec<IntCounter>,
    /// By [`Endpoint::ALL`], then by class.
    http_requests: Vec<Vec<IntCounter>>,
    memory_subjects: IntGauge,
    corrupt_states: IntGauge,
    failing_parts: IntGauge,
    local_subjects: IntGauge,
    processes: IntGauge,
    claims_ignored: IntCounter,
    admin_writes: IntCounter,
    failed_logins: IntCounter,
    /// By [`OnFailure`].
    degraded: [IntCounter; 3],
    reloads: [IntCounter; 2],
    reload_ok: IntGauge,
    reloaded_at: IntGauge,
    config_hash: IntGaugeVec,
    draining: IntGauge,
}

impl Metrics {
    /// All counters at zero.
    ///
    /// # Errors
    /// When a name is taken or not allowed, which a test would have shown.
    pub fn new() -> Result<Self, prometheus::Error> {
        let new = Registering(Registry::new());
        let decisions = new.counters("weir_decisions_total", "Decisions by outcome and reason.", &["outcome", "reason"])?;
        let store_errors = new.counters("weir_store_errors_total", "Decisions that the store could not make, by kind.", &["kind"])?;
        let http_requests =
            new.counters("weir_http_requests_total", "HTTP requests by endpoint and class of the status.", &["endpoint", "status"])?;
        let degraded = new.counters(
            "weir_degraded_decisions_total",
            "Decisions made in place of a store that could not say, by what was to be done then.",
            &["policy"],
        )?;
        let reloads = new.counters("weir_config_reloads_total", "Changes of limit.yaml, by what came of them.", &["result"])?;
        let build = new.gauges("weir_build_info", "Always 1; the version is a label.", &["version"])?;
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        let latency = HistogramOpts::new("weir_decision_duration_seconds", "Time that the store took to decide.");
        let decision_seconds = new.keep(Histogram::with_opts(latency.buckets(LATENCY_BUCKETS.to_vec()))?)?;
        #[cfg(target_os = "linux")]
        new.0.register(Box::new(prometheus::process_collector::ProcessCollector::for_self()))?;

        Ok(Self {
            decisions: OUTCOMES.map(|outcome| reason_labels().map(|reason| decisions.with_label_values(&[outcome, reason]))).into(),
            breaker_openings: new.counter("weir_breaker_openings_total", "How often a subject's breaker opened.")?,
            decision_seconds,
            store_errors: ErrorKind::ALL.iter().map(|kind| store_errors.with_label_values(&[kind.name()])).collect(),
            http_requests: Endpoint::ALL
                .iter()
                .map(|endpoint| CLASSES.iter().map(|class| http_requests.with_label_values(&[endpoint.name(), class])).collect())
                .collect(),
            memory_subjects: new.gauge("weir_memory_subjects", "Subjects that the memory store remembers.")?,
            corrupt_states: new
                .gauge("weir_store_corrupt_states", "Stored states since the start that were none of ours and were replaced.")?,
            failing_parts: new.gauge("weir_store_failing_parts", "Parts of the store (servers) that failed when they were last asked.")?,
            local_subjects: new.gauge("weir_local_subjects", "Subjects remembered in place of a store that is away.")?,
            processes: new.gauge("weir_processes", "Processes that share the Redis, as far as was last known.")?,
            claims_ignored: new.counter("weir_claims_ignored_total", "Requests in which somebody who is not trusted said who asks.")?,
            admin_writes: new.counter("weir_admin_writes_total", "Changes that operators made through this process.")?,
            failed_logins: new.counter("weir_admin_failed_logins_total", "Calls of the admin API without a token that is taken.")?,
            degraded: [OnFailure::Allow, OnFailure::Deny, OnFailure::Local].map(|policy| degraded.with_label_values(&[policy.name()])),
            reloads: ["applied", "failed"].map(|result| reloads.with_label_values(&[result])),
            reload_ok: new.gauge("weir_config_last_reload_successful", "1 when the file that is there now is in force.")?,
            reloaded_at: new.gauge("weir_config_last_reload_timestamp_seconds", "When the limits in force were read.")?,
            config_hash: new.gauges("weir_config_info", "Always 1; the label tells the content of the limits in force.", &["hash"])?,
            draining: new.gauge("weir_draining", "1 while the process is on its way out.")?,
            registry: new.0,
        })
    }

    /// The store was asked and took `took`.
    pub fn decided(&self, decided: &Result<Decision, StoreError>, took: Duration) {
        self.decision_seconds.observe(took.as_secs_f64());
        match decided {
            Ok(decision) => {
                let outcome = match (decision.admitted, decision.reason) {
                    (true, None) => 0,
                    (false, _) => 1,
                    (true, Some(_)) => 2,
                };
                let reason =
                    decision.reason.and_then(|reason| Reason::ALL.iter().position(|one| *one == reason)).unwrap_or(Reason::ALL.len());
                self.decisions[outcome][reason].inc();
                if decision.breaker_opened {
                    self.breaker_openings.inc();
                }
            }
            Err(error) => {
                if let Some(kind) = ErrorKind::ALL.iter().position(|kind| *kind == error.kind) {
                    self.store_errors[kind].inc();
                }
            }
        }
    }

    /// A request was answered with `status`.
    pub fn answered(&self, endpoint: Endpoint, status: u16) {
        let class = usize::from(status / 100).saturating_sub(1);
        if let Some(counter) = self.http_requests.get(endpoint as usize).and_then(|classes| classes.get(class)) {
            counter.inc();
        }
    }

    /// The memory store remembers so many subjects.
    pub fn set_memory_subjects(&self, subjects: usize) {
        self.memory_subjects.set(i64::try_from(subjects).unwrap_or(i64::MAX));
    }

    /// So many stored states were none of ours and were replaced.
    pub fn set_corrupt_states(&self, states: u64) {
        self.corrupt_states.set(i64::try_from(states).unwrap_or(i64::MAX));
    }

    /// So many parts of the store fail, and so many subjects are remembered in its place.
    pub fn set_failing(&self, parts: usize, local_subjects: usize) {
        self.failing_parts.set(i64::try_from(parts).unwrap_or(i64::MAX));
        self.local_subjects.set(i64::try_from(local_subjects).unwrap_or(i64::MAX));
    }

    /// So many processes share the Redis.
    pub fn set_processes(&self, processes: u32) {
        self.processes.set(processes.into());
    }

    /// Somebody who is not trusted said who asks.
    pub fn claim_ignored(&self) {
        self.claims_ignored.inc();
    }

    /// An operator changed something.
    pub fn admin_write(&self) {
        self.admin_writes.inc();
    }

    /// Somebody called the admin API without a token that is taken.
    pub fn login_failed(&self) {
        self.failed_logins.inc();
    }

    /// A decision was made in place of the store's.
    pub fn degraded(&self, policy: OnFailure) {
        self.degraded[policy as usize].inc();
    }

    /// The limits with this content hash are in force since `at`, seconds since the Unix epoch. One series: the old hash goes.
    pub fn config_in_force(&self, hash: &str, at: i64) {
        self.reload_ok.set(1);
        self.reloaded_at.set(at);
        self.config_hash.reset();
        self.config_hash.with_label_values(&[hash]).set(1);
    }

    /// The file that is there now is in force.
    pub fn reload_ok(&self) {
        self.reload_ok.set(1);
    }

    /// A change of the file is in force, or cannot be used.
    pub fn reloaded(&self, applied: bool) {
        self.reloads[usize::from(!applied)].inc();
        self.reload_ok.set(i64::from(applied));
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
        let mut text = Vec::with_capacity(16 * 1024);
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// Makes series and registers them.
struct Registering(Registry);

impl Registering {
    fn keep<C: Collector + Clone + 'static>(&self, collector: C) -> Result<C, prometheus::Error> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn counter(&self, name: &str, help: &str) -> Result<IntCounter, prometheus::Error> {
        self.keep(IntCounter::new(name, help)?)
    }

    fn counters(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntCounterVec, prometheus::Error> {
        self.keep(IntCounterVec::new(Opts::new(name, help), labels)?)
    }

    fn gauge(&self, name: &str, help: &str) -> Result<IntGauge, prometheus::Error> {
        self.keep(IntGauge::new(name, help)?)
    }

    fn gauges(&self, name: &str, help: &str, labels: &[&str]) -> Result<IntGaugeVec, prometheus::Error> {
        self.keep(IntGaugeVec::new(Opts::new(name, help), labels)?)
    }
}

/// Every reason as a label, and last the one for none.
fn reason_labels() -> [&'static str; Reason::ALL.len() + 1] {
    let mut labels = ["none"; Reason::ALL.len() + 1];
    for (label, reason) in labels.iter_mut().zip(Reason::ALL) {
        *label = reason.name();
    }
    labels
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
    fn endpoints_are_numbered_as_they_are_listed() {
        for (index, endpoint) in Endpoint::ALL.into_iter().enumerate() {
            assert_eq!(endpoint as usize, index);
        }
    }

    #[test]
    fn a_status_that_is_none_counts_nothing() {
        let metrics = Metrics::new().unwrap();
        metrics.answered(Endpoint::Other, 0);
        metrics.answered(Endpoint::Other, 999);
    }
}
