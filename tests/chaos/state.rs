//! What is left behind: keys in Redis, and memory in the process.

use std::sync::Arc;
use std::time::Duration;

use rand::RngExt;
use weir::clock::monotonic;
use weir::config::Config;
use weir::identity::Subject;
use weir::limiter::{Limiter, Request};
use weir::store::RedisFiles;

use super::outage::Service;
use super::support::proxy::{Line, Proxy};
use super::support::random;
use super::support::redis::RedisServer;
use super::support::rig::{ask, eventually, lasting, patient, policy, store, take};

const SPAN: Duration = Duration::from_secs(1);

/// The keys of state, and how long each will live, ms; −1 is for ever.
fn lives(server: &RedisServer) -> Vec<(String, i64)> {
    let keys: Vec<String> = server.run("KEYS *");
    let state =
        keys.into_iter().filter(|key| ["token", "window", "slices"].iter().any(|kind| key.starts_with(&format!("ratelimit:{kind}:"))));
    let mut connection = server.connect();
    state.map(|key| (key.clone(), redis::cmd("PTTL").arg(key).query(&mut connection).expect("PTTL"))).collect()
}

/// The process is killed at random moments under load, and its connections are cut: no key is left that never expires.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_121_whatever_is_killed_whenever_no_key_of_state_stays_for_ever() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    // (In the chaos: more kills.)
    let (over, mut kills, mut checked) = (monotonic() + lasting(SPAN * 4), 0, 0);
    while monotonic() < over {
        let service = Arc::new(Service::start("defaults: {breaker_threshold: 0}\n", &["--redis-url", &proxy.url()]));
        let crowd: Vec<_> = (0..10)
            .map(|n| {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    for round in 0.. {
                        if service.check(&format!("u-{n}-{round}")).await.is_err() {
                            return round;
                        }
                    }
                    0
                })
            })
            .collect();
        tokio::time::sleep(Duration::from_millis(rng.random_range(20..200))).await;
        if rng.random_bool(0.5) {
            proxy.set(Line::Cut);
            tokio::time::sleep(Duration::from_millis(rng.random_range(0..50))).await;
            proxy.set(Line::Good);
        }
        service.signal("KILL");
        kills += 1;
        for one in crowd {
            checked += one.await.expect("no panic");
        }
    }
    let lives = lives(&server);
    assert!(lives.len() > 50, "{} keys after {kills} kills and {checked} checks", lives.len());
    let for_ever: Vec<_> = lives.iter().filter(|(_, life)| *life < 0).collect();
    assert!(for_ever.is_empty(), "{for_ever:?}");
    println!("killed {kills} times in {checked} requests: {} keys of state, every one expires", lives.len());
}

/// Twenty thousand addresses, one request each: what each takes, and that all of it goes by itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_122_one_request_from_each_of_many_takes_little_and_goes_by_itself() {
    let server = RedisServer::start();
    let used = || {
        let memory: String = server.run("INFO memory");
        memory.lines().find_map(|line| line.strip_prefix("used_memory:")?.trim().parse::<i64>().ok()).expect("a number")
    };
    let yaml =
        "anonymous: {per_address: {algorithm: hybrid, bucket_capacity: 10, tokens_per_second: 1, window_limit: 60, window_seconds: 60}}";
    let (config, _) = Config::from_yaml(yaml).expect("a good file");
    let limiter = Limiter::new(config, Arc::new(patient(&server.url())));
    let before = used();
    for n in 0..20_000_u32 {
        let address = std::net::Ipv4Addr::from(0x0a00_0000 + n).to_string();
        let request = Request { subject: Subject::Address(address.into()), path: None, method: None, cost: None };
        limiter.check(request).await.expect("an answer");
    }
    let each = (used() - before) / 20_000;
    println!("{each} bytes of redis for an address that asked once");
    assert!(each < 1_000, "{each} bytes each");
    let lives = lives(&server);
    let longest = lives.iter().map(|(_, life)| *life).max().expect("keys");
    // The window, a minute's margin, and what spares renewing it.
    assert!(lives.iter().all(|(_, life)| *life > 0) && longest <= 240_000, "{longest} ms");
}

/// Ten thousand requests of ten users: two keys of state each, and none with a name of its own for each request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_125_no_request_leaves_a_key_of_its_own() {
    let server = RedisServer::start();
    let limiter = Limiter::new(Config::default(), Arc::new(patient(&server.url())));
    for n in 0..10_000 {
        ask(&limiter, &format!("user-{}", n % 10)).await.expect("an answer");
    }
    let keys: Vec<String> = server.run("KEYS *");
    assert!(keys.len() <= 20, "{keys:?}");
}

/// Half a million users ask while Redis is away: what is remembered of them is bounded, and gone when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_128_what_is_remembered_of_an_outage_is_bounded_and_goes_with_it() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let redis = store(&proxy.url(), Duration::from_millis(200), RedisFiles::default());
    let (config, _) = Config::from_yaml("defaults: {bucket_capacity: 100, tokens_per_second: 0.001}").expect("a good file");
    let limiter = Limiter::new(config, Arc::new(redis));
    ask(&limiter, "refused").await.expect("an answer");
    proxy.set(Line::Cut);
    for _ in 0..150 {
        let _ = ask(&limiter, "refused").await.expect("an answer");
    }
    assert!(!ask(&limiter, "refused").await.expect("an answer").decision.admitted);
    let (mut decided, mut turned_away) = (0, 0);
    for n in 0..500_000 {
        match ask(&limiter, &format!("user-{n}")).await {
            Ok(_) => decided += 1,
            Err(error) => {
                assert_eq!(error.kind, weir::store::ErrorKind::Full, "{error}");
                turned_away += 1;
            }
        }
    }
    let remembered = limiter.local_subjects();
    println!("500 000 users in an outage: {decided} decided, {turned_away} turned away, {remembered} remembered");
    assert!(remembered <= 100_000 && decided >= 90_000, "{remembered} {decided}");
    // Newcomers push out nobody who is being refused (case 127).
    assert!(!ask(&limiter, "refused").await.expect("an answer").decision.admitted, "a flood of others reset it");
    proxy.set(Line::Good);
    eventually("it is back", Duration::from_secs(2), async || ask(&limiter, "refused").await.expect("an answer").degraded.is_none()).await;
    assert_eq!(limiter.local_subjects(), 0);
}

/// A key without an expiry from before, or by hand, is repaired by the next decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_121_a_key_that_was_persisted_by_hand_expires_after_the_next_decision() {
    let server = RedisServer::start();
    let store = patient(&server.url());
    take(&store, "u", &policy(10)).await.expect("an answer");
    server.run::<i64>("PERSIST ratelimit:token:{u}");
    server.run::<i64>("HDEL ratelimit:token:{u} load totals");
    take(&store, "u", &policy(10)).await.expect("an answer");
    assert!(server.run::<i64>("PTTL ratelimit:token:{u}") > 0);
}
