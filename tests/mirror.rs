//! Refusals from memory are the algorithm: with the mirrors in front, one process decides like the twin, every field equal, and Redis has in the
//! end what it would have had. Of several processes, what can differ is bounded.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use futures_util::{StreamExt, stream};
use rand::RngExt;
use rand::rngs::StdRng;
use support::policy::policy;
use support::random;
use support::redis::RedisServer;
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Policy, State, US, Units, decide};
use weir::store::{Ask, Key, RedisStore, Store};

const START: Micros = 1_767_225_600_000_000;

fn key(user: &str) -> Key {
    Key::new(&Subject::user(user).expect("a good id"), None)
}

async fn ask(store: &RedisStore, key: &Key, policy: &Policy, at: Micros, cost: Units) -> Decision {
    store.decide(Ask { key, policy, cost, at: Some(at) }).await.expect("redis answers")
}

/// How far the clock moves in a flood: seldom more than the refusals last.
fn step(rng: &mut StdRng, policy: &Policy) -> Micros {
    match rng.random_range(0..10) {
        0 => random::step(rng, policy),
        1 => rng.random_range(0..US),
        2 | 3 => rng.random_range(0..100_000),
        _ => rng.random_range(0..2_000),
    }
}

async fn flood(store: &RedisStore, seed: u64) {
    let mut rng = random::rng(seed);
    let mut policies = [random::policy(&mut rng), random::policy(&mut rng)];
    let mut states: [State; 2] = Default::default();
    let keys = [0, 1].map(|user| key(&format!("{seed}-{user}")));
    let usual = random::cost(&mut rng).clamp(1, 12);
    let mut now = START + rng.random_range(0..10_000_000_000);
    for event in 0..120 {
        let user = usize::from(rng.random_bool(0.2));
        if rng.random_bool(0.01) {
            policies[user] = random::policy(&mut rng);
        }
        now += step(&mut rng, &policies[user]);
        let cost = if rng.random_bool(0.9) { usual } else { random::cost(&mut rng) };
        let policy = &policies[user];
        let rust = decide(policy, &mut states[user], now, cost);
        let lua = ask(store, &keys[user], policy, now, cost).await;
        assert_eq!(
            rust, lua,
            "WEIR_TRACE_SEED={seed}, event {event} (user {user}, cost {cost}, at {now}), left is Rust, right is Redis behind the mirrors; policy {policy:?}; state {:?}",
            states[user]
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_are_refused_from_memory_as_the_twin_refuses_them() {
    let server = RedisServer::start();
    let store = server.store().with_refusals_from_memory();
    let seed = random::seed();
    let seeds = random::seeds(&mut random::rng(seed), 2_000);
    println!("WEIR_TEST_SEED={seed}");
    stream::iter(&seeds).for_each_concurrent(32, |seed| flood(&store, *seed)).await;
    assert_eq!(store.corrupt_states(), 0, "WEIR_TEST_SEED={seed}");
    assert!(store.refused_from_memory() > 40_000, "only {} of 240 000 were answered from memory", store.refused_from_memory());
}

#[tokio::test]
async fn a_reset_is_felt_at_once() {
    let server = RedisServer::start();
    let store = server.store().with_refusals_from_memory();
    let policy = policy("bucket_capacity=5 tokens_per_second=0.001");
    let key = key("u");
    for n in 0..20 {
        assert_eq!(ask(&store, &key, &policy, START + n, 1).await.admitted, n < 5);
    }
    assert_eq!(store.refused_from_memory(), 14, "all but the first refusal");
    store.reset(&key, &policy).await.expect("reset");
    assert!(ask(&store, &key, &policy, START + 20, 1).await.admitted);
}

/// The load that was seen in memory is in Redis soon after, though nobody asks again.
#[tokio::test]
async fn what_was_seen_is_handed_on_though_nobody_asks_again() {
    let server = RedisServer::start();
    let store = server.store().with_refusals_from_memory();
    let policy = policy("algorithm=token_bucket bucket_capacity=1 tokens_per_second=0.001");
    let key = key("u");
    for _ in 0..50 {
        store.decide(Ask { key: &key, policy: &policy, cost: 1, at: None }).await.expect("redis answers");
    }
    assert!(store.refused_from_memory() >= 40);
    let mut connection = server.connect();
    let mut load = || {
        let packed: Vec<u8> = redis::cmd("HGET").arg("ratelimit:token:{u}").arg("load").query(&mut connection).expect("HGET");
        let number = |at: usize| f64::from_le_bytes(packed[at..at + 8].try_into().expect("eight bytes"));
        number(8) + number(16)
    };
    let start = weir::clock::monotonic();
    while load() < 50.0 {
        assert!(weir::clock::elapsed(start) < std::time::Duration::from_secs(10), "a load of {} of 50", load());
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let tokens: String = redis::cmd("HGET").arg("ratelimit:token:{u}").arg("tokens").query(&mut server.connect()).expect("HGET");
    assert!(tokens.parse::<f64>().expect("a number") < 0.1, "and nothing else was changed: {tokens}");
}

/// Three processes that each refuse from memory admit together no more than bucket and window allow, whatever they miss of each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_admit_no_more_than_the_bounds() {
    let server = RedisServer::start();
    let stores = [0, 1, 2].map(|_| server.store().with_refusals_from_memory());
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    for seed in random::seeds(&mut random::rng(seed), 300) {
        let mut rng = random::rng(seed);
        let policy = random::policy(&mut rng);
        let key = key(&seed.to_string());
        let (mut now, mut admitted) = (START, Vec::new());
        for _ in 0..100 {
            now += step(&mut rng, &policy).max(0);
            let store = &stores[rng.random_range(0..3)];
            let decision = ask(store, &key, &policy, now, 1).await;
            if decision.admitted && decision.reason.is_none() && decision.quota.is_some() {
                admitted.push(now);
            }
        }
        let within = |from: Micros, span: Micros| admitted.iter().filter(|at| **at >= from && **at < from + span).count() as f64;
        for from in &admitted {
            if policy.algorithm() == weir::limit::Algorithm::SlidingWindow {
                assert!(within(*from, policy.window()) <= policy.window_limit() as f64, "trace {seed}: the window of {policy:?}");
            }
            if policy.algorithm() == weir::limit::Algorithm::TokenBucket {
                let span = now - from + 1;
                let most = policy.bucket_capacity() as f64 + policy.tokens_per_second() * span as f64 / US as f64;
                assert!(within(*from, span) <= most + 0.001, "trace {seed}: the bucket of {policy:?}");
            }
        }
    }
    assert!(stores.iter().map(RedisStore::refused_from_memory).sum::<u64>() > 1_000, "WEIR_TEST_SEED={seed}");
}
