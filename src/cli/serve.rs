//! `weir serve`.

use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::clock::SystemClock;
use crate::config::{self, Config};
use crate::http::Families;
use crate::limiter::Limiter;
use crate::server::{self, Service};
use crate::store::{MemoryStore, RedisOptions, RedisStore, Store};
use crate::telemetry::{LogFormat, Metrics, start_logging};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  weir serve                                    in memory, on 127.0.0.1:8080, with the built-in limits
  weir serve --config config/limit.yaml         with limits of your own
  weir serve --redis-url redis://10.0.0.5:6379  state shared by all instances
  curl -d '{\"user\":\"alice\"}' http://127.0.0.1:8080/v1/check

Every flag can be given as the environment variable beside it. Put a Redis password into WEIR_REDIS_URL, not on the command
line, where every user of the machine can read it")]
pub(super) struct Args {
    /// Address to listen on; may be given several times. Port 0 takes a free one
    #[arg(long, env = "WEIR_BIND", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8080", value_delimiter = ',')]
    bind: Vec<SocketAddr>,
    /// Threads that answer [default: one per core]
    #[arg(long, env = "WEIR_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,
    /// Limits of users and tiers [default: the built-in limits]
    #[arg(long, env = "WEIR_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Keep state in this Redis, shared by all instances [default: in this process's memory]
    #[arg(long, env = "WEIR_REDIS_URL", value_name = "URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// What stands before every Redis key
    #[arg(long, env = "WEIR_REDIS_PREFIX", value_name = "PREFIX", default_value = "ratelimit", value_parser = prefix)]
    redis_prefix: String,
    /// The most that a question to Redis may take, milliseconds
    #[arg(long, env = "WEIR_REDIS_DEADLINE_MS", value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=60_000))]
    redis_deadline_ms: u64,
    /// The most subjects that are remembered in memory
    #[arg(long, env = "WEIR_MAX_SUBJECTS", value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    max_subjects: u32,
    /// Families of rate-limit header fields to send
    #[arg(long, env = "WEIR_HEADERS", value_enum, value_delimiter = ',', default_values = ["standard", "legacy"])]
    headers: Vec<HeaderFamily>,
    /// How long requests under way may take after SIGTERM, seconds
    #[arg(long, env = "WEIR_SHUTDOWN_TIMEOUT", value_name = "SECONDS", default_value_t = 8, value_parser = clap::value_parser!(u64).range(0..=300))]
    shutdown_timeout: u64,
    /// How log lines look
    #[arg(long, env = "WEIR_LOG_FORMAT", value_enum, default_value = "auto")]
    log_format: LogFormatArg,
    /// What is logged: a level, or a filter like `weir=debug,warn`
    #[arg(long, env = "WEIR_LOG", value_name = "FILTER", default_value = "info")]
    log: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HeaderFamily {
    /// RateLimit-Policy and RateLimit
    Standard,
    /// X-RateLimit-Limit, -Remaining and -Reset
    Legacy,
    /// Neither
    None,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum LogFormatArg {
    /// Text on a terminal, JSON otherwise
    Auto,
    Text,
    Json,
}

/// A prefix ends up in every key: short, and without what would break a key apart.
fn prefix(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':');
    if !text.is_empty() && text.len() <= 64 && text.bytes().all(plain) {
        Ok(text.to_owned())
    } else {
        Err("1 to 64 of A-Z a-z 0-9 _ - . :".to_owned())
    }
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let format = match args.log_format {
        LogFormatArg::Auto => LogFormat::Auto,
        LogFormatArg::Text => LogFormat::Text,
        LogFormatArg::Json => LogFormat::Json,
    };
    start_logging(format, &args.log).map_err(|error| {
        Failure::new(format!("cannot log with the filter {:?}: {error}", args.log)).hint("give a level: error, warn, info, debug, trace")
    })?;
    // Everything is read and checked before a port is bound.
    let config = load_config(args)?;
    let listeners = args.bind.iter().map(|address| listen(*address)).collect::<Result<Vec<_>, _>>()?;
    actix_web::rt::System::new().block_on(serve(args, config, listeners))
}

async fn serve(args: &Args, config: Config, listeners: Vec<TcpListener>) -> Result<(), Failure> {
    let metrics = Arc::new(Metrics::new());
    let store = open_store(args, &metrics)?;
    let service = Service {
        limiter: Arc::new(Limiter::new(config, store, Arc::clone(&metrics))),
        metrics,
        families: Families {
            standard: args.headers.contains(&HeaderFamily::Standard),
            legacy: args.headers.contains(&HeaderFamily::Legacy),
        },
        workers: args.workers.or_else(|| thread::available_parallelism().ok()).map_or(1, NonZeroUsize::get),
        shutdown_timeout: Duration::from_secs(args.shutdown_timeout),
    };
    for listener in &listeners {
        if let Ok(address) = listener.local_addr() {
            tracing::info!(%address, store = if args.redis_url.is_some() { "redis" } else { "memory" }, workers = service.workers, "listening");
        }
    }
    let stop = asked_to_stop().map_err(|error| Failure::new(format!("cannot listen for signals: {error}")))?;
    server::run(listeners, service, stop).await.map_err(|error| Failure::new(format!("the server ended: {error}")))?;
    tracing::info!("stopped");
    Ok(())
}

fn load_config(args: &Args) -> Result<Config, Failure> {
    let Some(path) = &args.config else { return Ok(Config::default()) };
    let loaded = config::load(path).map_err(Failure::new)?;
    for warning in &loaded.warnings {
        tracing::warn!(file = %path.display(), line = warning.line, path = warning.path, "{}", warning.message);
    }
    Ok(loaded.config)
}

fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).map_err(|error| {
        Failure::new(format!("cannot listen on {address}: {error}"))
            .hint("is another process there? choose another with --bind, port 0 takes a free one")
    })
}

fn open_store(args: &Args, metrics: &Arc<Metrics>) -> Result<Arc<dyn Store>, Failure> {
    if let Some(url) = &args.redis_url {
        let options =
            RedisOptions { url: url.clone(), prefix: args.redis_prefix.clone(), deadline: Duration::from_millis(args.redis_deadline_ms) };
        let store = Arc::new(
            RedisStore::new(options)
                .map_err(|error| Failure::new(error).hint("--redis-url takes redis://[user:password@]host[:port][/db]"))?,
        );
        let (counted, metrics) = (Arc::clone(&store), Arc::clone(metrics));
        every(Duration::from_secs(1), move || metrics.set_corrupt_states(counted.corrupt_states()));
        return Ok(store);
    }
    let store = Arc::new(MemoryStore::new(args.max_subjects as usize, Arc::new(SystemClock)));
    let (swept, metrics) = (Arc::clone(&store), Arc::clone(metrics));
    every(Duration::from_millis(100), move || {
        swept.sweep(200);
        metrics.set_memory_subjects(swept.subjects());
    });
    Ok(store)
}

/// Does `what` on a timer, for as long as the process lives.
fn every(period: Duration, what: impl Fn() + 'static) {
    actix_web::rt::spawn(async move {
        loop {
            tokio::time::sleep(period).await;
            what();
        }
    });
}

/// Done when SIGTERM or SIGINT comes.
fn asked_to_stop() -> std::io::Result<impl Future<Output = ()>> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
