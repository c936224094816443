//! Logs: to stderr, text for people and JSON for machines.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::FmtSpan;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text on a terminal, JSON otherwise.
    Auto,
    /// For people.
    Text,
    /// For machines.
    Json,
}

/// Sends logs of this process to stderr. `filter` is a level, or a filter like `weir=debug,warn`.
///
/// # Errors
/// When the filter is none, or logging was started before.
pub fn start_logging(format: LogFormat, filter: &str) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let filter = EnvFilter::try_new(filter)?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).with_span_events(FmtSpan::NONE);
    let json = match format {
        LogFormat::Auto => !io::stderr().is_terminal(),
        LogFormat::Text => false,
        LogFormat::Json => true,
    };
    if json {
        logs.json().flatten_event(true).with_current_span(true).with_span_list(false).try_init()
    } else {
        logs.with_ansi(io::stderr().is_terminal()).try_init()
    }
}
