//! Logs and metrics.

mod logs;
mod metrics;
mod trace_context;
#[cfg(feature = "otlp")]
mod traces;

#[cfg(feature = "otlp")]
pub use logs::init_logs_and_traces;
pub use logs::{LogFormat, init_logs};
pub use metrics::{Endpoint, InFlight, Metrics, Outcomes, Tally};
pub use trace_context::TraceParent;
#[cfg(feature = "otlp")]
pub use traces::{Traces, join};
