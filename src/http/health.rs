//! For whoever watches: probes and metrics. They take nothing from anybody's limits and add no subject to the store.

use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use serde_json::json;
use tracing::error;

use crate::config::OnFailure;

use super::{JSON, NO_STORE, Problem, Shared, builder, refuse};

/// How long the store may take to say that it is there.
const PING_PATIENCE: Duration = Duration::from_millis(250);

/// Whether the process runs at all: a supervisor that gets no 200 should restart it.
pub(super) async fn live() -> HttpResponse {
    builder(200).insert_header((CONTENT_TYPE, JSON)).insert_header((CACHE_CONTROL, NO_STORE)).body(r#"{"status":"live"}"#)
}

/// Whether to send requests here: 503 on the way out, and when no answer could be right.
pub(super) async fn ready(api: Shared) -> HttpResponse {
    let ping = tokio::time::timeout(PING_PATIENCE, api.limiter.store().ping()).await;
    let store = match ping {
        Ok(Ok(())) => "up",
        Ok(Err(_)) | Err(_) => "down",
    };
    let (status, word) = match (api.is_draining(), store) {
        (true, _) => (503, "draining"),
        (false, "up") => (200, "ready"),
        // Whoever is not on a route that denies gets an answer all the same.
        (false, _) if api.limiter.config().on_failure(None) != OnFailure::Deny => (200, "degraded"),
        (false, _) => (503, "store down"),
    };
    let body = json!({ "status": word, "store": { "kind": api.settings.store, "status": store }, "config": { "status": "loaded" } });
    builder(status).insert_header((CONTENT_TYPE, JSON)).insert_header((CACHE_CONTROL, NO_STORE)).body(body.to_string())
}

/// Everything that is counted, in Prometheus' text format.
pub(super) async fn metrics(api: Shared) -> HttpResponse {
    api.limiter.report();
    match api.metrics.text() {
        Ok(text) => builder(200)
            .insert_header((CONTENT_TYPE, HeaderValue::from_static(prometheus::TEXT_FORMAT)))
            .insert_header((CACHE_CONTROL, NO_STORE))
            .body(text),
        Err(error) => {
            error!(%error, "the metrics cannot be written");
            refuse(&Problem::new(500, "metrics_failed", "the metrics cannot be written; the log says why"))
        }
    }
}
