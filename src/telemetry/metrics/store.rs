//! What the store did.

use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::register::Register;
use crate::store::{ErrorKind, StoreError};

/// Upper bounds, seconds: memory answers in microseconds, Redis in tenths of milliseconds, and the deadline is 0.1 by default.
const BUCKETS: [f64; 14] = [0.000_005, 0.000_01, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25];

/// A call of the store that is under way; counted until it is dropped, so callers that go away are, too.
#[derive(Debug)]
#[must_use]
pub struct InFlight(IntGauge);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// The counters of the store.
pub(super) struct StoreMetrics {
    seconds: Histogram,
    /// By [`ErrorKind::ALL`].
    errors: Vec<IntCounter>,
    in_flight: IntGauge,
    pub(super) up: IntGauge,
    pub(super) left_alone: IntGauge,
    pub(super) corrupt_states: IntCounter,
    pub(super) memory_subjects: IntGauge,
    pub(super) memory_most: IntGauge,
    pub(super) processes: IntGauge,
    pub(super) failing_parts: IntGauge,
    pub(super) local_subjects: IntGauge,
}

impl StoreMetrics {
    pub(super) fn new(new: &Register) -> Result<Self, prometheus::Error> {
        let errors = new.counters("weir_store_errors_total", "Questions that the store could not answer, by kind.", &["kind"])?;
        Ok(Self {
            seconds: new.seconds("weir_store_call_duration_seconds", "Time that the store took for a decision, or to fail.", &BUCKETS)?,
            errors: ErrorKind::ALL.iter().map(|kind| errors.with_label_values(&[kind.name()])).collect(),
            in_flight: new.gauge("weir_store_calls_in_flight", "Questions to the store that wait for an answer.")?,
            up: new.gauge("weir_store_up", "1 when the store answered the last time it was probed, once a second.")?,
            left_alone: new.gauge("weir_store_left_alone", "1 while the store is not asked because it kept failing.")?,
            corrupt_states: new.counter("weir_store_corrupt_states_total", "Stored states that were none of ours and were replaced.")?,
            memory_subjects: new.gauge("weir_memory_subjects", "Subjects that the memory store remembers.")?,
            memory_most: new.gauge("weir_memory_subjects_limit", "The most subjects that the memory store remembers; 0 without one.")?,
            processes: new.gauge("weir_processes", "Processes that share the store, as far as this one knows.")?,
            failing_parts: new.gauge("weir_store_failing_parts", "Parts of the store (servers) that failed when they were last asked.")?,
            local_subjects: new.gauge("weir_local_subjects", "Subjects remembered in place of a store that is away.")?,
        })
    }

    /// A call begins.
    pub(super) fn call(&self) -> InFlight {
        self.in_flight.inc();
        InFlight(self.in_flight.clone())
    }

    /// The store answered, or failed with `error`, after `took`.
    pub(super) fn answered(&self, error: Option<&StoreError>, took: Duration) {
        // One that was left alone, or said at once that it does not serve, took no time: a thousand of those would hide the calls.
        if !error.is_some_and(|error| error.did_not_run && error.kind == ErrorKind::Unavailable) {
            self.seconds.observe(took.as_secs_f64());
        }
        if let Some(error) = error
            && let Some(kind) = ErrorKind::ALL.iter().position(|kind| *kind == error.kind)
        {
            self.errors[kind].inc();
        }
    }
}
