//! The service as a process: listeners in, answers until told to stop, then a clean leave.

use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::middleware::from_fn;
use actix_web::web::Data;
use actix_web::{App, HttpServer};

use crate::http::{self, Families, Shared, StoreProbe};
use crate::limiter::Limiter;
use crate::store::Store;
use crate::telemetry::Metrics;

/// How long a client may take to send the head of a request.
const HEAD_PATIENCE: Duration = Duration::from_secs(5);
/// How long an idle connection is kept.
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// How long after it said that it is not ready the process goes on taking requests, so that balancers can notice.
const DRAIN: Duration = Duration::from_secs(1);
/// How often the store is looked at for `/health/ready`.
const PROBE_EVERY: Duration = Duration::from_secs(1);

/// What a service is made of.
pub struct Service {
    /// Decides.
    pub limiter: Arc<Limiter>,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Which families of rate-limit headers are sent.
    pub families: Families,
    /// Threads that answer; at least 1.
    pub workers: usize,
    /// How long requests under way may take after the process was told to stop.
    pub shutdown_timeout: Duration,
}

/// Answers on `listeners` until `stop` is done, then leaves: not ready at once, requests under way are finished.
///
/// # Errors
/// When a listener cannot be used.
pub async fn run(listeners: Vec<TcpListener>, service: Service, stop: impl Future<Output = ()>) -> io::Result<()> {
    let Service { limiter, metrics, families, workers, shutdown_timeout } = service;
    let store: Arc<dyn Store> = Arc::clone(limiter.store());
    let shared = Data::new(Shared { limiter, metrics, families, draining: AtomicBool::new(false) });
    let probe = Data::new(StoreProbe::default());
    let (app_shared, app_probe) = (shared.clone(), probe.clone());
    let mut server = HttpServer::new(move || {
        App::new().wrap(from_fn(http::identify_request)).app_data(app_shared.clone()).app_data(app_probe.clone()).configure(http::routes)
    })
    .workers(workers)
    .keep_alive(KEEP_ALIVE)
    .client_request_timeout(HEAD_PATIENCE)
    .shutdown_timeout(shutdown_timeout.as_secs())
    .disable_signals();
    for listener in listeners {
        server = server.listen(listener)?;
    }
    let server = server.run();
    let handle = server.handle();
    let probing = async {
        loop {
            probe.look(&*store).await;
            tokio::time::sleep(PROBE_EVERY).await;
        }
    };
    let leaving = async {
        stop.await;
        shared.draining.store(true, Ordering::Relaxed);
        tracing::info!("stopping: not ready from now on");
        tokio::time::sleep(DRAIN).await;
        handle.stop(true).await;
    };
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended,
        () = leaving => {}
        () = probing => {}
    }
    server.await
}
