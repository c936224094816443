//! Where log lines go and how they look: stderr, text for a person at a terminal, JSON for everything else.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

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
    let filter = EnvFilter::builder().parse(filter).map_err(|error| format!("the log level {filter:?} cannot be read: {error}"))?;
    let terminal = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let text = match format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let done = match (text, terminal) {
        (false, _) => builder.json().flatten_event(true).with_span_list(false).finish().try_init(),
        (true, false) => builder.with_ansi(false).finish().try_init(),
        (true, true) => builder.finish().try_init(),
    };
    done.map_err(|error| error.to_string())
}
