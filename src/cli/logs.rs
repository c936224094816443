//! What a service logs, and where its spans go.

use clap::ValueEnum;

use super::Failure;
use crate::telemetry::{LogFormat, init_logs};

#[derive(Debug, clap::Args)]
pub(super) struct LogArgs {
    /// How log lines look: auto is text on a terminal and JSON otherwise.
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    log_format: Format,
    /// What is logged: error, warn, info, debug, trace, or a list such as info,weir=debug.
    #[arg(long, env = "WEIR_LOG", value_name = "LEVEL", default_value = "info")]
    log_level: String,
    /// Send spans of requests to the OpenTelemetry collector here, as in http://127.0.0.1:4318.
    #[cfg(feature = "otlp")]
    #[arg(long, env = "WEIR_OTLP_ENDPOINT", value_name = "URL")]
    otlp_endpoint: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Text,
    Json,
}

impl From<Format> for LogFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Auto => Self::Auto,
            Format::Text => Self::Text,
            Format::Json => Self::Json,
        }
    }
}

/// Spans are sent while this is held.
#[cfg(feature = "otlp")]
pub(super) type Tracing = Option<crate::telemetry::Traces>;
/// Without the feature there are none to send.
#[cfg(not(feature = "otlp"))]
pub(super) type Tracing = Option<std::convert::Infallible>;

impl LogArgs {
    /// From here on this process logs.
    pub(super) fn init(&self) -> Result<Tracing, Failure> {
        let (format, filter) = (self.log_format.into(), self.log_level.as_str());
        let failed = |error| Failure::new(error).hint("give --log-level one of error, warn, info, debug, trace");
        #[cfg(feature = "otlp")]
        if let Some(endpoint) = &self.otlp_endpoint {
            let traces = crate::telemetry::Traces::new(endpoint).map_err(|error| {
                Failure::new(format!("--otlp-endpoint {error}")).hint("give http://HOST:PORT, as in http://127.0.0.1:4318")
            })?;
            crate::telemetry::init_logs_and_traces(format, filter, &traces).map_err(failed)?;
            return Ok(Some(traces));
        }
        init_logs(format, filter).map_err(failed)?;
        Ok(None)
    }
}
