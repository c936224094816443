//! The twins decide alike: the Rust function and the script in a real Redis, on random traces, every field equal.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;

use futures_util::{StreamExt, stream};
use rand::RngExt;
use support::random;
use support::redis::RedisServer;
use weir::identity::Subject;
use weir::limit::{State, decide};
use weir::store::{Ask, Key, RedisStore, Store};

const TRACES: usize = 3_000;
const EVENTS: usize = 60;

/// One random trace of two users, whose policies change under way; both twins answer each request.
async fn trace(store: &RedisStore, seed: u64) {
    let mut rng = random::rng(seed);
    let mut policies = [random::policy(&mut rng), random::policy(&mut rng)];
    let mut states: [State; 2] = Default::default();
    let keys = [0, 1].map(|user| Key::new(&Subject::user(&format!("{seed}-{user}")).expect("a good id"), None));
    let mut now = 1_767_225_600_000_000 + rng.random_range(0..10_000_000_000);
    for event in 0..EVENTS {
        let user = usize::from(rng.random_bool(0.3));
        if rng.random_bool(0.04) {
            policies[user] = random::policy(&mut rng);
        }
        now += random::step(&mut rng, &policies[user]);
        let cost = random::cost(&mut rng);
        let policy = &policies[user];
        let rust = decide(policy, &mut states[user], now, cost);
        let lua = store
            .decide(Ask { key: &keys[user], policy, cost, at: Some(now) })
            .await
            .unwrap_or_else(|error| panic!("WEIR_TRACE_SEED={seed}, event {event}: {error}"));
        assert_eq!(
            rust, lua,
            "trace seed {seed}, event {event} (user {user}, cost {cost}, at {now}), left is Rust, right is Lua; policy {policy:?}; state {:?}",
            states[user]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_thousand_random_traces_are_decided_alike() {
    let server = RedisServer::start();
    let store = server.store();
    let seed = random::seed();
    let seeds = random::seeds(&mut random::rng(seed), TRACES);
    println!("WEIR_TEST_SEED={seed}");
    stream::iter(&seeds).for_each_concurrent(32, |seed| trace(&store, *seed)).await;
    assert_eq!(store.corrupt_states(), 0, "WEIR_TEST_SEED={seed}: no state of ours looks like rubbish to us");
    every_key_expires(&server);
}

/// After thousands of traces of every kind, no state key is there for ever.
fn every_key_expires(server: &RedisServer) {
    let mut connection = server.connect();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut connection).expect("KEYS");
    assert!(keys.len() > TRACES, "the traces left state: {}", keys.len());
    let mut pipe = redis::pipe();
    for key in &keys {
        pipe.cmd("PTTL").arg(key);
    }
    let ttls: Vec<i64> = pipe.query(&mut connection).expect("PTTL");
    let endless: HashMap<_, _> = keys.iter().zip(ttls).filter(|(_, ttl)| *ttl <= 0).collect();
    assert!(endless.is_empty(), "keys without an expiry: {endless:?}");
}
