//! What operators see: metrics, logs, and everything in `deploy/` that reads them. With the real `prometheus` and `promtool`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod counts;
mod deploy;
mod logs;
mod prometheus;
mod scrape;
mod series;
#[path = "../support/mod.rs"]
mod support;

/// Asks until it is so.
#[track_caller]
fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let start = weir::clock::monotonic();
    while !is_so() {
        assert!(weir::clock::elapsed(start) < 2 * support::server::PATIENCE, "{what}");
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
}
