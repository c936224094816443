//! Which limits are in force, and what operators did.

use prometheus::{IntCounter, IntGauge, IntGaugeVec};

use super::register::Register;
use crate::overrides::CacheCounts;

/// The counters of the file.
pub(super) struct ConfigMetrics {
    /// Applied, failed.
    pub(super) reloads: [IntCounter; 2],
    pub(super) reload_ok: IntGauge,
    pub(super) reloaded_at: IntGauge,
    pub(super) hash: IntGaugeVec,
}

impl ConfigMetrics {
    pub(super) fn new(new: &Register) -> Result<Self, prometheus::Error> {
        let reloads = new.counters("weir_config_reloads_total", "Changes of limit.yaml, by what came of them.", &["result"])?;
        let made = Self {
            reloads: ["applied", "failed"].map(|result| reloads.with_label_values(&[result])),
            reload_ok: new.gauge("weir_config_last_reload_successful", "0 while the file that is there is not the one in force.")?,
            reloaded_at: new.gauge("weir_config_last_reload_timestamp_seconds", "When the limits in force were read; 0 without a file.")?,
            hash: new.gauges("weir_config_info", "Always 1; the label tells the content of the limits in force.", &["hash"])?,
        };
        // Without a file there is none that failed.
        made.reload_ok.set(1);
        Ok(made)
    }
}

/// The counters of what is set for single users.
pub(super) struct OverrideMetrics {
    hits: IntCounter,
    misses: IntCounter,
    invalidations: IntCounter,
    entries: IntGauge,
    malformed: IntCounter,
    pub(super) writes: IntCounter,
    pub(super) failed_logins: IntCounter,
}

impl OverrideMetrics {
    pub(super) fn new(new: &Register) -> Result<Self, prometheus::Error> {
        Ok(Self {
            hits: new.counter("weir_override_cache_hits_total", "Looks for overrides that the cache answered.")?,
            misses: new.counter("weir_override_cache_misses_total", "Looks for overrides that had to go to the store.")?,
            invalidations: new.counter(
                "weir_override_cache_invalidations_total",
                "News that made the cache forget: a change of one subject, or a gap after which everything is read anew.",
            )?,
            entries: new
                .gauge("weir_override_cache_entries", "Subjects of which the cache knows what is set; nothing is knowledge, too.")?,
            malformed: new.counter(
                "weir_override_malformed_fields_total",
                "Stored fields of overrides that could not be read; what is inherited holds.",
            )?,
            writes: new.counter("weir_admin_writes_total", "Changes that operators made through this process.")?,
            failed_logins: new.counter("weir_admin_failed_logins_total", "Calls of the admin API without a token that is taken.")?,
        })
    }

    /// What the cache has counted so far.
    pub(super) fn report(&self, counts: &CacheCounts) {
        let CacheCounts { hits, misses, invalidations, entries, malformed } = *counts;
        raise(&self.hits, hits);
        raise(&self.misses, misses);
        raise(&self.invalidations, invalidations);
        raise(&self.malformed, malformed);
        self.entries.set(i64::try_from(entries).unwrap_or(i64::MAX));
    }
}

/// Brings a counter up to what was counted elsewhere. One at a time: the caller holds the lock.
pub(super) fn raise(counter: &IntCounter, to: u64) {
    counter.inc_by(to.saturating_sub(counter.get()));
}
