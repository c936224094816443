//! Overrides in Redis: a hash each, changed by one script, listed from an index, with news by publish and subscribe.
//!
//! | key | type | holds |
//! | --- | --- | --- |
//! | `<prefix>:config:{S}` | hash | the override; no expiry |
//! | `<prefix>:audit:{S}` | stream | the last [`AUDIT_KEPT`] changes |
//! | `<prefix>:config-index` | sorted set | the keys of all overrides, all with score 0: in the order of the keys |
//!
//! The index lies in a slot of its own, so it is written beside the script: before it, so that an override is never without its entry,
//! and after it, for whoever found nothing and dropped the entry in between. An entry without an override is dropped by whoever lists
//! it, who then looks once more; an override that was made behind the service's back gets its entry when it is first read.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use redis::FromRedisValue;

use super::{Fields, Listener, News, OverrideStore, Page, Record, Stored, Target, Write, WriteError, Written};
use crate::clock::unix_micros;
use crate::limit::{Micros, US};
use crate::store::{ErrorKind, Found, RedisConnection as Connection, RedisServers, RedisStore, StoreError};

/// One change. Changes are rare: the script travels with each.
const WRITE: &str = include_str!("redis/write.lua");
/// How many changes of a target are kept.
const AUDIT_KEPT: usize = 1_000;
/// How often each process speaks on the channel.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// After this much silence news may have been missed.
const SILENCE: Duration = Duration::from_secs(3);
/// How many overrides of a page are read at a time.
const READS_AT_A_TIME: usize = 32;
/// What the heartbeat says; no key looks like it.
const ALIVE: &str = ".";

/// Overrides in Redis.
pub struct RedisOverrides {
    servers: Arc<RedisServers>,
    prefix: Box<str>,
    /// How far the server's clock is ahead of this one, µs.
    ahead: AtomicI64,
}

impl RedisOverrides {
    /// The overrides that are kept beside the state of `store`, with a connection of their own to listen on.
    #[must_use]
    pub fn beside(store: &RedisStore) -> Self {
        let (servers, prefix) = store.parts();
        Self { servers, prefix, ahead: AtomicI64::new(0) }
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

    async fn ask<T: FromRedisValue>(&self, key: &str, command: &redis::Cmd) -> Result<T, StoreError> {
        self.servers.query(key, command).await
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
                let _ = self.speak().await;
                tokio::time::sleep(HEARTBEAT).await;
            }
        };
        tokio::join!(hear, speak);
    }

    /// Says that the channel is alive, and asks for the server's time on the way.
    async fn speak(&self) -> Result<(), StoreError> {
        let channel = self.channel();
        let _: i64 = self.ask(&channel, redis::cmd("PUBLISH").arg(&channel).arg(ALIVE)).await?;
        let asked = unix_micros();
        let (seconds, micros): (Micros, Micros) = self.ask(&channel, &redis::cmd("TIME")).await?;
        let here = Micros::midpoint(asked, unix_micros());
        self.ahead.store(seconds * US + micros - here, Ordering::Relaxed);
        Ok(())
    }

    /// Puts a key on the list.
    async fn enlist(&self, key: &str) -> Result<(), StoreError> {
        self.ask::<i64>(&self.index(), redis::cmd("ZADD").arg(self.index()).arg(0).arg(key)).await.map(drop)
    }

    /// Takes a key off the list under which nothing was found; back on if something is there by now.
    async fn delist(&self, key: &str) -> Result<(), StoreError> {
        self.ask::<i64>(&self.index(), redis::cmd("ZREM").arg(self.index()).arg(key)).await?;
        match self.read_all(&[key.to_owned()]).await?.first() {
            Some(Found::Fields(fields)) if !fields.is_empty() && !is_nothing(&Stored::from_found(&Found::Fields(fields.clone()))) => {
                self.enlist(key).await
            }
            _ => Ok(()),
        }
    }

    async fn hear(&self, listener: &Listener) -> Result<(), StoreError> {
        let broken = |error| StoreError::new(ErrorKind::Connection, error);
        let name = self.channel();
        let mut channel = in_time(self.servers.listen(&name)).await?;
        in_time(async { channel.subscribe(&name).await.map_err(broken) }).await?;
        // Whatever was changed before this moment may have been missed.
        listener(News::Gap);
        let config = format!("{}:config:", self.prefix);
        let mut messages = channel.on_message();
        loop {
            let next = async { messages.next().await.ok_or_else(silent) };
            let text: String = in_time(next).await?.get_payload().map_err(broken)?;
            if let Some(key) = text.strip_prefix(&config) {
                listener(News::Changed(key.to_owned()));
            }
        }
    }

    /// What is stored for each of `keys`, several at a time.
    async fn read_all(&self, keys: &[String]) -> Result<Vec<Found>, StoreError> {
        let keys: Vec<String> = keys.iter().map(|key| format!("{}:config:{key}", self.prefix)).collect();
        stream::iter(keys).map(|key| self.read_key(key)).buffered(READS_AT_A_TIME).try_collect().await
    }

    async fn read_key(&self, key: String) -> Result<Found, StoreError> {
        match self.ask::<Raw>(&key, redis::cmd("HGETALL").arg(&key)).await {
            Err(error) if error.kind == ErrorKind::WrongType => Ok(Found::WrongType),
            raw => raw.map(fields),
        }
    }
}

/// A hash as it comes: people may have put any bytes there.
type Raw = Vec<(Vec<u8>, Vec<u8>)>;

/// What is no text becomes text that no field takes.
fn fields(raw: Raw) -> Found {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Found::Fields(raw.into_iter().map(|(name, value)| (text(name), text(value))).collect())
}

fn is_nothing(stored: &Stored) -> bool {
    stored.own.is_empty() && stored.malformed.is_empty()
}

fn silent() -> StoreError {
    StoreError::new(ErrorKind::Timeout, "the channel is silent")
}

async fn in_time<T>(what: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(SILENCE, what).await.unwrap_or_else(|_| Err(silent()))
}

#[async_trait]
impl OverrideStore for RedisOverrides {
    async fn read(&self, target: &Target) -> Result<Stored, StoreError> {
        let found = self.read_key(self.config_key(target)).await?;
        let stored = Stored::from_found(&found);
        if stored.is_made_by_hand() {
            let _ = self.enlist(target.key().as_str()).await;
        }
        Ok(stored)
    }

    async fn write(&self, target: &Target, write: Write) -> Result<Written, WriteError> {
        let Write { expected, own, expires_in, not_before, entry } = write;
        let key = target.key();
        self.enlist(key.as_str()).await?;
        let mut call = redis::cmd("EVAL");
        call.arg(WRITE).arg(2).arg(self.config_key(target)).arg(self.audit_key(target));
        call.arg(expected)
            .arg(expires_in.map(|span| span.to_string()).unwrap_or_default())
            .arg(own.temporary.as_ref().map(|temporary| temporary.until.to_string()).unwrap_or_default())
            .arg(not_before.map(|at| at.to_string()).unwrap_or_default())
            .arg(self.channel())
            .arg(serde_json::to_string(&entry).unwrap_or_default())
            .arg(AUDIT_KEPT);
        for (name, value) in own.to_fields() {
            call.arg(name).arg(value);
        }
        let then = async |(done, version, until): (String, u64, String), connection: &mut Connection<'_>| match done.as_str() {
            "written" => Ok(Written { version, until: until.parse().ok(), durable: durable(connection).await }),
            "early" => Err(WriteError::TooEarly),
            _ => Err(WriteError::Stale(version)),
        };
        let written = self.servers.query_then(&self.config_key(target), &call, then).await??;
        // It is written whatever becomes of this: an entry that is missing comes back with the next change.
        let _ = self.enlist(key.as_str()).await;
        Ok(written)
    }

    async fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        let from = cursor.map_or_else(|| format!("[{{{prefix}"), |cursor| format!("({cursor}"));
        // Every key that begins with the prefix sorts before the prefix with this behind it.
        let to = format!("[{{{prefix}\u{ff}");
        let mut range = redis::cmd("ZRANGE");
        range.arg(self.index()).arg(from).arg(to).arg("BYLEX").arg("LIMIT").arg(0).arg(limit);
        let keys: Vec<String> = self.ask(&self.index(), &range).await?;
        let next = if keys.len() == limit { keys.last().cloned() } else { None };
        let mut page = Page { items: Vec::new(), next };
        for (key, found) in keys.iter().zip(self.read_all(&keys).await?) {
            let stored = Stored::from_found(&found);
            match Target::from_key(key) {
                Some(target) if !is_nothing(&stored) => page.items.push((target, stored)),
                // Deleted, or never there.
                _ => drop(self.delist(key).await),
            }
        }
        Ok(page)
    }

    async fn announce(&self, target: &Target) -> Result<(), StoreError> {
        let channel = self.channel();
        self.servers.query::<i64>(&channel, redis::cmd("PUBLISH").arg(&channel).arg(self.config_key(target))).await.map(drop)
    }

    async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, StoreError> {
        let mut range = redis::cmd("XREVRANGE");
        range.arg(self.audit_key(target)).arg("+").arg("-").arg("COUNT").arg(limit);
        let entries: Vec<(String, Fields)> = self.ask(&self.audit_key(target), &range).await?;
        Ok(entries.into_iter().filter_map(|(_, fields)| record(&fields)).collect())
    }

    fn now(&self) -> Micros {
        unix_micros() + self.ahead.load(Ordering::Relaxed)
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
