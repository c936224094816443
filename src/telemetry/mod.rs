//! Logs and metrics.

mod logs;
mod metrics;
mod trace_context;

pub use logs::{LogFormat, init_logs};
pub use metrics::{Endpoint, InFlight, Metrics, Outcomes, Tally};
pub use trace_context::TraceParent;
