//! The server: workers, time-outs, and a clean end. Listeners and the signal to stop are passed in, so that a test binds port 0 and
//! stops it when it likes.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::time::Duration;

use actix_web::middleware::{Condition, from_fn};
use actix_web::web::Data;
use actix_web::{App, HttpServer};
use tokio::net::TcpSocket;
use tracing::info;

use crate::http::{self, AdminAt, Api};

/// How many connections may wait to be accepted: a wave of clients after a restart should not be turned away.
const BACKLOG: u32 = 4_096;

/// How the server runs.
#[derive(Debug, Clone)]
pub struct Options {
    /// Threads that serve requests; one per core when it is not said.
    pub workers: Option<NonZeroUsize>,
    /// How long the head of a request may take to arrive.
    pub head_timeout: Duration,
    /// How long a connection without requests is kept.
    pub keep_alive: Duration,
    /// How long to go on listening, not ready, after the signal to stop: balancers notice, and connections get their goodbye.
    pub notice: Duration,
    /// How long requests in flight may take after that.
    pub shutdown_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            workers: None,
            head_timeout: Duration::from_secs(5),
            keep_alive: Duration::from_secs(75),
            notice: Duration::from_secs(1),
            shutdown_timeout: Duration::from_secs(8),
        }
    }
}

/// Where the server is reached.
#[derive(Debug, Default)]
pub struct Listeners {
    /// For everybody.
    pub open: Vec<TcpListener>,
    /// For operators. If there is one, the admin API answers nowhere else.
    pub admin: Vec<TcpListener>,
}

impl From<Vec<TcpListener>> for Listeners {
    /// The admin API answers where everything answers.
    fn from(open: Vec<TcpListener>) -> Self {
        Self { open, admin: Vec::new() }
    }
}

/// Listens on `address`; port 0 takes a free one.
///
/// # Errors
/// When the address is taken, not this machine's, or not allowed. Must be called within a tokio runtime.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Serves `api` on `listeners` until `shutdown` comes, then says so, finishes what it has, and returns.
///
/// # Errors
/// When the server cannot start or a thread of it dies.
pub async fn run(listeners: impl Into<Listeners>, api: Data<Api>, options: Options, shutdown: impl Future<Output = ()>) -> io::Result<()> {
    let Listeners { open, admin } = listeners.into();
    let admin_at = Data::new(AdminAt(admin.iter().map(TcpListener::local_addr).collect::<io::Result<_>>()?));
    let for_apps = api.clone();
    let mut server = HttpServer::new(move || {
        let api = for_apps.clone();
        let origins = &api.settings().cors_origins;
        App::new()
            .wrap(Condition::new(!origins.is_empty(), http::cors(origins)))
            .wrap(from_fn({
                let api = api.clone();
                move |request, next| http::edge(api.clone(), request, next)
            }))
            .app_data(api)
            .app_data(admin_at.clone())
            .configure(http::routes)
    })
    // Signals are the caller's business.
    .disable_signals()
    .client_request_timeout(options.head_timeout)
    // Also turns on that an early answer is not cut off by the rest of a body that nobody reads.
    .client_disconnect_timeout(Duration::from_secs(1))
    .keep_alive(options.keep_alive)
    .shutdown_timeout(options.shutdown_timeout.as_secs());
    if let Some(workers) = options.workers {
        server = server.workers(workers.get());
    }
    let admin = admin.into_iter().map(|listener| (listener, true));
    for (listener, for_operators) in admin.chain(open.into_iter().map(|listener| (listener, false))) {
        let address = listener.local_addr()?;
        server = server.listen(listener)?;
        if for_operators {
            info!(%address, "listening for operators");
        } else {
            info!(%address, "listening");
        }
    }
    let server = server.run();
    let handle = server.handle();
    let stop = async move {
        shutdown.await;
        info!("stopping");
        api.drain();
        tokio::time::sleep(options.notice).await;
        handle.stop(true).await;
    };
    let mut stop = std::pin::pin!(stop);
    let mut server = std::pin::pin!(server);
    tokio::select! {
        done = &mut server => return done,
        () = &mut stop => {}
    }
    server.await
}
