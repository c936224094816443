//! Replies that are late, lost, or meant for somebody who has gone; scripts that are forgotten.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::RngExt;
use redis::Value;
use weir::clock::{elapsed, monotonic};
use weir::limit::US;
use weir::limiter::Limiter;
use weir::store::{Ask, ErrorKind, RedisFiles, Store, StoreError};

use super::support::proxy::{Line, Proxy};
use super::support::random;
use super::support::redis::RedisServer;
use super::support::rig::{Instance, ask, eventually, key, lasting, patient, policy, store, take};

const DEADLINE: Duration = Duration::from_millis(300);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_59_a_script_that_is_forgotten_is_sent_again_and_each_request_counted_once() {
    let mut server = RedisServer::start();
    let store = Arc::new(patient(&server.url()));
    let limit = policy(1_000_000);
    assert_eq!(take(&store, "u", &limit).await.expect("an answer"), 999_999);
    server.run::<()>("SCRIPT FLUSH");
    let crowd: Vec<_> = (0..100)
        .map(|_| {
            let (store, limit) = (Arc::clone(&store), limit.clone());
            tokio::spawn(async move { take(&store, "u", &limit).await.expect("an answer") })
        })
        .collect();
    for one in crowd {
        one.await.expect("no panic");
    }
    assert_eq!(take(&store, "u", &limit).await.expect("an answer"), 999_898);

    // And once a second, or as often, while requests come.
    let (over, counted) = (monotonic() + lasting(Duration::from_secs(2)), Arc::new(AtomicU64::new(0)));
    let crowd: Vec<_> = (0..20)
        .map(|_| {
            let (store, limit, counted) = (Arc::clone(&store), limit.clone(), Arc::clone(&counted));
            tokio::spawn(async move {
                while monotonic() < over {
                    take(&store, "v", &limit).await.expect("an answer");
                    counted.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            })
        })
        .collect();
    let mut flushes = 0;
    while monotonic() < over {
        server.run::<()>("SCRIPT FLUSH");
        flushes += 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for one in crowd {
        one.await.expect("no panic");
    }
    let counted = counted.load(Ordering::Relaxed);
    let left = take(&store, "v", &limit).await.expect("an answer");
    assert_eq!(1_000_000 - left, counted + 1, "each counted once");
    println!("script forgotten {flushes} times under load: {counted} requests, each counted once, no error");

    // A restart forgets the script and everything else; connections are new.
    server.restart();
    let again = eventually("it decides again", Duration::from_secs(2), async || take(&store, "w", &limit).await.is_ok()).await;
    println!("a restarted server was used after {again:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_60_what_may_have_run_is_never_sent_twice() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = store(&proxy.url(), DEADLINE, RedisFiles::default());
    let limit = policy(1_000);
    assert_eq!(take(&store, "u", &limit).await.expect("an answer"), 999);
    for lost in 1..=10 {
        proxy.set(Line::LosesReplies);
        let error = take(&store, "u", &limit).await.expect_err("no reply");
        assert!(error.kind == ErrorKind::Timeout && !error.did_not_run, "{error}");
        proxy.set(Line::Cut);
        let refused = take(&store, "u", &limit).await.expect_err("no connection");
        assert!(refused.did_not_run, "{refused}");
        proxy.set(Line::Good);
        let left = patient(&server.url());
        assert_eq!(take(&left, "u", &limit).await.expect("an answer"), 999 - 2 * lost, "charged once for each of the two that ran");
        // A connection that nobody knows is cut is found out by its next user: with a word that nothing runs twice.
        eventually("it is connected again", Duration::from_secs(1), async || store.ping().await.is_ok()).await;
        let _: Result<u64, StoreError> = take(&store, &format!("warm-{lost}"), &limit).await;
    }
}

/// What a server of another mind answers: the right kind of error, whether it may have run, and nobody sees another's reply.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_67_a_caller_that_goes_away_leaves_its_reply_to_nobody() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let instance = Instance::on(store(&proxy.url(), Duration::from_secs(5), RedisFiles::default()), "defaults: {algorithm: token_bucket}");
    let (mixed, seed) = (5_000_u32, random::seed());
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    proxy.set(Line::Slow(Duration::from_millis(3)));
    let (mut right, mut gone, mut waiting) = (0, 0, Vec::new());
    for n in 0..mixed {
        let (store, patience) = (Arc::clone(&instance.store), Duration::from_micros(rng.random_range(0..5_000)));
        // The limit is the user's number.
        waiting.push(tokio::spawn(async move {
            let leaves = tokio::time::timeout(patience, take(&store, &format!("leaves-{n}"), &policy(1_000_000 + n))).await;
            let stays = store.decide(Ask { key: &key(&format!("stays-{n}")), policy: &policy(1 + n), cost: 1, at: None }).await;
            (n, leaves.is_err(), stays)
        }));
        if waiting.len() == 200 || n + 1 == mixed {
            for one in waiting.drain(..) {
                let (n, left, stays) = one.await.expect("no panic");
                let quota = stays.unwrap_or_else(|error| panic!("user {n}: {error}")).quota.expect("a quota");
                assert_eq!((quota.limit, quota.remaining), (u64::from(1 + n), u64::from(n)), "an answer for somebody else");
                right += 1;
                gone += u32::from(left);
            }
        }
    }
    assert!(gone > mixed / 20, "hardly anybody left: {gone}");
    println!("{gone} callers left before their answer, {right} others: each got its own");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_65_a_connection_that_the_server_closed_while_idle_is_replaced_before_it_is_used() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    let limit = policy(100);
    for n in 1..=20 {
        assert_eq!(take(&store, "u", &limit).await.expect("answered by redis"), 100 - n);
        store.ping().await.expect("also on the pool");
        let connected = server.run::<String>("INFO clients");
        assert!(connected.contains("connected_clients:"), "{connected}");
        server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
        // Until the news has arrived here.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_68_after_an_outage_the_pool_has_no_dead_connections() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let store = Arc::new(store(&proxy.url(), DEADLINE, RedisFiles::default()));
    store.ping().await.expect("a ping");
    proxy.set(Line::Swallows);
    let over = monotonic() + lasting(Duration::from_secs(2));
    while monotonic() < over {
        let crowd: Vec<_> = (0..50)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.ping().await.is_err() })
            })
            .collect();
        for one in crowd {
            assert!(one.await.expect("no panic"), "nobody answers");
        }
    }
    proxy.set(Line::Good);
    let healed = eventually("the pool works", Duration::from_secs(2), async || store.ping().await.is_ok()).await;
    println!("the pool worked again {healed:?} after the line was good");
    for _ in 0..200 {
        store.ping().await.expect("no dead connection is left");
    }
    let clients: String = server.run("INFO clients");
    let connected: u32 = clients.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse().ok()).expect("a number");
    assert!(connected <= 60, "{connected} connections are left");
}

#[tokio::test]
async fn a_reply_that_is_none_is_an_error_and_the_next_is_right() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    let limit = policy(10);
    take(&store, "u", &limit).await.expect("an answer");
    // A policy whose cost and time are at their ends.
    for at in [0, US, 9_000_000_000_000_000] {
        let asked = Ask { key: &key("edge"), policy: &limit, cost: 1, at: Some(at) };
        assert!(store.decide(asked).await.is_ok(), "{at}");
    }
    assert_eq!(take(&store, "u", &limit).await.expect("an answer"), 8);
    let _: Value = server.run("PING");
}

/// A crowd that all goes away while nobody answers leaves nothing behind that keeps the next from being answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_that_hang_or_are_dropped_wedge_nothing() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let instance = Instance::on(store(&proxy.url(), DEADLINE, RedisFiles::default()), "store: {on_failure: allow}");
    let limiter: Arc<Limiter> = Arc::clone(&instance.limiter);
    assert!(ask(&limiter, "u").await.expect("an answer").degraded.is_none());
    proxy.set(Line::Swallows);
    let start = monotonic();
    while elapsed(start) < Duration::from_secs(2) {
        // Each gives up long before the deadline, so none of them ever learns anything.
        let _ = tokio::time::timeout(Duration::from_millis(5), ask(&limiter, "u")).await;
    }
    proxy.set(Line::Good);
    let healed =
        eventually("the store decides", Duration::from_secs(2), async || ask(&limiter, "u").await.expect("an answer").degraded.is_none())
            .await;
    println!("after probes that were all dropped the store decided again in {healed:?}");
}
