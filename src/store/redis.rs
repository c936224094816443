//! State in Redis, shared by all instances. Each decision is one call of the script in `lua/`, which is the twin of
//! [`limit`](crate::limit): it reads the server's clock, decides, and writes, in one indivisible step.
//!
//! Layout: `script` is the call and its answer, and nothing here but it and this file knows of decisions. `url`, `connect`, `discover`
//! and `servers` are about where Redis is; `lane` is the connection of a worker thread, which carries many decisions at once; everything
//! else uses a small `pool`. Nothing is ever sent twice unless a server says that it did not run.

mod connect;
mod discover;
mod error;
mod lane;
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
use crate::limit::{Decision, Policy, without_state};
use connect::Connector;
pub use connect::RedisFiles;
pub(crate) use pool::Connection as RedisConnection;
use script::Script;
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
    script: Script,
    guarded_script: Script,
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
        Ok(Self {
            servers: RedisServers::new(kind, Connector::new(place, files), deadline),
            prefix: prefix.into(),
            script: Script::decide(),
            guarded_script: Script::decide_unless_overridden(),
            corrupt_states: AtomicU64::new(0),
            process: uuid::Uuid::new_v4().to_string(),
        })
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

    /// Runs a script. A server that does not know it has run nothing: it is then sent whole, which also teaches it.
    async fn run(&self, script: &Script, ask: Ask<'_>, looked_at: &[&Key]) -> Result<Value, StoreError> {
        let call = |whole| if whole { script.whole(&self.prefix, ask, looked_at) } else { script.by_hash(&self.prefix, ask, looked_at) };
        self.servers.ask(ask.key.as_str(), &call).await
    }

    /// The decision in a script's answer.
    fn decision(&self, answer: &Value, ask: Ask<'_>) -> Result<Decision, StoreError> {
        let answer = script::answer(answer, ask.policy)?;
        if answer.state_was_corrupt {
            self.corrupt_states.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(key = ask.key.as_str(), "stored state was none of ours: it counted as missing and is replaced");
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
        self.decision(&self.run(&self.script, ask, &[]).await?, ask)
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.state_keys(key, policy));
        self.servers.query::<i64>(key.as_str(), &unlink).await.map(drop)
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
        match self.run(&self.guarded_script, ask, looked_at).await? {
            found @ Value::Array(_) => script::found(&found, looked_at.len()).map(Guarded::Overridden),
            answer => self.decision(&answer, ask).map(|decision| Guarded::Decided(stateless.unwrap_or(decision))),
        }
    }
}

/// A prefix as the literal part of a `MATCH` pattern.
fn escape_glob(text: &str) -> String {
    text.chars().flat_map(|c| if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') { vec!['\\', c] } else { vec![c] }).collect()
}
