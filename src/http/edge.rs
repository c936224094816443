//! What every request passes on its way in and out: request id, log span, count, CORS, and goodbye while draining.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_cors::Cors;
use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::Method;
use actix_web::http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use actix_web::middleware::Next;
use tracing::field::Empty;
use tracing::{Instrument, Span, debug, info_span};
use uuid::Uuid;

use super::{EXPOSED, Shared};
use crate::telemetry::{Endpoint, TraceParent};

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// The longest request id that is taken from a caller, bytes.
const LONGEST_REQUEST_ID: usize = 128;
/// How long a browser may remember a preflight, seconds.
const PREFLIGHT_SECONDS: usize = 3_600;

/// The outermost middleware.
pub(crate) async fn edge<B: MessageBody + 'static>(
    api: Shared,
    mut request: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<B>, Error> {
    let id = request_id(request.headers());
    let endpoint = Endpoint::of(request.path());
    if endpoint == Endpoint::Auth {
        // What a proxy asks about is somebody else's request: a preflight among those is charged like any other and not answered here.
        request.headers_mut().remove(ORIGIN);
        request.headers_mut().remove(ACCESS_CONTROL_REQUEST_METHOD);
    }
    let span = span(&id, request.headers());
    let mut response = async {
        let response = next.call(request).await?;
        debug!(endpoint = ?endpoint, status = response.status().as_u16(), "answered");
        Ok::<_, Error>(response)
    }
    .instrument(span)
    .await?;
    api.metrics.answered(endpoint, response.status().as_u16());
    response.headers_mut().insert(X_REQUEST_ID, id);
    if api.is_draining() {
        response.response_mut().head_mut().set_connection_type(actix_web::http::ConnectionType::Close);
    }
    Ok(response)
}

/// Tells this process's ids from any other's. A counter does the rest: a random id each is a call into the kernel each, which was
/// 4 % of the CPU of a decision.
static PROCESS: LazyLock<String> = LazyLock::new(|| Uuid::new_v4().simple().to_string());
static COUNT: AtomicU64 = AtomicU64::new(1);

/// What every log line of a request carries: its id, and the caller's trace if it is in one.
fn span(id: &HeaderValue, headers: &HeaderMap) -> Span {
    let span = info_span!("request", request_id = id.to_str().unwrap_or_default(), trace_id = Empty, parent_id = Empty);
    // Two parents are none: nobody could say which is the true one.
    let mut parents = headers.get_all(TRACEPARENT);
    if let (Some(parent), None) = (parents.next(), parents.next())
        && let Some(parent) = parent.to_str().ok().and_then(TraceParent::parse)
    {
        span.record("trace_id", parent.trace_id).record("parent_id", parent.parent_id);
        #[cfg(feature = "otlp")]
        crate::telemetry::join(&span, &parent);
    }
    span
}

/// The caller's id when it is short and visible ASCII (it goes into logs), else a new one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sane = |id: &&HeaderValue| (1..=LONGEST_REQUEST_ID).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic);
    if let Some(id) = headers.get(X_REQUEST_ID).filter(sane) {
        return id.clone();
    }
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    HeaderValue::try_from(format!("{}-{count:x}", *PROCESS)).unwrap_or(HeaderValue::from_static("none"))
}

/// Answers preflights, and lets pages on the given origins read answers of every status. Without origins there is no CORS.
pub(crate) fn cors(origins: &[String]) -> Cors {
    let cors = Cors::default()
        .block_on_origin_mismatch(false)
        .allowed_methods([Method::GET, Method::HEAD, Method::POST])
        .allowed_headers([CONTENT_TYPE, X_REQUEST_ID])
        .expose_headers(EXPOSED)
        .max_age(PREFLIGHT_SECONDS);
    origins
        .iter()
        .fold(cors, |cors, origin| if origin == "*" { cors.allow_any_origin().send_wildcard() } else { cors.allowed_origin(origin) })
}
