//! Where log lines go and how they look: stderr, text for a person at a terminal, JSON for everything else.

use std::io::{self, IsTerminal};

use tracing_subscriber::layer::{Layer, Layered, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt};

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text when stderr is a terminal, else JSON.
    Auto,
    /// A line for a person.
    Text,
    /// A JSON object a line.
    Json,
}

/// Sends the log of this process to stderr. `filter` is a level (`info`) or a list of `target=level`.
///
/// # Errors
/// When the filter cannot be read, or the process already logs.
pub fn init_logs(format: LogFormat, filter: &str) -> Result<(), String> {
    logs(format, filter)?.try_init().map_err(|error| error.to_string())
}

/// The same, and sends the spans that pass the filter to `traces`.
///
/// # Errors
/// As [`init_logs`].
#[cfg(feature = "otlp")]
pub fn init_logs_and_traces(format: LogFormat, filter: &str, traces: &super::Traces) -> Result<(), String> {
    logs(format, filter)?.with(traces.layer()).try_init().map_err(|error| error.to_string())
}

type Filtered = Layered<EnvFilter, Registry>;

fn logs(format: LogFormat, filter: &str) -> Result<Layered<Box<dyn Layer<Filtered> + Send + Sync>, Filtered>, String> {
    let filter = EnvFilter::builder().parse(filter).map_err(|error| format!("the log level {filter:?} cannot be read: {error}"))?;
    let terminal = io::stderr().is_terminal();
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let lines = fmt::layer().with_writer(io::stderr);
    let lines = if text { lines.with_ansi(terminal).boxed() } else { lines.json().flatten_event(true).with_span_list(false).boxed() };
    Ok(tracing_subscriber::registry().with(filter).with(lines))
}
