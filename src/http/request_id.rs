//! A request id in every answer, and in every log line written on behalf of the request.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use actix_web::Error;
use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::ConnectionType;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::web::Data;
use tracing::Instrument;

use super::Shared;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// Longer ids than this are not somebody's ids.
const MOST_BYTES: usize = 128;

/// Distinguishes this process's ids from any other's; a counter does the rest, which is cheaper than a random id each.
static PROCESS: LazyLock<String> = LazyLock::new(|| uuid::Uuid::new_v4().simple().to_string()[..12].to_owned());
static COUNTER: AtomicU64 = AtomicU64::new(1);

/// Takes the caller's id if it is a sane one, else makes one. Also tells the client to go elsewhere while the process leaves.
pub(crate) async fn identify_request(
    request: ServiceRequest,
    next: Next<impl MessageBody>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let id = request.headers().get(HEADER).filter(|value| is_sane(value)).cloned().unwrap_or_else(made);
    let span = tracing::error_span!("request", id = id.to_str().unwrap_or_default());
    let shared = request.app_data::<Data<Shared>>().cloned();
    let mut response = next.call(request).instrument(span).await?;
    response.headers_mut().insert(HEADER, id);
    if shared.is_some_and(|shared| shared.draining.load(Ordering::Relaxed)) {
        response.response_mut().head_mut().set_connection_type(ConnectionType::Close);
    }
    Ok(response)
}

/// Visible ASCII, not too long: it goes into logs and back to the caller.
fn is_sane(value: &HeaderValue) -> bool {
    let bytes = value.as_bytes();
    !bytes.is_empty() && bytes.len() <= MOST_BYTES && bytes.iter().all(u8::is_ascii_graphic)
}

fn made() -> HeaderValue {
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    HeaderValue::try_from(format!("{}-{count:x}", *PROCESS)).unwrap_or(HeaderValue::from_static("none"))
}
