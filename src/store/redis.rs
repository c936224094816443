//! State in Redis, shared by all instances. Each decision is one call of the script in `lua/`, which is the twin of
//! [`limit`](crate::limit): it reads the server's clock, decides, and writes, in one indivisible step.
//!
//! Decisions travel on one multiplexed connection per worker thread ([`lane`]), which carries many at once; everything else
//! uses a small pool ([`pool`]). Nothing is ever sent twice, but for one case: `NOSCRIPT` says that nothing ran.

mod error;
mod lane;
mod pool;
mod refusals;
mod script;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, ThreadId};
use std::time::Duration;

use async_trait::async_trait;
use redis::{AsyncConnectionConfig, Client, Cmd, Value};

use super::{Ask, ErrorKind, Guarded, GuardingStore, Key, Store, StoreError};
use crate::clock::unix_micros;
use crate::limit::{Decision, Micros, Policy, never_fits, without_state};
use error::store_error;
use lane::Lane;
pub(crate) use pool::{Connection as RedisConnection, RedisPool};
use refusals::Refusals;
use script::{Question, Script};

/// How to reach Redis.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://[user[:password]@]host[:port][/db]` or `redis+unix:///path[?db=n]`.
    pub url: String,
    /// What stands before every key, without the colon.
    pub prefix: String,
    /// The most that one call may take, connecting included.
    pub deadline: Duration,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self { url: "redis://127.0.0.1:6379".to_owned(), prefix: "ratelimit".to_owned(), deadline: Duration::from_millis(100) }
    }
}

/// Keeps state in Redis.
pub struct RedisStore {
    client: Client,
    connection: AsyncConnectionConfig,
    prefix: Box<str>,
    script: Script,
    refusals: Option<Refusals>,
    lanes: RwLock<HashMap<ThreadId, Arc<Lane>>>,
    deadline: Duration,
    pool: Arc<RedisPool>,
    corrupt_states: AtomicU64,
}

impl RedisStore {
    /// A store that connects when it is first asked.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn new(options: RedisOptions) -> Result<Self, StoreError> {
        let RedisOptions { url, prefix, deadline } = options;
        let client = Client::open(url).map_err(|error| StoreError::not_run(ErrorKind::Denied, format!("bad url: {error}")))?;
        let connection = AsyncConnectionConfig::new().set_connection_timeout(Some(deadline)).set_response_timeout(Some(deadline));
        let pool = Arc::new(RedisPool::new(client.clone(), connection.clone(), deadline));
        Ok(Self {
            client,
            connection,
            prefix: prefix.into(),
            deadline,
            script: Script::new(),
            refusals: None,
            lanes: RwLock::default(),
            pool,
            corrupt_states: AtomicU64::new(0),
        })
    }

    /// Answers further requests of a subject that was refused from this process's memory, for up to a second. (See
    /// [`Mirror`](crate::limit::Mirror) for what that changes when several processes share the server.) Needs [`Self::hand_on`].
    #[must_use]
    pub fn with_refusals_from_memory(mut self) -> Self {
        self.refusals = Some(Refusals::new());
        self
    }

    /// How many requests were refused from memory.
    #[must_use]
    pub fn refused_from_memory(&self) -> u64 {
        self.refusals.as_ref().map_or(0, Refusals::answered)
    }

    /// Hands on what was seen of refused subjects that nobody asks for any more. To be called a few times a second.
    ///
    /// # Errors
    /// When the server cannot take it: it is lost then, which is load of the last second.
    pub async fn hand_on(&self) -> Result<(), StoreError> {
        let Some(refusals) = &self.refusals else { return Ok(()) };
        for (key, policy, handed_on) in refusals.take_old() {
            self.run(Question::hand_on(&self.prefix, &key, &policy, &handed_on)).await?;
        }
        Ok(())
    }

    /// The Redis keys of a subject's state under `policy`: its hash, and the policy's own window if it has one.
    #[must_use]
    pub fn state_keys(&self, key: &Key, policy: &Policy) -> Vec<String> {
        script::state_keys(&self.prefix, key, policy)
    }

    /// What others that keep things beside the state need: the pool, the client, the prefix.
    pub(crate) fn parts(&self) -> (Arc<RedisPool>, Client, Box<str>) {
        (Arc::clone(&self.pool), self.client.clone(), self.prefix.clone())
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
        let mut cursor = 0_u64;
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(cursor).arg("MATCH").arg(&pattern).arg("COUNT").arg(1_000);
            let (next, keys): (u64, Vec<String>) = self.pooled(&scan).await?;
            if !keys.is_empty() {
                let mut unlink = redis::cmd("UNLINK");
                unlink.arg(&keys);
                let _: i64 = self.pooled(&unlink).await?;
            }
            if next == 0 {
                return Ok(());
            }
            cursor = next;
        }
    }

    /// One command on the pool.
    async fn pooled<T: redis::FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.pool.query(command).await
    }

    /// The connection of this thread.
    fn lane(&self) -> Arc<Lane> {
        let id = thread::current().id();
        if let Some(lane) = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(&id) {
            return Arc::clone(lane);
        }
        let mut lanes = self.lanes.write().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(lanes.entry(id).or_default())
    }

    /// Asks one question. A server that does not know the script has run nothing: it is then sent whole, which also teaches it.
    async fn run(&self, question: Question) -> Result<Value, StoreError> {
        let lane = self.lane();
        let send = async |command: &Cmd| lane.send(&self.client, &self.connection, self.deadline, command).await;
        let questions = [question];
        let answer = match send(&self.script.by_hash(&questions)).await {
            Err(error) if error.kind() == redis::ErrorKind::Server(redis::ServerErrorKind::NoScript) => {
                send(&self.script.whole(&questions)).await.map_err(|error| store_error(&error))
            }
            answer => answer.map_err(|error| store_error(&error)),
        };
        script::answers(answer?, 1)?.pop().unwrap_or(Value::Nil).extract_error().map_err(|error| store_error(&error))
    }

    /// The question of a request, with what a mirror of its subject has seen.
    fn question(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Question {
        let handed_on =
            self.refusals.as_ref().and_then(|refusals| if changes_nothing(ask) { refusals.peek(ask.key) } else { refusals.take(ask.key) });
        Question::decide(&self.prefix, ask, looked_at, handed_on.as_ref())
    }

    /// The decision in the script's answer.
    fn decision(&self, answer: &Value, ask: Ask<'_>) -> Result<Decision, StoreError> {
        let answer = script::answer(answer, ask)?;
        if answer.state_was_corrupt {
            self.corrupt_states.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(key = ask.key.as_str(), "stored state was none of ours: it counted as missing and is replaced");
        }
        if let Some(refusals) = &self.refusals {
            match answer.refused {
                Some(refused) => refusals.keep(ask, refused),
                // A peek, and a cost that can never fit, changed nothing.
                None if changes_nothing(ask) => {}
                None => refusals.forget(ask.key, answer.decision.decided_at),
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
        if let Some(decision) = self.refusals.as_ref().and_then(|refusals| refusals.decide(ask)) {
            return Ok(decision);
        }
        self.decision(&self.run(self.question(ask, &[])).await?, ask)
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        let mut unlink = redis::cmd("UNLINK");
        unlink.arg(self.state_keys(key, policy));
        let done = self.pooled::<i64>(&unlink).await.map(drop);
        // Also one that was refused while the command was under way.
        if let Some(refusals) = &self.refusals {
            refusals.forget(key, Micros::MAX);
        }
        done
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.pooled::<String>(&redis::cmd("PING")).await.map(drop)
    }

    fn guarding(&self) -> Option<&dyn GuardingStore> {
        Some(self)
    }
}

#[async_trait]
impl GuardingStore for RedisStore {
    async fn decide_unless_overridden(&self, ask: Ask<'_>, looked_at: &[&Key]) -> Result<Guarded, StoreError> {
        // A policy that keeps no state has nothing to ask the script, but what is set may be another one: a peek finds out.
        let stateless = without_state(ask.policy, ask.at.unwrap_or_else(unix_micros));
        let ask = if stateless.is_some() { Ask { cost: 0, ..ask } } else { ask };
        match self.run(self.question(ask, looked_at)).await? {
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
