//! On the server's own clock, in parallel: exactly the limit, each admission with its own time. And waits, to the microsecond.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use futures_util::future::join_all;
use rand::RngExt;
use support::policy::policy;
use support::random;
use support::redis::RedisServer;
use weir::clock::ManualClock;
use weir::identity::Subject;
use weir::limit::{Algorithm, Decision, Micros, Mode, Policy, State, US, Units, Wait, decide};
use weir::store::{Ask, ErrorKind, Key, MemoryStore, RedisStore, Store};

const T: Micros = 1_767_225_600_000_000;

fn key(user: &str) -> Key {
    Key::new(&Subject::user(user).expect("a good id"), None)
}

/// One request at the server's own time.
async fn ask_now(store: &RedisStore, user: &str, policy: &Policy) -> Decision {
    store.decide(Ask { key: &key(user), policy, cost: 1, at: None }).await.expect("the store answers")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_24_times_are_stored_to_the_microsecond() {
    let server = RedisServer::start();
    let store = server.store();
    let policy = policy("algorithm=sliding_window window_limit=100 window_seconds=600");
    let answers = join_all((0..200).map(|_| ask_now(&store, "u", &policy))).await;
    let mut admitted: Vec<Micros> = answers.iter().filter(|answer| answer.admitted).map(|answer| answer.decided_at).collect();
    admitted.sort_unstable();
    assert_eq!(admitted.len(), 100);
    let entries: Vec<(String, String)> =
        redis::cmd("ZRANGE").arg("ratelimit:window:{u}").arg(&[0, -1]).arg("WITHSCORES").query(&mut server.connect()).expect("ZRANGE");
    let stored: Vec<Micros> = entries.iter().map(|(_, score)| score.parse().expect("whole microseconds")).collect();
    assert_eq!(stored, admitted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_29_two_instances_at_once_admit_exactly_the_limit_in_every_round() {
    let server = RedisServer::start();
    let stores = [Arc::new(server.store()), Arc::new(server.store())];
    let policy = Arc::new(policy("bucket_capacity=1000 tokens_per_second=1000 window_limit=5 breaker_threshold=0"));
    for round in 0..50 {
        let tasks = (0..8).map(|task| {
            let (store, policy) = (Arc::clone(&stores[task % 2]), Arc::clone(&policy));
            tokio::spawn(async move {
                let user = format!("round-{round}");
                let answers = join_all((0..25).map(|_| ask_now(&store, &user, &policy))).await;
                answers.into_iter().filter(|answer| answer.admitted).count()
            })
        });
        let admitted: usize = join_all(tasks).await.into_iter().map(|task| task.expect("no panic")).sum();
        assert_eq!(admitted, 5, "round {round}");
    }
}

/// The store reads the server's clock alone: what the clocks of the instances show cannot matter.
#[tokio::test]
async fn case_49_instances_share_one_clock_and_one_limit() {
    let server = RedisServer::start();
    let (a, b) = (server.store(), server.store());
    let policy = policy("bucket_capacity=4 tokens_per_second=2 window_limit=100 breaker_threshold=0");
    let mut answers = Vec::new();
    for store in [&a, &a, &a, &a, &a, &b, &a, &a, &a, &a, &a] {
        answers.push(ask_now(store, "u", &policy).await);
    }
    assert!(answers.windows(2).all(|two| two[0].decided_at <= two[1].decided_at), "one clock: {answers:?}");
    let passed = answers[10].decided_at - answers[0].decided_at;
    let admitted = answers.iter().filter(|answer| answer.admitted).count();
    let refilled = usize::try_from(passed * 2 / US).expect("time went on");
    assert!((4..=4 + refilled).contains(&admitted), "{admitted} admitted within {passed} µs");
}

/// Nobody waits longer than it takes: a moment earlier the same request is still refused. (Only where one limit decides; with
/// the tolerance of the bucket, which is worth 1/rate µs.)
#[test]
fn the_promised_wait_is_no_longer_than_it_takes() {
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    let mut refusals = 0;
    while refusals < 20_000 {
        let policy = random::policy(&mut rng);
        if policy.mode() != Mode::Enforce || policy.algorithm() == Algorithm::Hybrid {
            continue;
        }
        let slack = if policy.uses_window() { 1 } else { 2 + weir_micros(2.0 / policy.tokens_per_second()) };
        let (mut state, mut at) = (State::default(), T);
        for _ in 0..60 {
            at += random::step(&mut rng, &policy);
            let cost = random::cost(&mut rng);
            let decision = decide(&policy, &mut state, at, cost);
            if let (false, Wait::For(wait)) = (decision.admitted, decision.retry_after) {
                refusals += 1;
                if wait > slack {
                    let early = decide(&policy, &mut state.clone(), at + wait - slack, cost);
                    assert!(!early.admitted, "WEIR_TEST_SEED={seed}: told to wait {wait} µs, {slack} less would do; {policy:?}");
                }
                let there = decide(&policy, &mut state.clone(), at + wait, cost);
                assert!(there.admitted, "WEIR_TEST_SEED={seed}: told to wait {wait} µs, which is too short; {policy:?}");
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a few µs")]
fn weir_micros(micros: f64) -> Micros {
    micros.ceil() as Micros
}

/// A memory store that forgets whenever it may answers as one that never forgets.
#[test]
fn a_memory_store_that_forgets_decides_as_if_it_remembered() {
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    let mut full = 0;
    for _ in 0..200 {
        let clock = Arc::new(ManualClock::new(T));
        let (small, large) = (MemoryStore::new(8, Arc::clone(&clock) as Arc<_>), MemoryStore::new(1_000, Arc::clone(&clock) as Arc<_>));
        let policies: Vec<Policy> = (0..12).map(|_| random::policy(&mut rng)).collect();
        for _ in 0..200 {
            let user = rng.random_range(0..policies.len());
            let (policy, key) = (&policies[user], key(&user.to_string()));
            clock.advance(random::step(&mut rng, policy).max(0));
            if rng.random_bool(0.1) {
                small.sweep(rng.random_range(0..20));
            }
            let ask = Ask { key: &key, policy, cost: random::cost(&mut rng) as Units, at: None };
            match small.decide(ask) {
                Ok(decision) => assert_eq!(decision, large.decide(ask).expect("room"), "WEIR_TEST_SEED={seed}; {policy:?}"),
                Err(error) => {
                    assert!(error.kind == ErrorKind::Full && error.did_not_run, "{error}");
                    full += 1;
                }
            }
            assert!(small.subjects() <= 8, "{}", small.subjects());
        }
    }
    assert!(full > 0, "the small one was full at times");
}
