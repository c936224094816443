//! `weir serve`: flags in, a running service out. Everything is read and checked before a port is bound.

use std::fs::{DirBuilder, OpenOptions};
use std::io::Write;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::{NonZeroU32, NonZeroUsize};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use actix_web::web::Data;
use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{error, info, warn};

use super::Failure;
use crate::clock::{SystemClock, unix_micros};
use crate::config::watch::{self, ReloadOutcome, Watcher};
use crate::config::{self, Loaded};
use crate::http::{Api, Families, Role, Settings, Token, Tokens};
use crate::identity::KeyHasher;
use crate::limit::US;
use crate::limiter::Limiter;
use crate::overrides::{Cache, EmbeddedOverrides, FRESH, RedisOverrides};
use crate::server::{self, Options};
use crate::store::{MemoryStore, RedisOptions, RedisStore, Store};
use crate::telemetry::{LogFormat, Metrics, init_logs};

/// How often the memory store is swept, and how many subjects of each shard are looked at then: a million in about a minute, and
/// no shard is locked long enough for a request to notice.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
const SWEEP_LOOKS: usize = 256;
/// Where the token is that is made at the start.
const ADMIN_TOKEN_FILE: &str = "admin-token";
/// How often the file of tokens is looked at.
const REREAD_EVERY: Duration = Duration::from_secs(1);
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
    /// Threads that serve requests; one per core by default.
    #[arg(long, env = "WEIR_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// The limits; without it the built-in ones.
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep state in this Redis; without it in this process's memory.
    #[arg(long, env = "WEIR_REDIS_URL", value_name = "URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// What stands before every key in Redis.
    #[arg(long, env = "WEIR_REDIS_PREFIX", value_name = "PREFIX", default_value = "ratelimit", value_parser = prefix)]
    redis_prefix: String,
    /// Milliseconds that a question to Redis may take, connecting included.
    #[arg(long, env = "WEIR_REDIS_DEADLINE_MS", value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    redis_deadline_ms: u64,
    /// How many processes share the Redis: while it is away and the limits say `local`, each decides with its share.
    #[arg(long, env = "WEIR_EXPECTED_PROCESSES", value_name = "N", default_value = "1")]
    expected_processes: NonZeroU32,
    /// A file with the secret that API keys are hashed with; without it they are hashed plainly.
    #[arg(long, env = "WEIR_KEY_HASH_SECRET_FILE", value_name = "FILE")]
    key_hash_secret_file: Option<PathBuf>,
    /// The most subjects that the memory store remembers.
    #[arg(long, env = "WEIR_MAX_SUBJECTS", value_name = "N", default_value = "1000000")]
    max_subjects: NonZeroUsize,
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
    /// How log lines look: auto is text on a terminal and JSON otherwise.
    #[arg(long, env = "WEIR_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    log_format: Format,
    /// What is logged: error, warn, info, debug, trace, or a list such as info,weir=debug.
    #[arg(long, env = "WEIR_LOG", value_name = "LEVEL", default_value = "info")]
    log_level: String,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    Auto,
    Text,
    Json,
}

pub(super) fn run(args: Args) -> Result<(), Failure> {
    let format = match args.log_format {
        Format::Auto => LogFormat::Auto,
        Format::Text => LogFormat::Text,
        Format::Json => LogFormat::Json,
    };
    init_logs(format, &args.log_level)
        .map_err(|error| Failure::new(error).hint("give --log-level one of error, warn, info, debug, trace"))?;
    let addresses = addresses(&args.bind)?;
    check_origins(&args.cors_origin)?;
    let loaded = load_config(args.config.as_deref())?;
    let metrics = Arc::new(Metrics::new().map_err(|error| Failure::new(format!("the metrics cannot be set up: {error}")))?);
    make_data_dir(&args.data_dir)?;
    let tokens = Arc::new(tokens(&args)?);
    let for_rereading = tokens.clone();
    let Opened { store, tended, name } = open_store(&args)?;
    let (overrides, heard) = open_overrides(&args, &tended)?;
    let key_hasher = key_hasher(args.key_hash_secret_file.as_deref())?;
    let config = loaded.as_ref().map(|loaded| loaded.config.clone()).unwrap_or_default();
    let limiter = Arc::new(
        Limiter::new(config, store).with_metrics(metrics.clone()).with_processes(args.expected_processes.get()).with_overrides(overrides),
    );
    let watcher = loaded.map(|loaded| watch_config(&loaded, &limiter, &metrics)).transpose()?;
    let (headers, cors_origins, docs) = (args.headers, args.cors_origin, !args.no_docs);
    let settings = Settings { headers, cors_origins, docs, store: name, key_hasher, tokens, ..Settings::default() };
    let api = Data::new(Api::new(limiter, metrics.clone(), settings));
    let options = Options {
        workers: args.workers,
        notice: NOTICE,
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout).saturating_sub(NOTICE),
        ..Options::default()
    };
    actix_web::rt::System::new().block_on(async move {
        let mut listeners = Vec::with_capacity(addresses.len());
        for address in addresses {
            let listener = server::listen(address).map_err(|error| {
                Failure::new(format!("cannot listen on {address}: {error}"))
                    .hint("is another process there? choose with --bind HOST:PORT; port 0 takes a free one")
            })?;
            listeners.push(listener);
        }
        let shutdown = stop_signal()?;
        actix_web::rt::spawn(tend(tended, metrics));
        if let Some(path) = args.admin_tokens_file {
            actix_web::rt::spawn(reread_tokens(path, for_rereading));
        }
        if let Some(heard) = heard {
            actix_web::rt::spawn(heard);
        }
        if let Some(watcher) = watcher {
            actix_web::rt::spawn(reload_on_hangup(watcher));
        }
        server::run(listeners, api, options, shutdown).await.map_err(|error| Failure::new(format!("the server failed: {error}")))?;
        info!("stopped");
        Ok(())
    })
}

/// What a timer does for a store.
enum Tended {
    /// Give back memory of subjects that nobody asks about any more, a stretch at a time.
    Memory(Arc<MemoryStore>),
    /// Report what was met.
    Redis(Arc<RedisStore>),
}

/// The store that the arguments ask for.
struct Opened {
    store: Arc<dyn Store>,
    /// The same one, as what needs tending while it runs.
    tended: Tended,
    /// The word for it in `/health/ready`.
    name: &'static str,
}

fn open_store(args: &Args) -> Result<Opened, Failure> {
    if let Some(url) = &args.redis_url {
        let options =
            RedisOptions { url: url.clone(), prefix: args.redis_prefix.clone(), deadline: Duration::from_millis(args.redis_deadline_ms) };
        let store = RedisStore::new(options)
            .map_err(|error| Failure::new(error).hint("--redis-url takes redis://[user:password@]host[:port][/db]"))?;
        let store = Arc::new(store);
        return Ok(Opened { store: store.clone(), tended: Tended::Redis(store), name: "redis" });
    }
    let memory = Arc::new(MemoryStore::new(args.max_subjects.get(), Arc::new(SystemClock)));
    Ok(Opened { store: memory.clone(), tended: Tended::Memory(memory), name: "memory" })
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

/// The tokens of the file, or one that is made now, for this machine only.
fn tokens(args: &Args) -> Result<Tokens, Failure> {
    if let Some(path) = &args.admin_tokens_file {
        return Tokens::from_file(path).map_err(|error| {
            Failure::new(format!("--admin-tokens-file {}: {error}", path.display())).hint("weir token new makes a line for it")
        });
    }
    let secret = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
    let path = args.data_dir.join(ADMIN_TOKEN_FILE);
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display())).hint("name another directory with --data-dir")
    };
    // A new file each time: one that somebody else made, with other permissions, is not written to.
    let _ = std::fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(secret.as_bytes()).map_err(failed)?;
    Ok(Tokens::local(Token::new("local", Role::Operator, &secret)))
}

/// Reads the file of tokens anew when its content has changed. One that cannot be used changes nothing, and is named once.
async fn reread_tokens(path: PathBuf, tokens: Arc<Tokens>) {
    let mut seen = tokio::fs::read(&path).await.ok();
    loop {
        tokio::time::sleep(REREAD_EVERY).await;
        let now = tokio::fs::read(&path).await.ok();
        if now == seen {
            continue;
        }
        match tokens.reload(&path) {
            Ok(()) => info!(file = %path.display(), "the tokens of the file are taken from now on"),
            Err(problem) => error!(file = %path.display(), %problem, "the file of tokens cannot be used; those that were taken stay"),
        }
        seen = now;
    }
}

/// What hears of changes while the process lives.
type Hearing = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// The overrides that belong to the store, behind a cache that hears of changes.
fn open_overrides(args: &Args, tended: &Tended) -> Result<(Arc<Cache>, Option<Hearing>), Failure> {
    match tended {
        Tended::Redis(store) => {
            let overrides = Arc::new(RedisOverrides::beside(store));
            let cache = Arc::new(Cache::new(overrides.clone(), FRESH));
            let heeding = cache.clone();
            let heard = async move { overrides.listen(Arc::new(move |news| heeding.heed(&news))).await };
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

/// A prefix ends up in every key: short, and without what would break a key apart.
fn prefix(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    if (1..=64).contains(&text.len()) && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of A-Z a-z 0-9 _ - . :".to_owned())
    }
}

fn addresses(binds: &[String]) -> Result<Vec<SocketAddr>, Failure> {
    let mut addresses = Vec::new();
    for bind in binds {
        let found = bind.to_socket_addrs().map_err(|error| {
            Failure::new(format!("--bind {bind:?} is no address to listen on: {error}"))
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

/// Looks after a store for as long as the process lives.
async fn tend(store: Tended, metrics: Arc<Metrics>) {
    let mut ticks = tokio::time::interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match &store {
            Tended::Memory(memory) => {
                memory.sweep(SWEEP_LOOKS);
                metrics.set_memory_subjects(memory.subjects());
            }
            Tended::Redis(redis) => metrics.set_corrupt_states(redis.corrupt_states()),
        }
    }
}
