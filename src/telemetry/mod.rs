//! What operators see: logs and metrics.

mod log;
mod metrics;

pub use log::{LogFormat, start_logging};
pub use metrics::Metrics;
