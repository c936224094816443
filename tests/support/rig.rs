//! Limiters on a store through the network, as a process has them, and crowds that ask them.

use std::sync::Arc;
use std::time::Duration;

use weir::clock::{elapsed, monotonic};
use weir::config::Config;
use weir::identity::Subject;
use weir::limit::{Field, Part, Policy, Value};
use weir::limiter::{Answer, Limiter, Order, Request};
use weir::overrides::{Cache, Change, FRESH, RedisOverrides, Set, Target};
use weir::store::{Ask, Key, RedisFiles, RedisOptions, RedisStore, Store, StoreError};

/// A store at `url`, patient enough for a busy machine.
pub fn patient(url: &str) -> RedisStore {
    with_files(url, RedisFiles::default())
}

pub fn with_files(url: &str, files: RedisFiles) -> RedisStore {
    store(url, Duration::from_secs(10), files)
}

pub fn store(url: &str, deadline: Duration, files: RedisFiles) -> RedisStore {
    RedisStore::new(RedisOptions { url: url.to_owned(), deadline, files, ..RedisOptions::default() }).expect("a good url")
}

/// A limiter with overrides, and what hears of their changes.
pub struct Instance {
    pub limiter: Arc<Limiter>,
    pub store: Arc<RedisStore>,
    hearing: tokio::task::JoinHandle<()>,
}

impl Instance {
    pub fn on(store: RedisStore, yaml: &str) -> Self {
        let store = Arc::new(store);
        let overrides = Arc::new(RedisOverrides::beside(&store));
        let cache = Arc::new(Cache::new(overrides.clone(), FRESH));
        let heeding = cache.clone();
        let hearing = tokio::spawn(async move { overrides.listen(Arc::new(move |news| heeding.heed(&news))).await });
        let (config, _) = Config::from_yaml(yaml).expect("a good file");
        let limiter = Arc::new(Limiter::new(config, store.clone()).with_overrides(cache));
        Self { limiter, store, hearing }
    }

    pub async fn ask(&self, user: &str) -> Result<Answer, StoreError> {
        ask(&self.limiter, user).await
    }

    /// Sets a bucket's capacity for `user`.
    pub async fn set_capacity(&self, user: &str, capacity: u32) {
        let sets = vec![Set::Policy(Field::BucketCapacity, Some(Value::Number(capacity.into())))];
        let change = Change::Patch { sets, expires_in: None, note: None };
        self.limiter.change(&target(user), &change, &Order { by: "test".to_owned(), ..Order::default() }).await.expect("changed");
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

pub fn target(user: &str) -> Target {
    Target::general(Subject::user(user).expect("a good id"))
}

pub fn key(user: &str) -> Key {
    Key::new(&Subject::user(user).expect("a good id"), None)
}

/// A policy that admits so many and gives hardly any of them back while a test runs; above 2 000 none at all.
pub fn policy(limit: u32) -> Policy {
    let limited = limit.to_string();
    let bucket = [(Field::Algorithm, "token_bucket"), (Field::TokensPerSecond, "0.001"), (Field::BucketCapacity, &limited)];
    let window = [(Field::Algorithm, "sliding_window"), (Field::WindowSeconds, "2592000"), (Field::WindowLimit, &limited)];
    let mut part = Part::default();
    for (field, text) in if limit > 2_000 { window } else { bucket } {
        part.set_text(field, text).expect("a value");
    }
    Policy::compile(&part).expect("a policy")
}

/// One request of `user`, on the store itself.
pub async fn take(store: &RedisStore, user: &str, policy: &Policy) -> Result<u64, StoreError> {
    let decision = store.decide(Ask { key: &key(user), policy, cost: 1, at: None }).await?;
    Ok(decision.quota.map_or(0, |quota| quota.remaining))
}

pub async fn ask(limiter: &Limiter, user: &str) -> Result<Answer, StoreError> {
    limiter.check(Request { subject: Subject::user(user).expect("a good id"), path: None, method: None, cost: None }).await
}

/// Asks until it is so, within ten times what is promised; how long it took.
pub async fn eventually(what: &str, promised: Duration, mut holds: impl AsyncFnMut() -> bool) -> Duration {
    let start = monotonic();
    while !holds().await {
        assert!(elapsed(start) < promised * 10, "waited in vain: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    elapsed(start)
}

/// How long a part of the chaos lasts: a moment in every test run, or `WEIR_CHAOS_SECONDS` where somebody wants the figures.
#[expect(clippy::disallowed_methods, reason = "a test's own switch, documented in CONTRIBUTING")]
pub fn lasting(moment: Duration) -> Duration {
    std::env::var("WEIR_CHAOS_SECONDS")
        .ok()
        .map_or(moment, |seconds| Duration::from_secs(seconds.parse().expect("WEIR_CHAOS_SECONDS is a whole number")))
}

/// The share that took at most so long: of sorted durations.
pub fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}
