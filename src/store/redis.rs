//! State in Redis, shared by all instances. Each decision is one call of the script in `lua/`, which is the twin of
//! [`limit`](crate::limit): it reads the server's clock, decides, and writes, in one indivisible step.
//!
//! Layout: `script` is the call and its answer, and nothing here but it and this file knows of decisions. `url`, `connect`, `discover`
//! and `servers` are about where Redis is; `lane` is the connection of a worker thread, which carries many decisions at once; everything
//! else uses a small `pool`. Nothing is ever sent twice unless a server says that it did not run.

mod calls;
mod connect;
mod discover;
mod error;
mod lane;
mod mirrors;
mod pool;
mod processes;
mod script;
mod servers;
mod slot;
mod url;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use redis::Value;

use super::{Ask, Guarded, GuardingStore, Key, Store, StoreError};
use crate::clock::unix_micros;
use crate::limit::{Decision, Micros, Policy, never_fits, without_state};
use calls::Calls;
use connect::Connector;
pub use connect::RedisFiles;
use mirrors::Mirrors;
pub(crate) use pool::Connection as RedisConnection;
use script::Question;
pub(crate) use servers::Servers as RedisServers;
pub use url::UrlError;

/// How to reach Redis.
#[derive(Clone)]
pub struct RedisOptions {
    /// `redis://[user[:password]@]host[:port][/db]`, `rediss://…` (TLS), `redis+unix:///path[?db=n]`,
    /// `redis+sentinel://[user[:password]@]host[:port],…/master[/db]` or `redis+cluster://[user[:password]@]host[:port],…`.
    pub url: String,
    /// What stands before every key, without the colon.
    pub prefix: String,
    /// The most that one call may take, connecting included.
    pub deadline: Duration,
    /// Secrets and certificates.
    pub files: RedisFiles,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            prefix: "ratelimit".to_owned(),
            deadline: Duration::from_millis(100),
            files: RedisFiles::default(),
        }
    }
}

/// Keeps state in Redis.
pub struct RedisStore {
    servers: Arc<RedisServers>,
    prefix: Box<str>,
    calls: Arc<Calls>,
    mirrors: Option<Arc<Mirrors>>,
    corrupt_states: AtomicU64,
    /// The name of this process among those that share the Redis.
    process: String,
}

impl RedisStore {
    /// A store that connects when it is first asked.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(options: RedisOptions) -> Result<Self, UrlError> {
        let RedisOptions { url, prefix, deadline, files } = options;
        let place = url::parse(&url)?;
        let kind = place.kind.clone();
        let servers = RedisServers::new(kind, Connector::new(place, files), deadline);
        Ok(Self {
            calls: Calls::new(Arc::clone(&servers)),
            servers,
            prefix: prefix.into(),
            mirrors: None,
            corrupt_states: AtomicU64::new(0),
            process: uuid::Uuid::new_v4().to_string(),
        })
    }

    /// Answers further requests of a subject that was refused from this process's memory, for up to a second. (See
    /// [`Mirror`](crate::limit::Mirror) for what that changes when several processes share the server.)
    #[must_use]
    pub fn with_refusals_from_memory(mut self) -> Self {
        self.mirrors = Some(Mirrors::new(Arc::clone(&self.calls), &self.prefix));
        self
    }

    /// Forgets what was refused to `key`: its state was reset.
    pub fn forget_refusals(&self, key: &Key) {
        if let Some(mirrors) = &self.mirrors {
            mirrors.forget(key, Micros::MAX);
        }
    }

    /// How many requests were refused from memory.
    #[must_use]
    pub fn refused_from_memory(&self) -> u64 {
        self.mirrors.as_ref().map_or(0, |mirrors| mirrors.answered())
    }

    /// The Redis keys of a subject's state under `policy`: its hash, and the policy's own window if it has one.
    #[must_use]
    pub fn state_keys(&self, key: &Key, policy: &Policy) -> Vec<String> {
        script::state_keys(&self.prefix, key, policy)
    }

    /// What others that keep things beside the state need: the servers and the prefix.
    pub(crate) fn parts(&self) -> (Arc<RedisServers>, Box<str>) {
        (Arc::clone(&self.servers), self.prefix.clone())
    }

    /// How many decisions met stored state that was none of theirs (rubbish, a wrong type), and replaced it.
    #[must_use]
    pub fn corrupt_states(&self) -> u64 {
        self.corrupt_states.load(Ordering::Relaxed)
    }

    /// Deletes every key under this store's prefix, a bounded batch at a time: what a replay leaves behind.
    ///
    /// # Errors
    /// When Redis cannot be reached. Some keys may be gone by then.
    pub async fn delete_all(&self) -> Result<(), StoreError> {
        let pattern = format!("{}:*", escape_glob(&self.prefix));
        for server in self.servers.all().await? {
            let mut connection = server.connection().await?;
            let mut cursor = 0_u64;
            loop {
                let mut scan = redis::cmd("SCAN");
                scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
                let (next, keys): (u64, Vec<String>) = connection.query(&scan).await?;
                if !keys.is_empty() {
                    // One command each: in a cluster a command's keys must lie in one slot.
                    let mut unlink = redis::pipe();
                    for key in &keys {
                        unlink.cmd("UNLINK").arg(key).ignore();
                    }
                    connection.run_all(&unlink).await?;
                }
                if next == 0 {
                    break;
                }
                cursor = next;
            }
        }
        Ok(())
    }

    /// The question of a request, with what a mirror of its subject has seen.
    fn question(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Question {
        let handed_on =
            self.mirrors.as_ref().and_then(|mirrors| if changes_nothing(ask) { mirrors.peek(ask.key) } else { mirrors.take(ask.key) });
        Question::decide(&self.prefix, ask, looked_at, handed_on.as_ref())
    }

    /// The decision in the script's answer.
    fn decision(&self, answer: &Value, ask: Ask<'_>) -> Result<Decision, StoreError> {
        let answer = script::answer(answer, ask)?;
        if answer.state_was_corrupt {
            self.corrupt_states.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(key = ask.key.as_str(), "stored state was none of ours: it counted as missing and is replaced");
        }
        if let Some(mirrors) = &self.mirrors {
            match answer.refused {
                Some(refused) => mirrors.keep(ask, refused),
                // A peek, and a cost that can never fit, changed nothing.
                None if changes_nothing(ask) => {}
                None => mirrors.forget(ask.key, answer.decision.decided_at),
            }
        }
        Ok(answer.decision)
    }
}

#[async_trait]
impl Store for RedisStore {
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        if let Some(decision) = without_state(ask.policy, ask.at.unwrap_or_else(unix_micros)) {
            return Ok(decision);
        }
        if let Some(decision) = self.mirrors.as_ref().and_then(|mirrors| mirrors.decide(ask)) {
            return Ok(decision);
        }
        self.decision(&self.calls.ask(ask.key.as_str(), self.question(ask, &[])).await?, ask)
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.state_keys(key, policy));
        let done = self.servers.query::<i64>(key.as_str(), &unlink).await.map(drop);
        // Also one that was refused while the command was under way.
        self.forget_refusals(key);
        done
    }

    async fn ping(&self) -> Result<(), StoreError> {
        // All at once: one that is away must not make the others wait.
        let servers = self.servers.all().await?;
        let pings = servers.iter().map(|server| async { server.connection().await?.query::<String>(&redis::cmd("PING")).await });
        futures_util::future::try_join_all(pings).await.map(drop)
    }

    fn guarding(&self) -> Option<&dyn GuardingStore> {
        Some(self)
    }

    fn part(&self, key: &Key) -> usize {
        self.servers.part(key.as_str())
    }
}

#[async_trait]
impl GuardingStore for RedisStore {
    async fn decide_unless_overridden(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Result<Guarded, StoreError> {
        // A policy that keeps no state has nothing to ask the script, but what is set may be another one: a peek finds out.
        let stateless = without_state(ask.policy, ask.at.unwrap_or_else(unix_micros));
        let ask = if stateless.is_some() { Ask { cost: 0, ..ask } } else { ask };
        match self.calls.ask(ask.key.as_str(), self.question(ask, looked_at)).await? {
            found @ Value::Array(_) => script::found(&found, looked_at.len()).map(Guarded::Overridden),
            answer => self.decision(&answer, ask).map(|decision| Guarded::Decided(stateless.unwrap_or(decision))),
        }
    }
}

/// Whether what a mirror hands on would not be written: a peek, or a cost that is answered like one.
fn changes_nothing(ask: Ask<'_>) -> bool {
    ask.cost == 0 || never_fits(ask.policy, ask.cost)
}

/// A prefix as the literal part of a `MATCH` pattern.
fn escape_glob(text: &str) -> String {
    text.chars().flat_map(|c| if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') { vec!['\\', c] } else { vec![c] }).collect()
}
