//! The service's API: from HTTP to a [`Request`](crate::limiter::Request), and from an [`Answer`](crate::limiter::Answer) to HTTP.

mod answer;
mod body;
mod check;
mod headers;
mod health;
mod problem;
mod request_id;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use actix_web::http::Method;
use actix_web::web::{self, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};

use crate::limiter::Limiter;
use crate::telemetry::Metrics;
pub use headers::Families;
pub(crate) use health::StoreProbe;
use problem::Problem;
pub(crate) use request_id::identify_request;

/// What every worker shares: made once, outside of the app factory, which runs once per worker.
pub struct Shared {
    /// Decides.
    pub limiter: Arc<Limiter>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Which families of rate-limit headers are sent.
    pub families: Families,
    /// Set when the process is about to leave.
    pub draining: AtomicBool,
}

/// Every route of the service.
pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(only(&[Method::POST], "/v1/check").route(web::post().to(check::check)))
        .service(only(&[Method::GET, Method::HEAD], "/health/live").route(read().to(health::live)))
        .service(only(&[Method::GET, Method::HEAD], "/health/ready").route(read().to(health::ready)))
        .service(only(&[Method::GET, Method::HEAD], "/metrics").route(read().to(health::metrics)))
        .default_service(web::to(not_found));
}

fn read() -> actix_web::Route {
    web::route().guard(actix_web::guard::Any(actix_web::guard::Get()).or(actix_web::guard::Head()))
}

/// A resource that answers other methods than `methods` with 405.
fn only(methods: &'static [Method], path: &str) -> actix_web::Resource {
    web::resource(path).default_service(web::to(move |request: HttpRequest, payload: Payload| async move {
        let _ = body::read(payload, body::SINGLE).await;
        let allowed = methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
        let mut answer = Problem::method_not_allowed(request.method().as_str(), &allowed).response();
        headers::insert(&mut answer, "allow", &allowed);
        answer
    }))
}

async fn not_found(request: HttpRequest, payload: Payload) -> HttpResponse {
    let _ = body::read(payload, body::SINGLE).await;
    Problem::not_found(request.path()).response()
}
