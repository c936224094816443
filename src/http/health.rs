//! Probes and metrics. None of them is ever limited, and none asks the store: readiness comes from a probe that runs beside.

use std::sync::atomic::{AtomicU8, Ordering};

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Data;
use serde::Serialize;

use super::Shared;
use crate::store::{ErrorKind, Store};

#[derive(Serialize)]
struct Ready {
    status: &'static str,
    store: &'static str,
}

/// What the last look at the store found.
#[derive(Debug, Default)]
pub(crate) struct StoreProbe(AtomicU8);

impl StoreProbe {
    /// Looks, and remembers what it saw.
    pub(crate) async fn look(&self, store: &dyn Store) {
        let seen = match store.ping().await {
            Ok(()) => 1,
            Err(error) => {
                2 + ErrorKind::ALL.iter().position(|kind| *kind == error.kind).and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
            }
        };
        self.0.store(seen, Ordering::Relaxed);
    }

    fn state(&self) -> (bool, &'static str) {
        match self.0.load(Ordering::Relaxed) {
            0 => (false, "starting"),
            1 => (true, "up"),
            seen => (false, ErrorKind::ALL.get(usize::from(seen) - 2).map_or("unexpected", |kind| kind.name())),
        }
    }
}

pub(super) async fn live() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((CONTENT_TYPE, "application/json"))
        .body(r#"{"status":"live"}"#)
}

/// 200 while it can answer and means to go on; 503 while it leaves, and while no answer could be right.
pub(super) async fn ready(shared: Data<Shared>, probe: Data<StoreProbe>) -> HttpResponse {
    let (up, store) = probe.state();
    let status = match (shared.draining.load(Ordering::Relaxed), up) {
        (true, _) => "draining",
        (false, true) => "ready",
        (false, false) => "store_unavailable",
    };
    let mut response = if status == "ready" { HttpResponse::Ok() } else { HttpResponse::ServiceUnavailable() };
    response.insert_header((CACHE_CONTROL, "no-store")).json(Ready { status, store })
}

pub(super) async fn metrics(shared: Data<Shared>) -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((CACHE_CONTROL, "no-store"))
        .insert_header((CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8"))
        .body(shared.metrics.render())
}
