//! Logs and metrics.

mod logs;
mod metrics;

pub use logs::{LogFormat, init_logs};
pub use metrics::{Endpoint, Metrics};
