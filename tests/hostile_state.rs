//! Whatever stands in Redis where state should be: a decision is made, never an unlimited one, and the state is sound again a
//! window later.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use rand::RngExt;
use rand::rngs::StdRng;
use redis::Connection;
use support::policy::policy;
use support::random;
use support::redis::RedisServer;
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Mode, Policy, Precision, State, US, Units, decide};
use weir::store::{Ask, Key, RedisStore, Store};

const T: Micros = 1_767_225_600_000_000;
/// Nothing that a policy of this file remembers means anything so much later.
const LATER: Micros = T + 20_000 * US;

struct Redis {
    _server: RedisServer,
    store: RedisStore,
    connection: Connection,
    user: usize,
}

impl Redis {
    fn start() -> Self {
        let server = RedisServer::start();
        Self { store: server.store(), connection: server.connect(), _server: server, user: 0 }
    }

    /// Goes on with a user never seen.
    fn next_user(&mut self) {
        self.user += 1;
    }

    fn key(&self) -> Key {
        Key::new(&Subject::user(&format!("u{}", self.user)).expect("a good id"), None)
    }

    async fn ask(&self, policy: &Policy, at: Micros, cost: Units) -> Decision {
        self.store.decide(Ask { key: &self.key(), policy, cost, at: Some(at) }).await.expect("the store answers")
    }

    fn run<T: redis::FromRedisValue>(&mut self, command: &str, arguments: &[&[u8]]) -> T {
        let mut cmd = redis::cmd(command);
        for argument in arguments {
            cmd.arg(*argument);
        }
        cmd.query(&mut self.connection).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// The subject's hash, and its window under `policy`.
    fn keys(&self, policy: &Policy) -> Vec<String> {
        self.store.state_keys(&self.key(), policy)
    }

    /// Now and then: a key is deleted, loses its expiry, a field, or its type.
    fn harm(&mut self, rng: &mut StdRng, policy: &Policy) {
        let keys = self.keys(policy);
        let key = keys[rng.random_range(0..keys.len())].as_str();
        let mut commands = redis::pipe();
        match rng.random_range(0..20) {
            0 => commands.cmd("DEL").arg(key),
            1 => commands.cmd("PERSIST").arg(key),
            2 => commands.cmd("SET").arg(key).arg("text"),
            3 => commands.cmd("DEL").arg(key).cmd("RPUSH").arg(key).arg("a").arg("b"),
            4 => commands.cmd("FLUSHALL"),
            5 => commands.cmd("HDEL").arg(key).arg(["tokens", "load", "totals", "sum"][rng.random_range(0..4)]),
            _ => return,
        };
        // A field is not to be had from what is no hash.
        let _: redis::RedisResult<()> = commands.exec(&mut self.connection);
    }

    /// After anything: at most `most` of a crowd are admitted, numbers are numbers, keys expire, and in the end all is as new.
    async fn is_limited_and_heals(&mut self, policy: &Policy, most: usize, what: &str) {
        let mut admitted = 0;
        for n in 0..20 {
            admitted += usize::from(self.ask(policy, T + US + n, 1).await.admitted);
        }
        assert!(admitted <= most, "{what}: {admitted} admitted, at most {most}; {policy:?}");
        for key in self.keys(policy) {
            let ttl: i64 = self.run("PTTL", &[key.as_bytes()]);
            assert!(ttl > 0 || ttl == -2, "{what}: {key} has no expiry");
        }
        let tokens: f64 = self.run("HGET", &[self.keys(policy)[0].as_bytes(), b"tokens"]);
        assert!(tokens.is_finite() && tokens <= policy.bucket_capacity() as f64, "{what}: {tokens} tokens");
        let mut fresh = State::default();
        for cost in [1, 2, 1, 0, 1] {
            assert_eq!(self.ask(policy, LATER, cost).await, decide(policy, &mut fresh, LATER, cost), "{what}: not healed; {policy:?}");
        }
    }
}

#[tokio::test]
async fn rubbish_among_the_entries_of_a_window_limits_all_the_same() {
    let mut redis = Redis::start();
    let members: [&[u8]; 16] = [
        b"abc",
        b"",
        b"1",
        b":1",
        b"1:",
        b"1:0",
        b"1:-5",
        b"1:1e9",
        b"1:99999999999999999999",
        b"99999999999999999999:1",
        b"nan:nan",
        b"0x1:0x1",
        b"9007199254740993:1",
        b"0000000001:5",
        b"\xff\xfe:1",
        b"0000000002:1000000000",
    ];
    let scores = ["-inf", "inf", "0", "1767225600000000", "1767225599000000", "1767225600000000.5", "1e300", "1767999999999999"];
    for text in ["algorithm=sliding_window", "breaker_threshold=0", "breaker_threshold=1000", "algorithm=sliding_window window_seconds=5"] {
        let policy = policy(&format!("bucket_capacity=9 tokens_per_second=0.001 window_limit=5 {text}"));
        for member in members {
            for score in scores {
                for in_place_of_one in [false, true] {
                    redis.next_user();
                    let _ = redis.ask(&policy, T, 1).await;
                    let _ = redis.ask(&policy, T, 2).await;
                    let window = redis.keys(&policy)[1].clone();
                    if in_place_of_one {
                        let _: i64 = redis.run("ZREMRANGEBYRANK", &[window.as_bytes(), b"0", b"0"]);
                    }
                    let _: i64 = redis.run("ZADD", &[window.as_bytes(), score.as_bytes(), member]);
                    let most = if text.contains("1000") { 9 } else { 5 };
                    redis
                        .is_limited_and_heals(
                            &policy,
                            most,
                            &format!("{:?} at {score}, in place of one: {in_place_of_one}", String::from_utf8_lossy(member)),
                        )
                        .await;
                }
            }
        }
    }
}

/// A number that a field of state may claim to be: any bits, or what is likely to do harm.
fn number(rng: &mut StdRng) -> f64 {
    let now = T as f64;
    match rng.random_range(0..4) {
        0 => f64::from_bits(rng.random()),
        1 => now + rng.random_range(-1e10..1e10),
        _ => {
            let harmful = [
                f64::NAN,
                f64::INFINITY,
                f64::NEG_INFINITY,
                0.0,
                -1.0,
                1.0,
                2.0,
                3.0,
                0.5,
                -1e9,
                1e9,
                1e15,
                1e17,
                1e300,
                -1e300,
                now,
                now / 1e6,
            ];
            harmful[rng.random_range(0..harmful.len())]
        }
    }
}

/// `whole` numbers packed, some of them replaced, sometimes cut or lengthened.
fn packed(rng: &mut StdRng, stored: &[u8]) -> Vec<u8> {
    let mut bytes = stored.to_vec();
    let replaced = rng.random_range(0.1..1.0);
    for eight in bytes.chunks_exact_mut(8) {
        if rng.random_bool(replaced) {
            eight.copy_from_slice(&number(rng).to_le_bytes());
        }
    }
    match rng.random_range(0..8) {
        0 => bytes.truncate(rng.random_range(0..=bytes.len())),
        1 => bytes.extend([0xff; 5]),
        2 => bytes.fill(rng.random()),
        _ => {}
    }
    bytes
}

#[tokio::test]
async fn rubbish_in_the_packed_fields_limits_all_the_same() {
    let mut redis = Redis::start();
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    for text in [
        "algorithm=sliding_window",
        "breaker_threshold=0",
        "breaker_threshold=1000",
        "algorithm=token_bucket",
        "algorithm=sliding_window window_precision=sliced",
        "breaker_threshold=0 window_precision=sliced window_slices=7",
    ] {
        let policy = policy(&format!("bucket_capacity=9 tokens_per_second=0.001 window_limit=5 {text}"));
        let most = if text.contains("1000") || text.contains("token_bucket") { 9 } else { 5 };
        for _ in 0..300 {
            redis.next_user();
            let _ = redis.ask(&policy, T, 1).await;
            let _ = redis.ask(&policy, T, 2).await;
            let keys = redis.keys(&policy);
            let (key, field) = match (keys.get(1), policy.precision()) {
                (Some(slices), Precision::Sliced { .. }) if rng.random_bool(0.8) => (slices, "sum"),
                _ if policy.uses_window() && policy.precision() == Precision::Exact && rng.random() => (&keys[0], "totals"),
                _ => (&keys[0], "load"),
            };
            let stored: Vec<u8> = redis.run("HGET", &[key.as_bytes(), field.as_bytes()]);
            let rubbish = packed(&mut rng, &stored);
            let _: i64 = redis.run("HSET", &[key.as_bytes(), field.as_bytes(), &rubbish]);
            let doubles: Vec<f64> = rubbish.as_chunks::<8>().0.iter().map(|eight| f64::from_le_bytes(*eight)).collect();
            redis
                .is_limited_and_heals(&policy, most, &format!("WEIR_TEST_SEED={seed}, {field} of {} bytes: {doubles:?}", rubbish.len()))
                .await;
        }
    }
}

#[tokio::test]
async fn rubbish_in_a_field_of_text_limits_all_the_same() {
    let mut redis = Redis::start();
    let texts: [&[u8]; 20] = [
        b"nan",
        b"-nan",
        b"inf",
        b"-inf",
        b"-1",
        b"-0.5",
        b"",
        b" ",
        b"abc",
        b"1e309",
        b"1e308",
        b"-1e308",
        b"0x10",
        b"1e9",
        b"99999999999999999999",
        b"1767225600500000.5",
        b"1767999999999999",
        b"5",
        b"9999",
        b"\xff\xfe",
    ];
    for text in [
        "algorithm=sliding_window",
        "breaker_threshold=0",
        "algorithm=token_bucket",
        "algorithm=sliding_window window_precision=sliced window_seconds=10 window_slices=10",
        "breaker_threshold=0 window_precision=sliced window_slices=7",
    ] {
        let policy = policy(&format!("bucket_capacity=9 tokens_per_second=0.001 window_limit=5 {text}"));
        let most = if text.contains("token_bucket") { 9 } else { 5 };
        for rubbish in texts {
            let mut fields = vec![(0, "tokens".to_owned()), (0, "refilled_at".to_owned()), (0, "other".to_owned())];
            if let Precision::Sliced { width } = policy.precision() {
                fields.extend([T - 2 * width, T - width, T, T + width, T + 2 * width].map(|at| (1, (at / width).to_string())));
                fields.extend([(1, "-5".to_owned()), (1, "abc".to_owned()), (1, "1e9".to_owned()), (1, "99999999999999999999".to_owned())]);
            }
            for (key, field) in fields {
                redis.next_user();
                let _ = redis.ask(&policy, T - US, 1).await;
                let _ = redis.ask(&policy, T, 2).await;
                let key = redis.keys(&policy)[key].clone();
                let _: i64 = redis.run("HSET", &[key.as_bytes(), field.as_bytes(), rubbish]);
                redis.is_limited_and_heals(&policy, most, &format!("{field} = {:?}", String::from_utf8_lossy(rubbish))).await;
            }
        }
    }
}

/// A policy whose mode keeps state.
fn keeps_state(rng: &mut StdRng) -> Policy {
    loop {
        let policy = random::policy(rng);
        if matches!(policy.mode(), Mode::Enforce | Mode::Shadow) {
            return policy;
        }
    }
}

/// Keys are deleted, expire, lose their expiry or change their type in the middle of a random trace.
#[tokio::test]
async fn keys_that_vanish_or_turn_into_something_else_are_survived() {
    let mut redis = Redis::start();
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    for _ in 0..250 {
        redis.next_user();
        let policies = [keeps_state(&mut rng), keeps_state(&mut rng)];
        let mut at = T;
        for _ in 0..40 {
            let policy = &policies[usize::from(rng.random_bool(0.2))];
            at += random::step(&mut rng, policy);
            let decision = redis.ask(policy, at, random::cost(&mut rng)).await;
            if let Some(quota) = decision.quota {
                assert!(quota.remaining <= quota.limit && quota.reset_after >= 0, "WEIR_TEST_SEED={seed}: {decision:?}");
            }
            redis.harm(&mut rng, policy);
        }
        let later = at + 10_000_000 * US;
        for policy in &policies {
            let mut fresh = State::default();
            redis.ask(policy, later, 1).await;
            let _ = decide(policy, &mut fresh, later, 1);
            for cost in [1, 2, 0, 1, 1] {
                let (stored, new) = (redis.ask(policy, later, cost).await, decide(policy, &mut fresh, later, cost));
                assert_eq!(stored.quota, new.quota, "WEIR_TEST_SEED={seed}: not healed; {policy:?}");
            }
            for key in redis.keys(policy) {
                let ttl: i64 = redis.run("PTTL", &[key.as_bytes()]);
                assert!(ttl > 0 || ttl == -2, "WEIR_TEST_SEED={seed}: {key} has no expiry; {policy:?}");
            }
            redis.run::<()>("FLUSHALL", &[]);
        }
    }
}
