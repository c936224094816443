//! The store that the arguments ask for, and what a timer does for it.

use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tracing::{debug, warn};

use super::{Failure, plain};
use crate::clock::{SystemClock, elapsed, monotonic};
use crate::limiter::Limiter;
use crate::store::{MemoryStore, RedisFiles, RedisOptions, RedisStore, Store};
use crate::telemetry::Metrics;

/// How often the memory store is swept, and how many subjects of each shard are looked at then: a million in about a minute, and
/// no shard is locked long enough for a request to notice. Also how often a process says that it is alive.
const TEND_EVERY: Duration = Duration::from_secs(1);
const SWEEP_LOOKS: usize = 256;
/// How long a start with `--require-store` waits for it.
const REQUIRED_WITHIN: Duration = Duration::from_secs(5);
/// How long the goodbye to the other processes may take.
const LEAVE_WITHIN: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
pub(super) struct StoreArgs {
    /// Keep state in this Redis; without it in this process's memory. redis:// or rediss://[user:password@]host[:port][/db],
    /// redis+unix:///path, redis+sentinel://host[:port],.../master[/db], redis+cluster://host[:port],... (rediss+... for TLS).
    #[arg(long, env = "WEIR_REDIS_URL", value_name = "URL", hide_env_values = true)]
    redis_url: Option<String>,
    /// What stands before every key in Redis.
    #[arg(long, env = "WEIR_REDIS_PREFIX", value_name = "PREFIX", default_value = "ratelimit", value_parser = prefix)]
    redis_prefix: String,
    /// Milliseconds that a question to Redis may take, connecting included.
    #[arg(long, env = "WEIR_REDIS_DEADLINE_MS", value_name = "MS", default_value = "100", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    redis_deadline_ms: u64,
    /// A file with the password for Redis; read for each new connection, so it may change while running.
    #[arg(long, env = "WEIR_REDIS_PASSWORD_FILE", value_name = "FILE")]
    redis_password_file: Option<PathBuf>,
    /// A file with the password for the Sentinels, if they want one.
    #[arg(long, env = "WEIR_REDIS_SENTINEL_PASSWORD_FILE", value_name = "FILE")]
    redis_sentinel_password_file: Option<PathBuf>,
    /// A PEM file with the authorities that Redis' certificate may be from; the system's by default.
    #[arg(long, env = "WEIR_REDIS_CA_FILE", value_name = "FILE")]
    redis_ca_file: Option<PathBuf>,
    /// A PEM file with this process's own certificate.
    #[arg(long, env = "WEIR_REDIS_CERT_FILE", value_name = "FILE", requires = "redis_key_file")]
    redis_cert_file: Option<PathBuf>,
    /// A PEM file with the key of that certificate.
    #[arg(long, env = "WEIR_REDIS_KEY_FILE", value_name = "FILE", requires = "redis_cert_file")]
    redis_key_file: Option<PathBuf>,
    /// Do not start without the store: exit 1 when it does not answer within five seconds.
    #[arg(long, env = "WEIR_REQUIRE_STORE")]
    require_store: bool,
    /// How many processes share the Redis, as long as it has not been asked: while it is away and the limits say `local`, each decides
    /// with its share. Once it has been asked, the number of those that announced themselves counts.
    #[arg(long, env = "WEIR_EXPECTED_PROCESSES", value_name = "N", default_value = "1")]
    expected_processes: NonZeroU32,
    /// The most subjects that the memory store remembers.
    #[arg(long, env = "WEIR_MAX_SUBJECTS", value_name = "N", default_value = "1000000")]
    max_subjects: NonZeroUsize,
}

/// What a timer does for a store.
#[derive(Clone)]
pub(super) enum Tended {
    /// Give back memory of subjects that nobody asks about any more, a stretch at a time.
    Memory(Arc<MemoryStore>),
    /// Report what was met, and stay known to the other processes.
    Redis(Arc<RedisStore>),
}

impl StoreArgs {
    /// The store, not yet connected.
    pub(super) fn open(&self) -> Result<Tended, Failure> {
        let Some(url) = &self.redis_url else {
            return Ok(Tended::Memory(Arc::new(MemoryStore::new(self.max_subjects.get(), Arc::new(SystemClock)))));
        };
        let files = RedisFiles {
            password: self.redis_password_file.clone(),
            sentinel_password: self.redis_sentinel_password_file.clone(),
            ca: self.redis_ca_file.clone(),
            certificate: self.redis_cert_file.clone().zip(self.redis_key_file.clone()),
        };
        let deadline = Duration::from_millis(self.redis_deadline_ms);
        let options = RedisOptions { url: url.clone(), prefix: self.redis_prefix.clone(), deadline, files };
        let store =
            RedisStore::new(options).map_err(|error| Failure::new(error).hint("docs/operations.md names the forms of --redis-url"))?;
        Ok(Tended::Redis(Arc::new(store.with_refusals_from_memory())))
    }

    /// What holds before the store has been asked.
    pub(super) const fn expected_processes(&self) -> u32 {
        self.expected_processes.get()
    }

    /// Waits for a store that has to be there.
    pub(super) async fn require(&self, store: &Tended) -> Result<(), Failure> {
        if !self.require_store {
            return Ok(());
        }
        let start = monotonic();
        loop {
            let Err(error) = store.as_store().ping().await else { return Ok(()) };
            if elapsed(start) > REQUIRED_WITHIN {
                return Err(Failure::new(error)
                    .hint("without --require-store the process starts all the same, and serves as store.on_failure says"));
            }
            tokio::time::sleep(REQUIRED_WITHIN / 50).await;
        }
    }
}

impl Tended {
    pub(super) fn as_store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(memory) => memory.clone(),
            Self::Redis(redis) => redis.clone(),
        }
    }

    /// The word for it in `/health/ready`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// Looks after the store for as long as the process lives.
    pub(super) async fn tend(self, limiter: Arc<Limiter>, metrics: Arc<Metrics>) {
        let mut ticks = tokio::time::interval(TEND_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut asked_how_full = false;
        loop {
            ticks.tick().await;
            metrics.set_failing(limiter.failing(), limiter.local_subjects());
            match &self {
                Self::Memory(memory) => {
                    memory.sweep(SWEEP_LOOKS);
                    metrics.set_memory_subjects(memory.subjects(), memory.most_subjects());
                    metrics.set_store_up(true);
                }
                Self::Redis(redis) => {
                    limiter.sweep(SWEEP_LOOKS);
                    metrics.set_corrupt_states(redis.corrupt_states());
                    metrics.set_refused_from_memory(redis.refused_from_memory());
                    let alive = redis.announce().await;
                    metrics.set_store_up(alive.is_ok());
                    match alive {
                        Ok(processes) => {
                            limiter.set_processes(processes);
                            metrics.set_processes(processes);
                            asked_how_full = asked_how_full || warn_of_forgetful(redis).await;
                        }
                        Err(error) => debug!(%error, "this process could not say that it is alive"),
                    }
                }
            }
        }
    }

    /// Says goodbye to the other processes.
    pub(super) async fn leave(&self) {
        if let Self::Redis(redis) = self {
            let _ = tokio::time::timeout(LEAVE_WITHIN, redis.take_leave()).await;
        }
    }
}

/// Whether it could be asked.
async fn warn_of_forgetful(redis: &RedisStore) -> bool {
    let Ok(policies) = redis.forgetful().await else { return false };
    if let Some(policy) = policies.first() {
        warn!(
            maxmemory_policy = policy,
            "when its memory is full this Redis forgets overrides and who is being limited; set maxmemory-policy to noeviction or volatile-ttl"
        );
    }
    true
}

/// A prefix ends up in every key: short, and without what would break a key apart.
fn prefix(text: &str) -> Result<String, String> {
    plain(text, "_-.:")
}
