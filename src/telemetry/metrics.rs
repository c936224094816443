//! Counters for Prometheus: a registry of its own, made once per process, with a typed method for each event.
//!
//! No label ever carries a user, an address or a path: the number of series is fixed by the words in the code.

use std::time::Duration;

use prometheus::{Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, TextEncoder};

use crate::limit::{Decision, Reason};
use crate::store::ErrorKind;

/// From 50 µs (memory) to beyond any deadline.
const SECONDS: [f64; 13] = [0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0];

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    admitted: IntCounter,
    shadow_refused: [IntCounter; Reason::ALL.len()],
    refused: [IntCounter; Reason::ALL.len()],
    breaker_opened: IntCounter,
    decision_seconds: Histogram,
    store_errors: [IntCounter; ErrorKind::ALL.len()],
    memory_subjects: IntGauge,
    corrupt_states: IntGauge,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// All series, at zero.
    ///
    /// # Panics
    /// Never: the names below are fixed, valid and different; a test makes them.
    #[must_use]
    #[expect(clippy::expect_used, reason = "fixed, valid names; the test of this module makes them all")]
    pub fn new() -> Self {
        let registry = Registry::new();
        let register =
            |collector: Box<dyn prometheus::core::Collector>| registry.register(collector).expect("names are valid and different");
        let decisions = IntCounterVec::new(
            Opts::new("weir_decisions_total", "Decisions, by what the caller was told (admitted, refused, shadow_refused: admitted, but would have been refused) and why."),
            &["outcome", "reason"],
        )
        .expect("a valid name");
        register(Box::new(decisions.clone()));
        let store_errors =
            IntCounterVec::new(Opts::new("weir_store_errors_total", "Questions that the store could not answer, by kind."), &["kind"])
                .expect("a valid name");
        register(Box::new(store_errors.clone()));
        let decision_seconds = Histogram::with_opts(
            HistogramOpts::new("weir_decision_duration_seconds", "Time that a decision took, the store included.")
                .buckets(SECONDS.to_vec()),
        )
        .expect("valid buckets");
        register(Box::new(decision_seconds.clone()));
        let breaker_opened = IntCounter::new("weir_breaker_opened_total", "Times that a subject's breaker opened.").expect("a valid name");
        register(Box::new(breaker_opened.clone()));
        let memory_subjects =
            IntGauge::new("weir_memory_store_subjects", "Subjects that the memory store remembers.").expect("a valid name");
        register(Box::new(memory_subjects.clone()));
        let corrupt_states =
            IntGauge::new("weir_store_corrupt_states", "Stored states that were rubbish and were replaced, since the start.")
                .expect("a valid name");
        register(Box::new(corrupt_states.clone()));
        let build =
            IntGaugeVec::new(Opts::new("weir_build_info", "Always 1; the labels say what runs."), &["version"]).expect("a valid name");
        register(Box::new(build.clone()));
        build.with_label_values(&[env!("CARGO_PKG_VERSION")]).set(1);
        Self {
            admitted: decisions.with_label_values(&["admitted", "none"]),
            shadow_refused: Reason::ALL.map(|reason| decisions.with_label_values(&["shadow_refused", reason.name()])),
            refused: Reason::ALL.map(|reason| decisions.with_label_values(&["refused", reason.name()])),
            breaker_opened,
            decision_seconds,
            store_errors: ErrorKind::ALL.map(|kind| store_errors.with_label_values(&[kind.name()])),
            memory_subjects,
            corrupt_states,
            registry,
        }
    }

    /// A decision was made, and how long it took.
    pub fn decided(&self, decision: &Decision, took: Duration) {
        match decision.reason {
            None => self.admitted.inc(),
            Some(reason) if decision.admitted => self.shadow_refused[reason as usize].inc(),
            Some(reason) => self.refused[reason as usize].inc(),
        }
        if decision.breaker_opened {
            self.breaker_opened.inc();
        }
        self.decision_seconds.observe(took.as_secs_f64());
    }

    /// The store could not say.
    pub fn store_failed(&self, kind: ErrorKind) {
        self.store_errors[kind as usize].inc();
    }

    /// How many subjects the memory store remembers.
    pub fn set_memory_subjects(&self, subjects: usize) {
        self.memory_subjects.set(i64::try_from(subjects).unwrap_or(i64::MAX));
    }

    /// How many stored states were rubbish.
    pub fn set_corrupt_states(&self, states: u64) {
        self.corrupt_states.set(i64::try_from(states).unwrap_or(i64::MAX));
    }

    /// The text that Prometheus scrapes.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let mut text = Vec::with_capacity(8 * 1024);
        // Writing to a Vec cannot fail, and the registry holds only what was checked when it was made.
        let _ = TextEncoder::new().encode(&self.registry.gather(), &mut text);
        text
    }
}
