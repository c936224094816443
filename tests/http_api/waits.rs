//! A wait is a promise: who waits exactly so long is admitted, whatever the limits, at every door, on every store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rand::RngExt;
use weir::clock::{Clock, ManualClock, elapsed, monotonic};
use weir::limit::{Decision, Field, Policy, US};
use weir::store::{Ask, Key, MemoryStore, Store, StoreError};

use crate::support::fields::members;
use crate::support::random;
use crate::support::redis::RedisServer;
use crate::support::server::{Raw, Reply, Setup, limits};

const NOW: i64 = 1_700_000_000 * US;

/// One request of `user` that takes `cost`, at either door.
fn ask(raw: &mut Raw, user: &str, cost: u64, at_the_door_for_proxies: bool) -> Reply {
    if at_the_door_for_proxies {
        raw.send(format!("GET /v1/auth?user={user}&cost={cost} HTTP/1.1\r\nHost: weir\r\n\r\n")).reply().expect("an answer")
    } else {
        raw.check("", &format!(r#"{{"user":"{user}","cost":{cost}}}"#)).expect("an answer")
    }
}

fn retry_after(refused: &Reply) -> i64 {
    assert_eq!(refused.status, 429, "{refused:?}");
    let seconds: i64 = refused.header("retry-after").expect("Retry-After").parse().expect("whole seconds");
    let body = refused.json();
    let millis = body["retry_after_ms"].as_i64().expect("a whole number");
    assert_eq!(seconds, (millis + 999) / 1_000, "rounded up, and by no more");
    assert_eq!(refused.header("retry-after-ms"), Some(millis.to_string().as_str()));
    let exact = body["retry_after"].as_f64().expect("a number");
    assert!(exact * 1e3 <= millis as f64 && millis as f64 <= exact * 1e3 + 1.0, "{exact} s, {millis} ms");
    seconds
}

#[test]
fn case_102_and_103_a_thousand_retries_after_exactly_retry_after_are_admitted_under_random_limits() {
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    let clock = Arc::new(ManualClock::new(NOW));
    let server = Setup::with_clock(clock.clone()).start();
    let mut raw = server.connect();
    for round in 0..1_000 {
        let (capacity, window_limit) = (rng.random_range(1..15_u32), rng.random_range(1..15_u32));
        let algorithm = ["hybrid", "token_bucket", "sliding_window"][rng.random_range(0..3)];
        let precision = ["exact", "sliced"][rng.random_range(0..2)];
        server.limiter.reload(limits(&[
            (Field::Algorithm, algorithm),
            (Field::WindowPrecision, precision),
            (Field::TokensPerSecond, &format!("{:.3}", 10_f64.powf(rng.random_range(-2.0..3.0)))),
            (Field::BucketCapacity, &capacity.to_string()),
            (Field::WindowLimit, &window_limit.to_string()),
            (Field::WindowSeconds, &format!("{:.1}", 10_f64.powf(rng.random_range(0.0..3.55)))),
            (Field::BreakerThreshold, ["0", "1", "3"][rng.random_range(0..3)]),
        ]));
        let most = u64::from(if algorithm == "token_bucket" { capacity } else { capacity.min(window_limit) });
        let (user, cost, door) = (format!("u{round}"), rng.random_range(1..=most), rng.random_bool(0.5));
        let refused = loop {
            let reply = ask(&mut raw, &user, cost, door);
            if reply.status != 200 {
                break reply;
            }
            clock.advance(rng.random_range(0..2_000));
        };
        clock.advance(retry_after(&refused) * US);
        let retried = ask(&mut raw, &user, cost, door);
        assert_eq!(retried.status, 200, "round {round}, {algorithm} {precision}: {} and then {}", refused.body, retried.body);
    }
}

#[test]
fn case_102_on_redis_who_waits_exactly_retry_after_is_admitted() {
    let redis = RedisServer::start();
    let config =
        limits(&[(Field::Algorithm, "hybrid"), (Field::BucketCapacity, "2"), (Field::TokensPerSecond, "1.7"), (Field::WindowLimit, "50")]);
    let server = Setup { store: Arc::new(redis.store()), config, ..Setup::default() }.start();
    // In parallel, since time is real here; one connection each, so that nobody waits for another.
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let mut raw = server.connect();
            std::thread::spawn(move || {
                let refused: Vec<_> = (0..50)
                    .map(|n| {
                        let user = format!("u{client}-{n}");
                        let refused = loop {
                            let reply = ask(&mut raw, &user, 1, n % 2 == 0);
                            if reply.status != 200 {
                                break reply;
                            }
                        };
                        (user, monotonic(), Duration::from_secs(retry_after(&refused).unsigned_abs()))
                    })
                    .collect();
                for (n, (user, at, wait)) in refused.into_iter().enumerate() {
                    while elapsed(at) < wait {
                        std::thread::park_timeout(wait.saturating_sub(elapsed(at)));
                    }
                    assert_eq!(ask(&mut raw, &user, 1, n % 2 == 0).status, 200, "{user}");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("every retry admitted");
    }
}

#[test]
fn case_104_after_the_limit_was_lowered_the_wait_is_until_as_many_have_left_as_it_takes() {
    let clock = Arc::new(ManualClock::new(NOW));
    let with = |window_limit: &str| {
        limits(&[(Field::Algorithm, "sliding_window"), (Field::WindowSeconds, "60"), (Field::WindowLimit, window_limit)])
    };
    let server = Setup::with_clock(clock.clone()).config(with("20")).start();
    let mut raw = server.connect();
    let mut at = |second: i64| {
        clock.set(NOW + second * US);
        ask(&mut raw, "u", 1, second % 2 == 0)
    };
    assert!((0..15).all(|second| at(second).status == 200));
    server.limiter.reload(with("10"));
    let refused = at(20);
    assert_eq!(
        (refused.status, refused.header("retry-after"), refused.header("ratelimit")),
        (429, Some("45"), Some(r#""window";r=0;t=45"#))
    );
    let statuses: Vec<_> = (60..67).map(|second| at(second).status).collect();
    assert_eq!(statuses, [429, 429, 429, 429, 429, 200, 200]);
}

#[test]
fn case_113_a_thousand_clients_of_one_user_that_all_come_back_at_once_get_each_window_whole_and_no_more() {
    const EACH_MINUTE: usize = 100;
    let clock = Arc::new(ManualClock::new(NOW));
    let config = limits(&[(Field::Algorithm, "sliding_window"), (Field::WindowSeconds, "60"), (Field::WindowLimit, "100")]);
    let server = Setup::with_clock(clock.clone()).config(config).start();
    let mut raw = server.connect();
    let mut due = BTreeMap::from([(0, 1_000_usize)]);
    let mut admitted_at = BTreeMap::new();
    while let Some((second, clients)) = due.pop_first() {
        clock.set(NOW + second * US);
        for _ in 0..clients {
            let reply = ask(&mut raw, "u", 1, false);
            if reply.status == 200 {
                *admitted_at.entry(second).or_insert(0) += 1;
            } else {
                *due.entry(second + retry_after(&reply)).or_insert(0) += 1;
            }
        }
    }
    let expected: BTreeMap<i64, usize> = (0..10).map(|minute| (minute * 60, EACH_MINUTE)).collect();
    assert_eq!(admitted_at, expected);
}

/// A store whose answers come three seconds late, and whose state is gone by then.
struct Late {
    inner: MemoryStore,
    clock: Arc<ManualClock>,
    asked: AtomicUsize,
}

#[async_trait::async_trait]
impl Store for Late {
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let decision = Store::decide(&self.inner, ask).await;
        self.clock.advance(3 * US);
        self.inner.reset(ask.key, ask.policy).await?;
        decision
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        self.inner.reset(key, policy).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.inner.ping().await
    }
}

#[test]
fn case_115_headers_come_from_the_decision_though_its_state_is_gone_when_they_are_written() {
    let clock = Arc::new(ManualClock::new(NOW));
    let store = Arc::new(Late { inner: MemoryStore::new(1_000, clock.clone()), clock: clock.clone(), asked: AtomicUsize::new(0) });
    let config = limits(&[(Field::Algorithm, "sliding_window"), (Field::WindowSeconds, "1"), (Field::WindowLimit, "5")]);
    let server = Setup { store: store.clone(), ..Setup::with_clock(clock.clone()) }.config(config).start();
    let mut raw = server.connect();
    for (n, door) in [false, true].into_iter().enumerate() {
        let decided_at = clock.now();
        let reply = ask(&mut raw, "u", 2, door);
        assert_eq!(
            (reply.status, reply.header("x-ratelimit-remaining"), reply.header("ratelimit")),
            (200, Some("3"), Some(r#""window";r=3;t=1"#))
        );
        assert_eq!(reply.header("x-ratelimit-reset"), Some((decided_at / US + 1).to_string().as_str()));
        assert_eq!(store.asked.load(Ordering::SeqCst), n + 1, "no second read");
    }
}

#[test]
fn the_fields_of_a_decision_are_structured_and_name_what_binds() {
    let server = Setup::default().start();
    let reply = ask(&mut server.connect(), "u", 1, false);
    let of = |name: &str| members(reply.header(name).expect("the field"));
    let member = |name: &str, parameters: &[(&str, i64)]| {
        (name.to_owned(), parameters.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect::<Vec<_>>())
    };
    assert_eq!(of("ratelimit-policy"), [member("bucket", &[("q", 100), ("w", 50)]), member("window", &[("q", 200), ("w", 60)])]);
    assert_eq!(of("ratelimit"), [member("bucket", &[("r", 99), ("t", 1)])]);
}
