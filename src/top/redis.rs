//! The ranking of all processes that share a Redis: a sorted set for each minute, `<prefix>:top:{refused}:<minute>` and
//! `<prefix>:top:{admitted}:<minute>`, of at most [`MOST_RANKED`] members.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Kind, MINUTES, MOST_RANKED, Ranking, minute, minutes};
use crate::identity::Subject;
use crate::limit::Micros;
use crate::store::{Key, RedisPool, RedisStore, StoreError};

/// A minute is forgotten when no look back reaches it, whatever clocks there are.
const KEPT_SECONDS: i64 = 60 * (MINUTES + 5);

/// Adds up in Redis.
pub struct RedisRanking {
    pool: Arc<RedisPool>,
    prefix: Box<str>,
}

impl RedisRanking {
    /// The ranking that is kept beside the state of `store`.
    #[must_use]
    pub fn beside(store: &RedisStore) -> Self {
        let (pool, _, prefix) = store.parts();
        Self { pool, prefix }
    }

    fn key(&self, kind: Kind, minute: i64) -> String {
        format!("{}:top:{{{}}}:{minute}", self.prefix, kind.name())
    }
}

#[async_trait]
impl Ranking for RedisRanking {
    async fn add(&self, kind: Kind, counts: &[(Subject, u64)], now: Micros) -> Result<(), StoreError> {
        let key = self.key(kind, minute(now));
        let mut pipe = ::redis::pipe();
        for (subject, count) in counts {
            pipe.cmd("ZINCRBY").arg(&key).arg(*count).arg(member(subject)).ignore();
        }
        // Those that come least go, so that a minute stays small however many processes add to it.
        pipe.cmd("ZREMRANGEBYRANK").arg(&key).arg(0).arg(-MOST_RANKED.cast_signed() - 1).ignore();
        pipe.cmd("EXPIRE").arg(&key).arg(KEPT_SECONDS).ignore();
        self.pool.connection().await?.pipeline(&pipe).await
    }

    async fn counts(&self, kind: Kind, now: Micros) -> Result<Vec<(Subject, u64)>, StoreError> {
        let keys: Vec<String> = minutes(now).map(|minute| self.key(kind, minute)).collect();
        let counts: Vec<(String, f64)> = self.pool.query(::redis::cmd("ZUNION").arg(keys.len()).arg(keys).arg("WITHSCORES")).await?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a sum of counts, all whole and far below 2^53")]
        let counts = counts.into_iter().rev().filter_map(|(member, count)| Some((Subject::from_encoded(&member)?, count.max(0.0) as u64)));
        Ok(counts.collect())
    }
}

/// A subject as it stands in keys, which no other is spelt like.
fn member(subject: &Subject) -> String {
    Key::new(subject, None).as_str().trim_matches(['{', '}']).to_owned()
}
