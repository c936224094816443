//! The ranking of all processes that share a Redis: a sorted set for each minute, `<prefix>:top:{refused}:<minute>` and
//! `<prefix>:top:{admitted}:<minute>`, of at most [`MOST_RANKED`] members.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Kind, MINUTES, MOST_RANKED, Ranking, minute, minutes};
use crate::identity::Subject;
use crate::limit::Micros;
use crate::store::{Key, RedisServers, RedisStore, StoreError};

/// Adding is rare: the script travels with each.
const ADD: &str = include_str!("redis/add.lua");
/// A minute is forgotten when no look back reaches it, whatever clocks there are.
const KEPT_SECONDS: i64 = 60 * (MINUTES + 5);

/// Adds up in Redis.
pub struct RedisRanking {
    servers: Arc<RedisServers>,
    prefix: Box<str>,
}

impl RedisRanking {
    /// The ranking that is kept beside the state of `store`.
    #[must_use]
    pub fn beside(store: &RedisStore) -> Self {
        let (servers, prefix) = store.parts();
        Self { servers, prefix }
    }

    fn key(&self, kind: Kind, minute: i64) -> String {
        format!("{}:top:{{{}}}:{minute}", self.prefix, kind.name())
    }
}

#[async_trait]
impl Ranking for RedisRanking {
    async fn add(&self, kind: Kind, counts: &[(Subject, u64)], now: Micros) -> Result<(), StoreError> {
        let key = self.key(kind, minute(now));
        let mut command = ::redis::cmd("EVAL");
        command.arg(ADD).arg(1).arg(&key).arg(MOST_RANKED).arg(KEPT_SECONDS);
        for (subject, count) in counts {
            command.arg(*count).arg(member(subject));
        }
        self.servers.query::<()>(&key, &command).await
    }

    async fn counts(&self, kind: Kind, now: Micros) -> Result<Vec<(Subject, u64)>, StoreError> {
        let keys: Vec<String> = minutes(now).map(|minute| self.key(kind, minute)).collect();
        let counts: Vec<(String, f64)> =
            self.servers.query(&keys[0], ::redis::cmd("ZUNION").arg(keys.len()).arg(&keys).arg("WITHSCORES")).await?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of counts, all whole and far below 2^53")]
        let counts = counts.into_iter().rev().filter_map(|(member, count)| Some((Subject::from_encoded(&member)?, count.max(0.0) as u64)));
        Ok(counts.collect())
    }
}

/// A subject as it stands in keys, which no other is spelt like.
fn member(subject: &Subject) -> String {
    Key::new(subject, None).as_str().trim_matches(['{', '}']).to_owned()
}
