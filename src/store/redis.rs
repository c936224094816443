//! State in Redis, shared by all instances.
use std::time::Duration;
/// How to reach Redis.
#[derive(Debug, Clone)]
pub struct RedisOptions {
    /// `redis://…`, `rediss://…`, `redis+unix://…`.
    pub url: String,
    /// What stands before every key.
    pub prefix: String,
    /// The most a decision may take.
    pub deadline: Duration,
}
/// State in Redis.
pub struct RedisStore;
