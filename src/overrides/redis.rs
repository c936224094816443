//! Overrides in Redis: a hash each, changed by one script, listed from an index, with news by publish and subscribe.
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>:config:{S}` | hash | the override; no expiry |
//! | `<prefix>:audit:{S}` | stream | the last [`AUDIT_KEPT`] changes |
//! | `<prefix>:config-index` | sorted set | the keys of all overrides, all with score 0: in the order of the keys |
//!
//! The index lies in a slot of its own, so it is written beside the script, before it: an override is never without its entry. An
//! entry without an override is dropped by whoever lists it; an override that was made behind the service's back gets its entry
//! when it is first read.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::StreamExt;
use redis::{Client, FromRedisValue};

use super::{Fields, Listener, Malformed, News, OverrideStore, Page, Record, Stored, Target, Write, WriteError, Written};
use crate::clock::unix_micros;
use crate::limit::Micros;
use crate::store::{ErrorKind, RedisConnection as Connection, RedisPool, RedisStore, StoreError};

/// One change. Changes are rare: the script travels with each.
const WRITE: &str = include_str!("redis/write.lua");
/// How many changes of a target are kept.
const AUDIT_KEPT: usize = 1_000;
/// How often each process speaks on the channel.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// After this much silence news may have been missed.
const SILENCE: Duration = Duration::from_secs(3);
/// What the heartbeat says; no key looks like it.
const ALIVE: &str = ".";

/// Overrides in Redis.
pub struct RedisOverrides {
    pool: Arc<RedisPool>,
    client: Client,
    prefix: Box<str>,
}

impl RedisOverrides {
    /// The overrides that are kept beside the state of `store`, with a connection of their own to listen on.
    #[must_use]
    pub fn beside(store: &RedisStore) -> Self {
        let (pool, client, prefix) = store.parts();
        Self { pool, client, prefix }
    }

    fn config_key(&self, target: &Target) -> String {
        format!("{}:config:{}", self.prefix, target.key().as_str())
    }

    fn audit_key(&self, target: &Target) -> String {
        format!("{}:audit:{}", self.prefix, target.key().as_str())
    }

    fn index(&self) -> String {
        format!("{}:config-index", self.prefix)
    }

    fn channel(&self) -> String {
        format!("{}:config-changes", self.prefix)
    }

    async fn ask<T: FromRedisValue>(&self, command: &redis::Cmd) -> Result<T, StoreError> {
        self.pool.query(command).await
    }

    /// Listens for changes for as long as it is polled, whatever happens to the connection, and speaks on the channel, so that all
    /// can tell a silent one. After every gap, [`News::Gap`].
    pub async fn listen(&self, listener: Listener) {
        let hear = async {
            loop {
                if let Err(error) = self.hear(&listener).await {
                    tracing::debug!(%error, "the channel for changes of overrides broke");
                }
                listener(News::Gap);
                tokio::time::sleep(HEARTBEAT / 2).await;
            }
        };
        let speak = async {
            loop {
                let _ = self.ask::<i64>(redis::cmd("PUBLISH").arg(self.channel()).arg(ALIVE)).await;
                tokio::time::sleep(HEARTBEAT).await;
            }
        };
        tokio::join!(hear, speak);
    }

    async fn hear(&self, listener: &Listener) -> Result<(), redis::RedisError> {
        let mut channel = in_time(self.client.get_async_pubsub()).await?;
        in_time(channel.subscribe(self.channel())).await?;
        // Whatever was changed before this moment may have been missed.
        listener(News::Gap);
        let config = format!("{}:config:", self.prefix);
        let mut messages = channel.on_message();
        loop {
            let next = async { messages.next().await.ok_or_else(silent) };
            let text: String = in_time(next).await?.get_payload()?;
            if let Some(key) = text.strip_prefix(&config) {
                listener(News::Changed(key.to_owned()));
            }
        }
    }

    /// What is stored for each of `keys`, in one round trip to the server.
    async fn read_all(&self, keys: &[String]) -> Result<Vec<Fields>, StoreError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut pipeline = redis::pipe();
        for key in keys {
            pipeline.hgetall(format!("{}:config:{key}", self.prefix));
        }
        self.pool.connection().await?.pipeline(&pipeline).await
    }
}

fn silent() -> redis::RedisError {
    std::io::Error::from(std::io::ErrorKind::TimedOut).into()
}

async fn in_time<T>(what: impl Future<Output = Result<T, redis::RedisError>>) -> Result<T, redis::RedisError> {
    tokio::time::timeout(SILENCE, what).await.unwrap_or_else(|_| Err(silent()))
}

fn stored(fields: &Fields) -> Stored {
    Stored::from_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

#[async_trait]
impl OverrideStore for RedisOverrides {
    async fn read(&self, target: &Target) -> Result<Stored, StoreError> {
        let fields: Fields = match self.ask(redis::cmd("HGETALL").arg(self.config_key(target))).await {
            // A key of another type is nothing of ours: named, and worth nothing.
            Err(error) if error.kind == ErrorKind::WrongType => {
                let malformed = vec![Malformed { field: "(the key)".to_owned(), why: "is of another type than a hash".to_owned() }];
                return Ok(Stored { malformed, ..Stored::default() });
            }
            fields => fields?,
        };
        let stored = stored(&fields);
        if !stored.own.is_empty() && stored.own.version == 0 {
            // Made by hand: give it its entry in the list.
            let _ = self.ask::<i64>(redis::cmd("ZADD").arg(self.index()).arg(0).arg(target.key().as_str())).await;
        }
        Ok(stored)
    }

    async fn write(&self, target: &Target, write: Write) -> Result<Written, WriteError> {
        let Write { expected, own, expires_in, entry } = write;
        self.ask::<i64>(redis::cmd("ZADD").arg(self.index()).arg(0).arg(target.key().as_str())).await?;
        let mut call = redis::cmd("EVAL");
        call.arg(WRITE).arg(2).arg(self.config_key(target)).arg(self.audit_key(target));
        call.arg(expected)
            .arg(expires_in.map(|span| span.to_string()).unwrap_or_default())
            .arg(own.temporary.as_ref().map(|temporary| temporary.until.to_string()).unwrap_or_default())
            .arg(self.channel())
            .arg(serde_json::to_string(&entry).unwrap_or_default())
            .arg(AUDIT_KEPT);
        for (name, value) in own.to_fields() {
            call.arg(name).arg(value);
        }
        let mut connection = self.pool.connection().await?;
        let (done, version, until): (bool, u64, String) = connection.query(&call).await?;
        if !done {
            return Err(WriteError::Stale(version));
        }
        Ok(Written { version, until: until.parse().ok(), durable: durable(&mut connection).await })
    }

    async fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        let from = cursor.map_or_else(|| format!("[{{{prefix}"), |cursor| format!("({cursor}"));
        // Every key that begins with the prefix sorts before the prefix with this behind it.
        let to = format!("[{{{prefix}\u{ff}");
        let mut range = redis::cmd("ZRANGE");
        range.arg(self.index()).arg(from).arg(to).arg("BYLEX").arg("LIMIT").arg(0).arg(limit);
        let keys: Vec<String> = self.ask(&range).await?;
        let next = if keys.len() == limit { keys.last().cloned() } else { None };
        let mut page = Page { items: Vec::new(), next };
        for (key, fields) in keys.iter().zip(self.read_all(&keys).await?) {
            let stored = stored(&fields);
            match Target::from_key(key) {
                Some(target) if !stored.own.is_empty() || !stored.malformed.is_empty() => page.items.push((target, stored)),
                // Deleted, or never there.
                _ => drop(self.ask::<i64>(redis::cmd("ZREM").arg(self.index()).arg(key)).await),
            }
        }
        Ok(page)
    }

    async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, StoreError> {
        let mut range = redis::cmd("XREVRANGE");
        range.arg(self.audit_key(target)).arg("+").arg("-").arg("COUNT").arg(limit);
        let entries: Vec<(String, Fields)> = self.ask(&range).await?;
        Ok(entries.into_iter().filter_map(|(_, fields)| record(&fields)).collect())
    }

    fn now(&self) -> Micros {
        // The server's own clock decides when a part ends (its script writes the end); to notice it, this one is near enough.
        unix_micros()
    }
}

fn record(fields: &Fields) -> Option<Record> {
    Some(Record {
        at: fields.get("at")?.parse().ok()?,
        version: fields.get("version")?.parse().ok()?,
        entry: serde_json::from_str(fields.get("entry")?).ok()?,
    })
}

/// Whether what was last written on this connection would survive the loss of the server: a replica or the append-only file has it;
/// nothing when that cannot be told. (`WAITAOF` came with Redis 7.2.)
async fn durable(connection: &mut Connection<'_>) -> Option<bool> {
    let info: String = connection.query(redis::cmd("INFO").arg("replication")).await.ok()?;
    let replicas = info.lines().find_map(|line| line.strip_prefix("connected_slaves:")?.trim().parse::<u32>().ok())?;
    if replicas > 0 {
        return connection.query::<u32>(redis::cmd("WAIT").arg(1).arg(50)).await.ok().map(|reached| reached > 0);
    }
    let persistence: String = connection.query(redis::cmd("INFO").arg("persistence")).await.ok()?;
    if !persistence.contains("aof_enabled:1") {
        return Some(false);
    }
    let (local, _): (u32, u32) = connection.query(redis::cmd("WAITAOF").arg(1).arg(0).arg(50)).await.ok()?;
    Some(local > 0)
}
