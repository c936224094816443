//! One contract that every store passes, and what each kind of store promises beyond it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::join_all;
use redis::Connection;
use support::policy::policy;
use support::redis::RedisServer;
use support::vectors::{What, all, check, compile};
use weir::clock::{ManualClock, SystemClock};
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Policy, Reason, US, Units, Wait};
use weir::store::{Ask, ErrorKind, Key, MemoryStore, RedisStore, Store};

const T: Micros = 1_767_225_600_000_000;

fn key(user: &str) -> Key {
    Key::new(&Subject::user(user).expect("a good id"), None)
}

async fn ask(store: &dyn Store, user: &str, policy: &Policy, at: Micros, cost: Units) -> Decision {
    store.decide(Ask { key: &key(user), policy, cost, at: Some(at) }).await.expect("the store answers")
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(100_000, Arc::new(SystemClock)))
}

/// Each claim on every store.
macro_rules! contract {
    ($($claim:ident),+ $(,)?) => {
        mod memory_store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                super::$claim(&super::memory()).await;
            })+
        }
        mod redis_store {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let server = super::RedisServer::start();
                let store: std::sync::Arc<dyn super::Store> = std::sync::Arc::new(server.store());
                super::$claim(&store).await;
                super::every_state_key_expires(&mut server.connect());
            })+
        }
    };
}

contract!(
    every_vector_is_answered_right,
    ten_thousand_at_the_same_instant_admit_exactly_the_limit,
    a_peek_of_a_subject_never_seen_leaves_nothing,
    block_and_bypass_keep_no_state,
    a_reset_subject_is_as_new,
    ids_of_any_shape_have_state_of_their_own,
    a_route_has_state_of_its_own,
    the_largest_cost_is_taken_and_one_more_than_fits_is_not,
    shadow_charges_what_fits_and_refuses_nobody,
    the_store_has_a_clock_of_its_own,
);

async fn every_vector_is_answered_right(store: &Arc<dyn Store>) {
    let vectors = all();
    let checks = vectors.iter().enumerate().map(async |(number, vector)| {
        let mut policies = HashMap::new();
        for (index, event) in vector.events.iter().enumerate() {
            match &event.what {
                What::Policy(own) => drop(policies.insert(event.user.as_str(), compile(&vector.policy, Some(own)))),
                What::Request(cost, expected) => {
                    let policy = policies.entry(event.user.as_str()).or_insert_with(|| compile(&vector.policy, None));
                    let decision = ask(&**store, &format!("{number}-{}", event.user), policy, event.at, *cost).await;
                    check(vector, index, event, expected, &decision);
                }
            }
        }
    });
    join_all(checks).await;
}

/// Case 23: same instant, same user; members of the window must not collapse.
async fn ten_thousand_at_the_same_instant_admit_exactly_the_limit(store: &Arc<dyn Store>) {
    let policy = Arc::new(policy("tokens_per_second=100000 bucket_capacity=100000 window_limit=100 breaker_threshold=0"));
    let tasks = (0..64).map(|task| {
        let (store, policy) = (Arc::clone(store), Arc::clone(&policy));
        tokio::spawn(async move {
            let mut admitted = 0;
            for _ in 0..(10_000 / 64 + usize::from(task < 10_000 % 64)) {
                admitted += usize::from(ask(&*store, "crowd", &policy, T, 1).await.admitted);
            }
            admitted
        })
    });
    let admitted: usize = join_all(tasks).await.into_iter().map(|task| task.expect("no panic")).sum();
    assert_eq!(admitted, 100);
    let next = ask(&**store, "crowd", &policy, T, 0).await.quota.expect("a quota");
    assert_eq!((next.limit, next.remaining), (100, 0));
}

async fn a_peek_of_a_subject_never_seen_leaves_nothing(store: &Arc<dyn Store>) {
    let policy = policy("bucket_capacity=5");
    let peek = ask(&**store, "nobody", &policy, T, 0).await;
    assert!(peek.admitted && peek.quota.is_some_and(|quota| quota.remaining == 5 && quota.reset_after == 0));
    // Had it left a time behind, this earlier request would be a clock that stepped back.
    assert_eq!(ask(&**store, "nobody", &policy, T - 10 * US, 1).await.decided_at, T - 10 * US);
}

async fn block_and_bypass_keep_no_state(store: &Arc<dyn Store>) {
    let blocked = ask(&**store, "u", &policy("mode=block"), T, 1).await;
    assert_eq!((blocked.admitted, blocked.reason, blocked.retry_after, blocked.quota), (false, Some(Reason::Blocked), Wait::Never, None));
    for _ in 0..10 {
        let passed = ask(&**store, "u", &policy("mode=bypass bucket_capacity=1"), T, 5).await;
        assert_eq!((passed.admitted, passed.reason, passed.retry_after, passed.quota), (true, None, Wait::NONE, None));
    }
    assert_eq!(ask(&**store, "u", &policy("bucket_capacity=3"), T, 0).await.quota.map(|quota| quota.remaining), Some(3));
}

async fn a_reset_subject_is_as_new(store: &Arc<dyn Store>) {
    for policy in [
        policy("bucket_capacity=2"),
        policy("algorithm=sliding_window window_limit=2"),
        policy("algorithm=sliding_window window_limit=2 window_precision=sliced"),
    ] {
        for _ in 0..3 {
            let _ = ask(&**store, "u", &policy, T, 1).await;
        }
        store.reset(&key("u"), &policy).await.expect("reset");
        assert_eq!(ask(&**store, "u", &policy, T, 0).await.quota.map(|quota| quota.remaining), Some(2));
    }
}

/// Cases 20 and 71: every id is its own, whatever stands in it.
async fn ids_of_any_shape_have_state_of_their_own(store: &Arc<dyn Store>) {
    let ids = [
        "}",
        "}{",
        "{}",
        "{",
        "a}b",
        "{x}",
        "x{y}z",
        "two words",
        "用户",
        "e\u{301}",
        "\u{e9}",
        "😀",
        "../x",
        "*",
        "a%2Fb",
        "a/b",
        "a+b",
        "a b",
        "ip:203.0.113.5",
        "anon:",
        "key:00",
        "203.0.113.5",
    ];
    let policy = policy("bucket_capacity=2 tokens_per_second=0.001");
    for id in ids {
        let answers = [
            ask(&**store, id, &policy, T, 1).await.admitted,
            ask(&**store, id, &policy, T, 1).await.admitted,
            ask(&**store, id, &policy, T, 1).await.admitted,
        ];
        assert_eq!(answers, [true, true, false], "{id:?}");
    }
}

async fn a_route_has_state_of_its_own(store: &Arc<dyn Store>) {
    let policy = policy("bucket_capacity=1 tokens_per_second=0.001");
    let subject = Subject::user("u").expect("a good id");
    for key in [Key::new(&subject, None), Key::new(&subject, Some("search"))] {
        for admitted in [true, false] {
            let decision = store.decide(Ask { key: &key, policy: &policy, cost: 1, at: Some(T) }).await.expect("the store answers");
            assert_eq!(decision.admitted, admitted);
        }
    }
}

async fn the_largest_cost_is_taken_and_one_more_than_fits_is_not(store: &Arc<dyn Store>) {
    let policy = policy("bucket_capacity=1000000000 tokens_per_second=1000000000 window_limit=1000000000 algorithm=token_bucket");
    assert!(ask(&**store, "u", &policy, T, 1_000_000_000).await.admitted);
    let refused = ask(&**store, "u", &policy, T, 1).await;
    assert_eq!((refused.admitted, refused.retry_after), (false, Wait::For(1)));
    let never = ask(&**store, "v", &self::policy("bucket_capacity=10"), T, 11).await;
    assert_eq!((never.admitted, never.reason, never.retry_after), (false, Some(Reason::CostExceedsLimit), Wait::Never));
    assert_eq!(never.quota.map(|quota| quota.remaining), Some(10));
}

async fn shadow_charges_what_fits_and_refuses_nobody(store: &Arc<dyn Store>) {
    let policy = policy("bucket_capacity=2 tokens_per_second=1 mode=shadow");
    let mut reasons = Vec::new();
    for _ in 0..4 {
        let decision = ask(&**store, "u", &policy, T, 1).await;
        assert!(decision.admitted);
        reasons.push(decision.reason);
    }
    assert_eq!(reasons, [None, None, Some(Reason::Bucket), Some(Reason::Bucket)]);
    assert_eq!(ask(&**store, "u", &policy, T + US, 1).await.reason, None, "what did not fit was not charged");
}

async fn the_store_has_a_clock_of_its_own(store: &Arc<dyn Store>) {
    let (key, policy) = (key("now"), policy(""));
    let now = weir::clock::unix_micros();
    let decision = store.decide(Ask { key: &key, policy: &policy, cost: 1, at: None }).await.expect("the store answers");
    assert!((decision.decided_at - now).abs() < 60 * US, "{} is not about {now}", decision.decided_at);
}

/// Whatever a test did, no state is left for ever.
fn every_state_key_expires(connection: &mut Connection) {
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(connection).expect("KEYS");
    for key in keys {
        let ttl: i64 = redis::cmd("PTTL").arg(&key).query(connection).expect("PTTL");
        assert!(ttl > 0 || ttl == -2, "{key} has no expiry");
    }
}

mod only_memory {
    use super::*;

    fn store(most: usize) -> (MemoryStore, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::new(T));
        (MemoryStore::new(most, Arc::clone(&clock) as Arc<_>), clock)
    }

    fn take(store: &MemoryStore, user: &str, policy: &Policy) -> Result<bool, ErrorKind> {
        store.decide(Ask { key: &key(user), policy, cost: 1, at: None }).map(|decision| decision.admitted).map_err(|error| error.kind)
    }

    /// Case 127: a flood of newcomers pushes out nobody who is being limited.
    #[test]
    fn case_127_a_refused_subject_survives_twenty_thousand_newcomers() {
        let (store, _) = store(10_000);
        let policy = policy("bucket_capacity=2 tokens_per_second=0.001");
        assert_eq!((take(&store, "a", &policy), take(&store, "a", &policy), take(&store, "a", &policy)), (Ok(true), Ok(true), Ok(false)));
        let full = (0..20_000).filter(|n| take(&store, &format!("newcomer-{n}"), &policy) == Err(ErrorKind::Full)).count();
        assert_eq!(take(&store, "a", &policy), Ok(false));
        assert!(store.subjects() <= 10_000, "{}", store.subjects());
        assert!(full >= 10_000, "those that found no room were told so: {full}");
    }

    #[test]
    fn a_subject_that_is_as_new_makes_room_for_a_newcomer() {
        let (store, clock) = store(1_000);
        let policy = policy("bucket_capacity=1 tokens_per_second=1 algorithm=token_bucket");
        for n in 0..1_000 {
            assert_eq!(take(&store, &format!("old-{n}"), &policy), Ok(true));
        }
        assert_eq!(take(&store, "new", &policy), Err(ErrorKind::Full));
        clock.advance(3 * US);
        for n in 0..1_000 {
            assert_eq!(take(&store, &format!("new-{n}"), &policy), Ok(true), "newcomer {n}");
        }
        assert_eq!(store.subjects(), 1_000);
    }

    #[test]
    fn sweeping_forgets_what_has_been_as_new_for_a_minute_and_nothing_else() {
        let (store, clock) = store(100_000);
        let policy = policy("bucket_capacity=10 tokens_per_second=1 window_seconds=5 window_limit=10");
        for n in 0..10_000 {
            let _ = take(&store, &format!("u-{n}"), &policy);
        }
        clock.advance(60 * US);
        store.sweep(100_000);
        assert_eq!(store.subjects(), 10_000, "within the margin nothing goes");
        clock.advance(6 * US);
        let _ = take(&store, "active", &policy);
        // A walk may meet the active one twice, since removing one moves the last into its place: two walks see all.
        store.sweep(100_000);
        store.sweep(100_000);
        assert_eq!(store.subjects(), 1);
    }

    #[test]
    fn sweeping_is_bounded_and_comes_round() {
        let (store, clock) = store(1_000);
        let policy = policy("algorithm=token_bucket");
        for n in 0..1_000 {
            let _ = take(&store, &format!("u-{n}"), &policy);
        }
        clock.advance(1_000 * US);
        store.sweep(100);
        assert!((890..1_000).contains(&store.subjects()), "{}", store.subjects());
        for _ in 0..10 {
            store.sweep(100);
        }
        assert_eq!(store.subjects(), 0);
    }
}

mod only_redis {
    use super::*;

    fn start() -> (RedisServer, RedisStore, Connection) {
        let server = RedisServer::start();
        let (store, connection) = (server.store(), server.connect());
        (server, store, connection)
    }

    fn run<T: redis::FromRedisValue>(connection: &mut Connection, command: &str) -> T {
        let mut words = command.split(' ');
        let mut cmd = redis::cmd(words.next().expect("a command"));
        words.for_each(|word| {
            cmd.arg(word);
        });
        cmd.query(connection).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Everything stored, with how long it is kept to the second.
    fn dump(connection: &mut Connection) -> Vec<(String, Vec<u8>, i64)> {
        let mut keys: Vec<String> = run(connection, "KEYS *");
        keys.sort();
        keys.into_iter()
            .map(|key| {
                let value: Vec<u8> = redis::cmd("DUMP").arg(&key).query(connection).expect("DUMP");
                let expires: i64 = redis::cmd("PEXPIRETIME").arg(&key).query(connection).expect("PEXPIRETIME");
                (key, value, expires)
            })
            .collect()
    }

    /// Case 23, the other half: as many entries as were admitted.
    #[tokio::test]
    async fn case_23_the_window_has_an_entry_for_each_admission() {
        let (_server, store, mut connection) = start();
        let policy = policy("algorithm=sliding_window window_limit=100");
        join_all((0..1_000).map(|_| ask(&store, "u", &policy, T, 1))).await;
        assert_eq!(run::<u64>(&mut connection, "ZCARD ratelimit:window:{u}"), 100);
        assert_eq!(run::<Vec<(String, f64)>>(&mut connection, "ZRANGE ratelimit:window:{u} 0 0 WITHSCORES")[0].1, T as f64);
    }

    #[tokio::test]
    async fn a_peek_and_a_cost_that_never_fits_write_nothing() {
        let (_server, store, mut connection) = start();
        for (n, policy) in ["", "breaker_threshold=0", "algorithm=sliding_window window_precision=sliced", "algorithm=token_bucket"]
            .map(policy)
            .iter()
            .enumerate()
        {
            let user = format!("u{n}");
            for cost in [1, 3] {
                let _ = ask(&store, &user, policy, T, cost).await;
            }
            let before = dump(&mut connection);
            for (at, cost) in [(T, 0), (T + 10 * US, 0), (T - 10 * US, 0), (T + 90 * US, 0), (T, 1_000_000), (T + 90 * US, 1_000_000)] {
                let _ = ask(&store, &user, policy, at, cost).await;
            }
            assert_eq!(dump(&mut connection), before);
        }
    }

    #[tokio::test]
    async fn a_refusal_writes_nothing_but_load_and_bookkeeping() {
        let (_server, store, mut connection) = start();
        let policy = policy("bucket_capacity=5 tokens_per_second=0.001 window_limit=3 breaker_threshold=0");
        for _ in 0..3 {
            assert!(ask(&store, "u", &policy, T, 1).await.admitted);
        }
        let entries: Vec<String> = run(&mut connection, "ZRANGE ratelimit:window:{u} 0 -1 WITHSCORES");
        let tokens: String = run(&mut connection, "HGET ratelimit:token:{u} tokens");
        for _ in 0..50 {
            assert!(!ask(&store, "u", &policy, T, 1).await.admitted);
        }
        assert_eq!(run::<Vec<String>>(&mut connection, "ZRANGE ratelimit:window:{u} 0 -1 WITHSCORES"), entries);
        assert_eq!(run::<String>(&mut connection, "HGET ratelimit:token:{u} tokens"), tokens);
    }

    /// Case 59: a server that has forgotten the script ran nothing, and each request counts once.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn case_59_a_flushed_script_is_loaded_again_and_nothing_counts_twice() {
        let (server, store, mut connection) = start();
        let (store, policy) = (Arc::new(store), Arc::new(policy("bucket_capacity=100000 tokens_per_second=0.1 algorithm=token_bucket")));
        let tasks: Vec<_> = (0..50)
            .map(|_| {
                let (store, policy) = (Arc::clone(&store), Arc::clone(&policy));
                tokio::spawn(async move {
                    for _ in 0..40 {
                        assert!(ask(&*store, "u", &policy, T, 1).await.admitted);
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            run::<()>(&mut connection, "SCRIPT FLUSH");
            tokio::task::yield_now().await;
        }
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(run::<f64>(&mut connection, "HGET ratelimit:token:{u} tokens"), 98_000.0);
        drop(server);
    }

    /// Cases 37 and 74: rubbish in any stored field counts as missing, is replaced, and is never more than a full bucket.
    #[tokio::test]
    async fn case_37_rubbish_in_stored_state_is_never_unlimited_and_heals() {
        let (_server, store, mut connection) = start();
        let rubbish: [&[u8]; 12] =
            [b"nan", b"inf", b"-inf", b"-1", b"", b"abc", b"1e309", b"0x10", b"1e308", &[0xff; 40], &[0xff; 96], b"99999999999999999999"];
        for text in [
            "bucket_capacity=5 tokens_per_second=0.001 window_limit=5",
            "bucket_capacity=5 tokens_per_second=0.001 window_limit=5 breaker_threshold=0 window_precision=sliced",
        ] {
            let policy = policy(text);
            for field in ["tokens", "refilled_at", "load", "totals"] {
                for bytes in rubbish {
                    run::<()>(&mut connection, "FLUSHALL");
                    let _ = ask(&store, "u", &policy, T, 1).await;
                    redis::cmd("HSET").arg("ratelimit:token:{u}").arg(field).arg(bytes).exec(&mut connection).expect("HSET");
                    let mut admitted = 0;
                    for _ in 0..20 {
                        admitted += usize::from(ask(&store, "u", &policy, T + US, 1).await.admitted);
                    }
                    assert!(admitted <= 5, "{field} = {bytes:?}: {admitted} admitted");
                    let tokens: f64 = run(&mut connection, "HGET ratelimit:token:{u} tokens");
                    assert!(tokens.is_finite() && tokens <= 5.0, "{field} = {bytes:?}: tokens {tokens}");
                    assert!(ask(&store, "u", &policy, T + 6_000 * US, 1).await.admitted, "{field} = {bytes:?}: locked out for ever");
                    every_state_key_expires(&mut connection);
                }
            }
        }
        assert!(store.corrupt_states() > 0);
    }

    /// Case 37, the slices: rubbish in the sum or in a slice.
    #[tokio::test]
    async fn case_37_rubbish_in_a_sliced_window_is_never_unlimited_and_heals() {
        let (_server, store, mut connection) = start();
        let policy = policy("algorithm=sliding_window window_limit=5 window_seconds=10 window_slices=10 window_precision=sliced");
        let number = (T / US).to_string();
        for field in ["sum", number.as_str(), "abc"] {
            for bytes in [b"nan".as_slice(), b"", b"-5", b"1e309", &[0xff; 32], &[0; 32]] {
                run::<()>(&mut connection, "FLUSHALL");
                let _ = ask(&store, "u", &policy, T, 1).await;
                redis::cmd("HSET").arg("ratelimit:slices:{u}:1000000").arg(field).arg(bytes).exec(&mut connection).expect("HSET");
                let mut admitted = 0;
                for _ in 0..20 {
                    admitted += usize::from(ask(&store, "u", &policy, T, 1).await.admitted);
                }
                assert!(admitted <= 5, "{field} = {bytes:?}: {admitted} admitted");
                assert!(ask(&store, "u", &policy, T + 12 * US, 1).await.admitted, "{field} = {bytes:?}: locked out for ever");
                every_state_key_expires(&mut connection);
            }
        }
    }

    /// Case 74: a key of another type is replaced by the next decision.
    #[tokio::test]
    async fn case_74_a_key_of_another_type_is_replaced() {
        let (_server, store, mut connection) = start();
        for text in
            ["bucket_capacity=5 window_limit=5 breaker_threshold=0", "algorithm=sliding_window window_limit=5 window_precision=sliced"]
        {
            let policy = policy(text);
            for key in store.state_keys(&key("u"), &policy) {
                for command in ["SET KEY text", "RPUSH KEY a b", "SADD KEY a"] {
                    run::<()>(&mut connection, "FLUSHALL");
                    let _: redis::Value = run(&mut connection, &command.replace("KEY", &key));
                    assert!(ask(&store, "u", &policy, T, 0).await.admitted, "a peek is answered too: {key}");
                    let mut admitted = 0;
                    for _ in 0..20 {
                        admitted += usize::from(ask(&store, "u", &policy, T, 1).await.admitted);
                    }
                    assert_eq!(admitted, 5, "{key} after {command}");
                    every_state_key_expires(&mut connection);
                }
            }
        }
    }

    /// Case 74: one of the keys is gone, by eviction or by hand; what is missing is as new, what is there still counts.
    #[tokio::test]
    async fn case_74_a_missing_part_is_as_new_and_never_without_an_expiry() {
        let (_server, store, mut connection) = start();
        for text in [
            "bucket_capacity=9 tokens_per_second=0.001 window_limit=5 breaker_threshold=0",
            "bucket_capacity=9 tokens_per_second=0.001 window_limit=5",
        ] {
            let policy = policy(text);
            let counts = text.contains("breaker");
            run::<()>(&mut connection, "FLUSHALL");
            for _ in 0..4 {
                let _ = ask(&store, "u", &policy, T, 1).await;
            }
            run::<u64>(&mut connection, "DEL ratelimit:window:{u}");
            let decision = ask(&store, "u", &policy, T, 1).await;
            assert_eq!(decision.quota.map(|quota| quota.remaining), Some(4), "an empty window less one, a bucket of 9 less 5");
            assert_eq!(run::<u64>(&mut connection, "ZCARD ratelimit:window:{u}"), 1);
            every_state_key_expires(&mut connection);
            run::<u64>(&mut connection, "DEL ratelimit:token:{u}");
            let decision = ask(&store, "u", &policy, T, 1).await;
            assert_eq!(
                decision.quota.map(|quota| quota.remaining),
                Some(if counts { 3 } else { 8 }),
                "a full bucket, and a window with one in it"
            );
            every_state_key_expires(&mut connection);
        }
    }

    /// Case 121: a key planted without an expiry gets one with its next use.
    #[tokio::test]
    async fn case_121_a_key_without_an_expiry_is_repaired() {
        let (_server, store, mut connection) = start();
        let policy = policy("");
        run::<u64>(&mut connection, &format!("HSET ratelimit:token:{{u}} tokens 5 refilled_at {T}"));
        run::<u64>(&mut connection, &format!("ZADD ratelimit:window:{{u}} {T} 0000000001:1"));
        assert_eq!(ask(&store, "u", &policy, T, 1).await.quota.map(|quota| quota.remaining), Some(4), "what it said still counts");
        every_state_key_expires(&mut connection);
    }

    /// After an hour with the breaker closed: no more entries than the limit and one.
    #[tokio::test]
    async fn an_exact_window_never_holds_more_than_its_limit_and_one() {
        let (_server, store, mut connection) = start();
        let policy = policy("tokens_per_second=10 bucket_capacity=50 window_limit=100 window_seconds=60 breaker_threshold=1000");
        for (user, mixed) in [("ones", false), ("mixed", true)] {
            let mut most = 0;
            for n in 0..9_000 {
                let decision = ask(&store, user, &policy, T + n * 400_000, if mixed { 1 + n.cast_unsigned() % 4 } else { 1 }).await;
                assert!(!decision.breaker_open && decision.admitted);
                if n % 7 == 0 {
                    most = most.max(run::<u64>(&mut connection, &format!("ZCARD ratelimit:window:{{{user}}}")));
                }
            }
            assert!(most <= 101, "{user}: {most} entries");
        }
    }

    /// Case 124: whatever was planted, one decision does not stall Redis for everybody.
    #[tokio::test]
    async fn case_124_a_huge_window_does_not_stall_a_decision() {
        let (_server, store, mut connection) = start();
        let policy = policy("algorithm=sliding_window window_limit=100");
        run::<()>(&mut connection, "CONFIG SET slowlog-log-slower-than 0");
        // The longest that a command has taken since the last look, µs.
        let slowest = |connection: &mut Connection| {
            let log: Vec<Vec<redis::Value>> = run(connection, "SLOWLOG GET 100");
            run::<()>(connection, "SLOWLOG RESET");
            let micros = log.iter().filter_map(|entry| if let redis::Value::Int(micros) = entry[2] { Some(micros) } else { None });
            micros.max().unwrap_or(0)
        };
        // Against planting as many: a machine that is busy is so for both, though not always alike.
        let mut worst = Vec::new();
        for attempt in 0..5 {
            let (idle, live) = (format!("idle{attempt}"), format!("live{attempt}"));
            for (user, age) in [(&idle, 120), (&live, 10)] {
                let script =
                    format!("for i = 1, 400000 do redis.call('ZADD', KEYS[1], {} + i, string.format('%010d:1', i)) end", T - age * US);
                redis::cmd("EVAL").arg(script).arg(1).arg(format!("ratelimit:window:{{{user}}}")).exec(&mut connection).expect("planted");
            }
            let planted = slowest(&mut connection);
            assert!(ask(&store, &idle, &policy, T, 1).await.admitted);
            assert!(!ask(&store, &live, &policy, T, 1).await.admitted);
            assert!(!ask(&store, &live, &policy, T, 1).await.admitted);
            let decided = slowest(&mut connection);
            worst.push((decided, planted));
            if decided < planted / 8 {
                break;
            }
        }
        assert!(worst.last().is_some_and(|(decided, planted)| *decided < planted / 8), "decisions, and planting, µs: {worst:?}");
        every_state_key_expires(&mut connection);
    }

    /// Case 125: no helper keys.
    #[tokio::test]
    async fn case_125_ten_users_have_two_state_keys_each() {
        let (_server, store, mut connection) = start();
        let policy = policy("");
        join_all((0..10_000).map(|n| {
            let (store, policy) = (&store, &policy);
            async move { ask(store, &format!("u{}", n % 10), policy, T + n * 1_000, 1).await }
        }))
        .await;
        assert_eq!(run::<u64>(&mut connection, "DBSIZE"), 20);
    }

    /// Case 71: everything of one subject lies in one slot, and subjects spread.
    #[tokio::test]
    async fn case_71_all_state_of_a_subject_lies_in_one_slot() {
        let (_server, store, mut connection) = start();
        let mut slots = std::collections::BTreeSet::new();
        let shapes =
            ["}", "}{", "{}", "{", "a}b", "{x}", "x{y}z"].map(str::to_owned).into_iter().chain((0..200).map(|n| format!("{{same}}-{n}")));
        for id in shapes {
            let mut own = std::collections::BTreeSet::new();
            for policy in [policy(""), policy("window_precision=sliced"), policy("algorithm=token_bucket")] {
                for key in store.state_keys(&key(&id), &policy) {
                    own.insert(
                        redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query::<u64>(&mut connection).unwrap_or_else(|_| slot_of(&id)),
                    );
                }
            }
            assert_eq!(own.len(), 1, "{id:?}");
            slots.extend(own);
        }
        assert!(slots.len() > 150, "the ids spread: {} slots", slots.len());
    }

    /// CLUSTER KEYSLOT needs cluster mode; the tag is what is hashed in any case.
    fn slot_of(id: &str) -> u64 {
        let tagged = key(id);
        let tag = tagged.as_str().trim_start_matches('{').split('}').next().unwrap_or("").to_owned();
        u64::from(
            tag.bytes().fold(0_u16, |crc, byte| {
                (0..8).fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
            }) % 16_384,
        )
    }

    /// Case 26: no policy makes a fractional or exponential expiry.
    #[tokio::test]
    async fn case_26_every_rate_and_window_makes_a_whole_expiry() {
        let (_server, store, mut connection) = start();
        for (n, text) in [
            "tokens_per_second=0.3 bucket_capacity=10",
            "window_seconds=100000 window_limit=5",
            "window_seconds=2592000 window_precision=sliced algorithm=sliding_window",
            "tokens_per_second=0.000001 bucket_capacity=1",
            "window_seconds=0.1",
        ]
        .iter()
        .enumerate()
        {
            for _ in 0..5 {
                let _ = ask(&store, &format!("u{n}"), &policy(text), T, 1).await;
                every_state_key_expires(&mut connection);
            }
        }
    }

    /// Case 70: every key that the script touches stands in KEYS.
    #[test]
    fn case_70_the_script_names_no_key_itself() {
        for file in [
            "policy",
            "never",
            "state",
            "load",
            "bucket",
            "window",
            "window/exact",
            "window/sliced",
            "decide",
            "window/exact_commit",
            "window/sliced_commit",
            "decide_commit",
        ] {
            let text = std::fs::read_to_string(format!("{}/lua/{file}.lua", env!("CARGO_MANIFEST_DIR"))).expect("a script");
            for call in text.split("call('").skip(1) {
                let mut words = call.split(&['\'', ',', ')', ' '][..]).filter(|word| !word.is_empty());
                let (command, key) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
                assert!(command == "TIME" || ["token_key", "window_key"].contains(&key), "{file}.lua: {command} {key}");
            }
        }
    }

    /// A replay leaves nothing behind, and removes nothing of others.
    #[tokio::test]
    async fn all_keys_of_a_prefix_can_be_removed_and_no_others() {
        let server = RedisServer::start();
        let other = server.store();
        let own = RedisStore::new(weir::store::RedisOptions {
            url: server.url(),
            prefix: "own".into(),
            deadline: std::time::Duration::from_secs(10),
            ..weir::store::RedisOptions::default()
        })
        .expect("a good url");
        for n in 0..2_500 {
            let _ = ask(&own, &format!("u{n}"), &policy(""), T, 1).await;
        }
        let _ = ask(&other, "u", &policy(""), T, 1).await;
        own.delete_all().await.expect("removed");
        assert_eq!(run::<u64>(&mut server.connect(), "DBSIZE"), 2);
    }
}
