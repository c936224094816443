//! Spans for an OpenTelemetry collector: OTLP, protobuf over HTTP, in batches from a thread of its own.
//!
//! Bounded: what does not fit the queue (2 048 spans) is dropped, a collector that is away delays nobody, and the end waits for it for
//! a second at most. A request is one span with its id, joined to the caller's trace if there is one; whether it is sampled is
//! then the caller's decision.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use opentelemetry::Context;
use opentelemetry::trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState, TracerProvider};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use tracing::{Span, Subscriber, warn};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;

use super::TraceParent;

/// How long one batch may take on its way.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end waits for the last batch.
const LAST_PATIENCE: Duration = Duration::from_secs(1);

/// Sends spans for as long as it is held, and what is left when it is dropped.
#[derive(Debug)]
pub struct Traces(SdkTracerProvider);

impl Traces {
    /// Spans for the collector at `endpoint`, as in `http://127.0.0.1:4318`; nothing is sent yet.
    ///
    /// # Errors
    /// When the endpoint is no URL, or not plain HTTP.
    pub fn new(endpoint: &str) -> Result<Self, String> {
        let base = endpoint.trim_end_matches('/');
        if !base.starts_with("http://") {
            return Err(format!("{endpoint:?} is not plain HTTP; a collector beside the process takes it"));
        }
        let agent = ureq::Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false).build().into();
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client { agent, is_away: AtomicBool::new(false) })
            .with_endpoint(format!("{base}/v1/traces"))
            .with_timeout(PATIENCE)
            .build()
            .map_err(|error| error.to_string())?;
        let resource = Resource::builder().with_service_name("weir").build();
        Ok(Self(SdkTracerProvider::builder().with_resource(resource).with_batch_exporter(exporter).build()))
    }

    pub(super) fn layer<S: Subscriber + for<'span> LookupSpan<'span>>(&self) -> OpenTelemetryLayer<S, SdkTracer> {
        // Where in the code and on which thread a span began tells an operator nothing.
        tracing_opentelemetry::layer().with_location(false).with_threads(false).with_tracer(self.0.tracer("weir"))
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // A collector that is away has been reported; there is nobody left to tell.
        let _ = self.0.shutdown_with_timeout(LAST_PATIENCE);
    }
}

/// Makes `span` a child of the caller's.
pub fn join(span: &Span, parent: &TraceParent<'_>) {
    let (Ok(trace), Ok(caller)) = (TraceId::from_hex(parent.trace_id), SpanId::from_hex(parent.parent_id)) else { return };
    let flags = if parent.sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    let context = SpanContext::new(trace, caller, flags, true, TraceState::default());
    // Fails when no spans are sent, and then there is nothing to join.
    let _ = span.set_parent(Context::new().with_remote_span_context(context));
}

/// The way to the collector.
#[derive(Debug)]
struct Client {
    agent: ureq::Agent,
    /// It was reported that the collector does not answer; said once until it does.
    is_away: AtomicBool,
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, ureq::Error> {
        let (head, body) = request.into_parts();
        let (head, mut body) = self.agent.run(Request::from_parts(head, body.to_vec()))?.into_parts();
        Ok(Response::from_parts(head, body.read_to_vec()?.into()))
    }
}

#[async_trait]
impl HttpClient for Client {
    /// Blocks: batches are sent from a thread that does nothing else.
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let sent = self.send(request);
        let problem = match &sent {
            Ok(response) if response.status().is_success() => None,
            Ok(response) => Some(format!("it answered {}", response.status())),
            Err(error) => Some(error.to_string()),
        };
        let was_away = self.is_away.swap(problem.is_some(), Ordering::Relaxed);
        if let (Some(problem), false) = (problem, was_away) {
            warn!(problem, "the collector takes no spans; they are dropped until it does (said once)");
        }
        Ok(sent?)
    }
}
