//! `weir serve`: flags in, a running service out. Everything is read and checked before a port is bound.

mod admin;

use std::fs::DirBuilder;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::Failure;
use super::logs::LogArgs;
use super::store::{StoreArgs, Tended};
use crate::clock::{SystemClock, unix_micros};
use crate::config::watch::{self, ReloadOutcome, Watcher};
use crate::config::{self, Loaded};
use crate::http::{Api, Families, Settings};
use crate::identity::KeyHasher;
use crate::limit::US;
use crate::limiter::Limiter;
use crate::overrides::{Cache, EmbeddedOverrides, FRESH, News, RedisOverrides, Target};
use crate::server::{self, Listeners, Options};
use crate::telemetry::Metrics;
use crate::top::{MemoryRanking, Ranking, RedisRanking, Top};

/// How often what is counted of the busiest subjects is handed on.
const HAND_ON_EVERY: Duration = Duration::from_secs(5);
/// How long the process goes on listening after the signal to stop.
const NOTICE: Duration = Duration::from_secs(1);

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir serve                                      in memory, with the built-in limits
  weir serve --config config/limit.yaml           with limits of your own
  weir serve --redis-url redis://10.0.0.5:6379    state shared by all instances
  weir serve --bind 0.0.0.0:8080 --log-level info,weir=debug
  WEIR_BIND=127.0.0.1:0 weir serve --headers standard,hints

A Redis password belongs into WEIR_REDIS_URL: a command line can be read by every user of the machine.")]
pub(super) struct Args {
    /// Where to listen; may be given more than once. Port 0 takes a free one, which the log names.
    #[arg(long, env = "WEIR_BIND", value_name = "HOST:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',')]
    bind: Vec<String>,
    /// Where the admin API answers, and nowhere else; without it, it answers where everything does. May be given more than once.
    #[arg(long, env = "WEIR_ADMIN_BIND", value_name = "HOST:PORT", value_delimiter = ',')]
    admin_bind: Vec<String>,
    /// Threads that serve requests; one per core by default.
    #[arg(long, env = "WEIR_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// The limits; without it the built-in ones.
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
    /// A file with the secret that API keys are hashed with; without it they are hashed plainly.
    #[arg(long, env = "WEIR_KEY_HASH_SECRET_FILE", value_name = "FILE")]
    key_hash_secret_file: Option<PathBuf>,
    /// Where overrides (without Redis) and the generated admin token are kept; made when it is not there.
    #[arg(long, env = "WEIR_DATA_DIR", value_name = "DIR", default_value = "weir-data")]
    data_dir: PathBuf,
    /// Who may use the admin API: a file with a line NAME viewer|operator SHA256 for each token (see weir token new). Without it,
    /// this machine only, with a token that is made at the start and kept in the data directory.
    #[arg(long, env = "WEIR_ADMIN_TOKENS_FILE", value_name = "FILE")]
    admin_tokens_file: Option<PathBuf>,
    /// Which families of rate-limit headers to send: some of standard,legacy,hints, or none.
    #[arg(long, env = "WEIR_HEADERS", value_name = "FAMILIES", default_value = "standard,legacy,hints")]
    headers: Families,
    /// An origin whose pages may ask, as in https://example.org, or * for any; may be given more than once. Off by default.
    #[arg(long, env = "WEIR_CORS_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
    cors_origin: Vec<String>,
    /// Do not answer /openapi.json and /docs.
    #[arg(long, env = "WEIR_NO_DOCS")]
    no_docs: bool,
    /// Seconds that the whole stop may take, 2 to 60.
    #[arg(long, env = "WEIR_SHUTDOWN_TIMEOUT", value_name = "SECONDS", default_value = "9", value_parser = clap::value_parser!(u64).range(2..=60))]
    shutdown_timeout: u64,
    #[command(flatten)]
    logs: LogArgs,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let _tracing = args.logs.init()?;
    let (open, admin_only) = (addresses("--bind", &args.bind)?, addresses("--admin-bind", &args.admin_bind)?);
    check_origins(&args.cors_origin)?;
    let loaded = load_config(args.config.as_deref())?;
    let metrics = Arc::new(Metrics::new().map_err(|error| Failure::new(format!("the metrics cannot be set up: {error}")))?);
    make_data_dir(&args.data_dir)?;
    let tokens = Arc::new(admin::tokens(args.admin_tokens_file.as_deref(), &args.data_dir)?);
    let for_rereading = tokens.clone();
    let tended = args.store.open()?;
    let (overrides, heard) = open_overrides(&args, &tended)?;
    let key_hasher = key_hasher(args.key_hash_secret_file.as_deref())?;
    let config = loaded.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let top = Arc::new(Top::new(open_ranking(&tended)));
    let limiter = Limiter::new(config, tended.as_store()).with_metrics(metrics.clone()).with_overrides(overrides).with_top(top.clone());
    let limiter = Arc::new(limiter);
    limiter.set_processes(args.store.expected_processes());
    let watcher = loaded.map(|loaded| watch_config(&loaded, &limiter, &metrics)).transpose()?;
    let (headers, cors_origins, docs) = (args.headers, args.cors_origin, !args.no_docs);
    let settings = Settings { headers, cors_origins, docs, store: tended.name(), key_hasher, tokens, ..Settings::default() };
    let api = Data::new(Api::new(limiter.clone(), metrics.clone(), settings));
    let options = Options {
        workers: args.workers,
        notice: NOTICE,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout).saturating_sub(NOTICE),
        ..Options::default()
    };
    actix_web::rt::System::new().block_on(async move {
        args.store.require(&tended).await?;
        let listeners = Listeners { open: listen("--bind", open)?, admin: listen("--admin-bind", admin_only)? };
        let shutdown = stop_signal()?;
        let tending = actix_web::rt::spawn(tended.clone().tend(limiter.clone(), metrics));
        actix_web::rt::spawn(hand_on(top));
        actix_web::rt::spawn(limiter.clone().sum_up_regularly());
        if let Some(path) = args.admin_tokens_file {
            actix_web::rt::spawn(admin::reread_tokens(path, for_rereading));
        }
        if let Some(heard) = heard {
            actix_web::rt::spawn(heard);
        }
        if let Some(watcher) = watcher {
            actix_web::rt::spawn(reload_on_hangup(watcher));
        }
        server::run(listeners, api, options, shutdown).await.map_err(|error| Failure::new(format!("the server failed: {error}")))?;
        // Else it might say once more that this process is alive.
        tending.abort();
        tended.leave().await;
        limiter.sum_up_refusals();
        info!("stopped");
        Ok(())
    })
}

/// The limits of the file, if one is named.
fn load_config(path: Option<&Path>) -> Result<Option<Loaded>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let loaded = config::load(path).map_err(Failure::new)?;
    warn_of(&loaded);
    Ok(Some(loaded))
}

fn warn_of(loaded: &Loaded) {
    for warning in &loaded.warnings {
        warn!(file = %loaded.path.display(), line = warning.line, path = warning.path, "{}", warning.message);
    }
}

/// Puts changes of the file in force for as long as what it returns is held; SIGHUP looks at once.
fn watch_config(loaded: &Loaded, limiter: &Arc<Limiter>, metrics: &Arc<Metrics>) -> Result<Arc<Watcher>, Failure> {
    metrics.config_in_force(&loaded.content_hash, unix_micros() / US);
    let (limiter, counted) = (Arc::clone(limiter), Arc::clone(metrics));
    let on_change = move |outcome| match outcome {
        ReloadOutcome::Applied(loaded) => {
            warn_of(&loaded);
            info!(file = %loaded.path.display(), hash = loaded.content_hash, "new limits are in force");
            counted.config_in_force(&loaded.content_hash, unix_micros() / US);
            counted.reloaded(true);
            limiter.reload(loaded.config);
        }
        ReloadOutcome::Failed(problem) => {
            error!(%problem, "the limits in the file cannot be used; those in force stay");
            counted.reloaded(false);
        }
        ReloadOutcome::Unchanged => {
            info!("the file says what is in force already");
            counted.reload_ok();
        }
    };
    let watcher =
        watch::spawn(loaded, on_change).map_err(|error| Failure::new(format!("cannot watch {}: {error}", loaded.path.display())))?;
    Ok(Arc::new(watcher))
}

/// Looks at the file with each SIGHUP.
async fn reload_on_hangup(watcher: Arc<Watcher>) {
    if let Ok(mut hangups) = signal(SignalKind::hangup()) {
        while hangups.recv().await.is_some() {
            watcher.reload_now();
        }
    }
}

/// The secret that API keys are hashed with.
fn key_hasher(path: Option<&Path>) -> Result<KeyHasher, Failure> {
    let Some(path) = path else { return Ok(KeyHasher::default()) };
    let failed = |error: String| {
        Failure::new(format!("--key-hash-secret-file {}: {error}", path.display()))
            .hint("give a file with at least 16 bytes that nobody can guess, as in: openssl rand -hex 32")
    };
    let secret = std::fs::read(path).map_err(|error| failed(error.to_string()))?;
    let secret = secret.trim_ascii();
    if secret.len() < 16 { Err(failed("the secret is shorter than 16 bytes".to_owned())) } else { Ok(KeyHasher::with_secret(secret)) }
}

/// A directory of this user's own.
fn make_data_dir(path: &Path) -> Result<(), Failure> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|error| {
        Failure::new(format!("cannot make the data directory {}: {error}", path.display())).hint("name another with --data-dir")
    })
}

/// What hears of changes while the process lives.
type Hearing = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// The overrides that belong to the store, behind a cache that hears of changes.
fn open_overrides(args: &Args, tended: &Tended) -> Result<(Arc<Cache>, Option<Hearing>), Failure> {
    match tended {
        Tended::Redis(store) => {
            let overrides = Arc::new(RedisOverrides::beside(store));
            let cache = Arc::new(Cache::new(overrides.clone(), FRESH));
            let (heeding, store) = (cache.clone(), store.clone());
            let heed = move |news: News| {
                if let News::Changed(key) = &news
                    && let Some(target) = Target::from_key(key)
                {
                    store.forget_refusals(&target.key());
                }
                heeding.heed(&news);
            };
            let heard = async move { overrides.listen(Arc::new(heed)).await };
            Ok((cache, Some(Box::pin(heard))))
        }
        Tended::Memory(_) => {
            let overrides = EmbeddedOverrides::open(&args.data_dir, Arc::new(SystemClock)).map_err(|error| {
                Failure::new(error).hint("one process at a time: give each a --data-dir of its own, or let them share a Redis")
            })?;
            let overrides = Arc::new(overrides);
            let cache = Arc::new(Cache::new(overrides.clone(), FRESH));
            let heeding = cache.clone();
            overrides.tell(Arc::new(move |news| heeding.heed(&news)));
            Ok((cache, None))
        }
    }
}

/// Where all processes that share the store add up who is busiest.
fn open_ranking(tended: &Tended) -> Arc<dyn Ranking> {
    match tended {
        Tended::Redis(store) => Arc::new(RedisRanking::beside(store)),
        Tended::Memory(_) => Arc::new(MemoryRanking::default()),
    }
}

/// Hands on what is counted here, for as long as the process lives. What a store that is away cannot take is lost: it is worth little later.
async fn hand_on(top: Arc<Top>) {
    let mut ticks = tokio::time::interval(HAND_ON_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = top.hand_on(unix_micros()).await {
            tracing::debug!(%error, "who is busiest could not be handed on");
        }
    }
}

fn listen(flag: &str, addresses: Vec<SocketAddr>) -> Result<Vec<TcpListener>, Failure> {
    let one = |address| {
        server::listen(address).map_err(|error| {
            Failure::new(format!("cannot listen on {address}: {error}"))
                .hint(format!("is another process there? choose with {flag} HOST:PORT; port 0 takes a free one"))
        })
    };
    addresses.into_iter().map(one).collect()
}

fn addresses(flag: &str, binds: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses = Vec::new();
    for bind in binds {
        let found = bind.to_socket_addrs().map_err(|error| {
            Failure::new(format!("{flag} {bind:?} is no address to listen on: {error}"))
                .hint("give HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080")
        })?;
        addresses.extend(found);
    }
    Ok(addresses)
}

fn check_origins(origins: &[String]) -> Result<(), Failure> {
    let fits = |origin: &String| {
        origin == "*"
            || origin.split_once("://").is_some_and(|(scheme, host)| {
                !scheme.is_empty() && !host.is_empty() && !host.contains(['/', ' ', '*']) && origin.parse::<actix_web::http::Uri>().is_ok()
            })
    };
    match origins.iter().find(|origin| !fits(origin)) {
        Some(origin) => Err(Failure::new(format!("--cors-origin {origin:?} is no origin"))
            .hint("give scheme and host without a path, as in https://example.org, or *")),
        None => Ok(()),
    }
}

/// Ends with the first SIGTERM or SIGINT.
fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    let listen = |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
