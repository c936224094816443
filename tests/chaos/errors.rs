//! What a server says when it does not serve, and what is made of it.

use std::time::Duration;

use weir::store::{ErrorKind, RedisFiles, Store, StoreError};

use super::support::redis::RedisServer;
use super::support::rig::{Instance, eventually, key, patient, policy, store, take};

const DEADLINE: Duration = Duration::from_millis(200);

async fn failure(server: &RedisServer) -> StoreError {
    take(&store(&server.url(), DEADLINE, RedisFiles::default()), "u", &policy(100)).await.expect_err("it does not serve")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_is_no_store_and_is_one_when_it_is_promoted() {
    let server = RedisServer::start();
    server.run::<()>("REPLICAOF 127.0.0.1 1");
    let error = failure(&server).await;
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Unavailable, true), "{error}");
    server.run::<()>("CONFIG SET replica-serve-stale-data no");
    let error = failure(&server).await;
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Unavailable, true), "MASTERDOWN: {error}");
    let store = store(&server.url(), DEADLINE, RedisFiles::default());
    take(&store, "u", &policy(100)).await.expect_err("it does not serve");
    server.run::<()>("REPLICAOF NO ONE");
    eventually("it decides", Duration::from_secs(2), async || take(&store, "u", &policy(100)).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_out_of_memory_charges_nobody() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    take(&store, "u", &policy(100)).await.expect("an answer");
    server.run::<()>("CONFIG SET maxmemory 1");
    let error = take(&store, "u", &policy(100)).await.expect_err("OOM");
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Unavailable, true), "{error}");
    server.run::<()>("CONFIG SET maxmemory 0");
    assert_eq!(take(&store, "u", &policy(100)).await.expect("an answer"), 98, "the one that failed was not charged");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_busy_with_a_script_is_left_and_found_again() {
    let server = RedisServer::start();
    server.run::<()>("CONFIG SET lua-time-limit 20");
    let store = store(&server.url(), DEADLINE, RedisFiles::default());
    take(&store, "u", &policy(100)).await.expect("an answer");
    let mut busy = server.connect();
    let endless = std::thread::spawn(move || redis::cmd("EVAL").arg("while true do end").arg(0).exec(&mut busy));
    let error = loop {
        if let Err(error) = take(&store, "u", &policy(100)).await
            && error.kind != ErrorKind::Timeout
        {
            break error;
        }
    };
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Unavailable, true), "{error}");
    server.run::<()>("SCRIPT KILL");
    assert!(endless.join().expect("no panic").is_err());
    eventually("it decides", Duration::from_secs(2), async || take(&store, "u", &policy(100)).await.is_ok()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_loads_its_data_is_waited_for() {
    let mut server = RedisServer::start_with(&["--key-load-delay", "200", "--loading-process-events-interval-bytes", "1024"]);
    let mut fill = redis::pipe();
    for n in 0..5_000 {
        fill.cmd("SET").arg(n).arg("x".repeat(64)).ignore();
    }
    fill.exec(&mut server.connect()).expect("filled");
    server.run::<()>("SAVE");
    server.crash();
    server.start_again();
    let store = store(&server.url(), DEADLINE, RedisFiles::default());
    let mut loading = 0;
    eventually("it has loaded", Duration::from_secs(5), async || match take(&store, "u", &policy(100)).await {
        Ok(_) => true,
        Err(error) => {
            // Between its looks at the network it says nothing at all.
            assert!(error.did_not_run || error.kind == ErrorKind::Timeout, "{error}");
            loading += u32::from(error.kind == ErrorKind::Unavailable);
            false
        }
    })
    .await;
    assert!(loading > 0, "it was never seen loading");
}

/// One key of another type, in the middle of everything, hurts nobody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_74_parts_that_are_gone_or_of_another_type_are_as_new_and_heal() {
    let server = RedisServer::start();
    let instance = Instance::on(patient(&server.url()), "defaults: {breaker_threshold: 0}");
    for n in 0..5 {
        assert_eq!(instance.ask("u").await.expect("an answer").decision.quota.expect("a quota").remaining, 99 - n);
    }
    for spoil in [
        "DEL ratelimit:token:{u}",
        "DEL ratelimit:window:{u}",
        "HDEL ratelimit:token:{u} tokens",
        "HDEL ratelimit:token:{u} refilled_at",
        "HDEL ratelimit:token:{u} load totals",
        "SET ratelimit:token:{u} rubbish",
        "SET ratelimit:window:{u} rubbish",
    ] {
        server.run::<redis::Value>(spoil);
        for _ in 0..20 {
            assert!(instance.ask("u").await.unwrap_or_else(|error| panic!("{spoil}: {error}")).degraded.is_none());
        }
        assert!(server.run::<i64>("TTL ratelimit:token:{u}") > 0, "{spoil}");
    }
    server.run::<redis::Value>("RPUSH ratelimit:config:{listed} x");
    for _ in 0..20 {
        assert!(instance.ask("listed").await.expect("an answer").degraded.is_none());
    }
    assert!(instance.store.corrupt_states() > 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_73_a_server_that_may_forget_overrides_is_warned_of() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    assert!(store.forgetful().await.expect("asked").is_empty());
    for (policy, warned) in [("allkeys-lru", true), ("volatile-ttl", false), ("allkeys-random", true), ("noeviction", false)] {
        server.run::<()>(&format!("CONFIG SET maxmemory-policy {policy}"));
        assert_eq!(!store.forgetful().await.expect("asked").is_empty(), warned, "{policy}");
    }
    // With a policy that spares what never expires, overrides outlive any flood.
    let instance = Instance::on(patient(&server.url()), "defaults: {algorithm: token_bucket}");
    server.run::<()>("CONFIG SET maxmemory-policy volatile-ttl");
    for n in 0..100 {
        instance.set_capacity(&format!("set-{n}"), 5).await;
    }
    let used: String = server.run("INFO memory");
    let used: u64 = used.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse().ok()).expect("a number");
    server.run::<()>(&format!("CONFIG SET maxmemory {}", used + 1_000_000));
    for n in 0..20_000 {
        let _ = take(&instance.store, &format!("junk-{n}"), &policy(1_000)).await;
    }
    let evicted: String = server.run("INFO stats");
    assert!(!evicted.contains("evicted_keys:0"), "{evicted}");
    for n in 0..100 {
        assert_eq!(server.run::<u64>(&format!("EXISTS ratelimit:config:{}", key(&format!("set-{n}")).as_str())), 1);
    }
    instance.store.ping().await.expect("a ping");
}
