//! A decision that looks for overrides first: one call for whoever has none, and nothing charged for whoever has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use rand::RngExt;
use support::random;
use support::redis::RedisServer;
use weir::identity::Subject;
use weir::limit::{Field, Part, Policy, Reason, State, decide};
use weir::store::{Ask, Found, Guarded, GuardingStore, Key, RedisStore};

const NOW: i64 = 1_767_225_600_000_000;

fn key(user: &str, route: Option<&str>) -> Key {
    Key::new(&Subject::user(user).expect("a good id"), route)
}

fn policy(mode: &str) -> Policy {
    let mut part = Part::default();
    part.set_word(Field::Mode, mode).expect("a mode");
    Policy::compile(&part).expect("a policy")
}

async fn ask(store: &RedisStore, policy: &Policy, looked_at: &[&Key]) -> Guarded {
    let asked = Ask { key: looked_at[0], policy, cost: 1, at: Some(NOW) };
    store.decide_unless_overridden(asked, looked_at).await.expect("an answer")
}

fn keys(server: &RedisServer) -> Vec<String> {
    redis::cmd("KEYS").arg("*").query(&mut server.connect()).expect("KEYS")
}

fn hset(server: &RedisServer, key: &str, field: &str, value: &[u8]) {
    redis::cmd("HSET").arg(key).arg(field).arg(value).exec(&mut server.connect()).expect("HSET");
}

fn fields(pairs: &[(&str, &str)]) -> Found {
    Found::Fields(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
}

#[tokio::test]
async fn whoever_has_no_override_is_decided_in_the_same_call() {
    let server = RedisServer::start();
    let store = server.store();
    let user = key("u", None);
    ask(&store, &policy("enforce"), &[&user]).await;
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).expect("CONFIG");
    let Guarded::Decided(decision) = ask(&store, &policy("enforce"), &[&user]).await else { panic!("nothing is set") };
    assert!(decision.admitted);
    assert_eq!(decision.quota.expect("a quota").remaining, 98, "each was charged once");
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connect()).expect("INFO");
    let calls = |name: &str| stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{name}:calls="))?.split(',').next());
    assert_eq!((calls("evalsha"), calls("eval")), (Some("1"), None), "{stats}");
}

#[tokio::test]
async fn whoever_has_one_is_told_it_and_not_charged() {
    let server = RedisServer::start();
    let store = server.store();
    hset(&server, "ratelimit:config:{u}", "bucket_capacity", b"7");
    let found = ask(&store, &policy("enforce"), &[&key("u", None)]).await;
    assert_eq!(found, Guarded::Overridden(vec![fields(&[("bucket_capacity", "7")])]));
    assert_eq!(keys(&server), ["ratelimit:config:{u}"], "no state was written");
}

#[tokio::test]
async fn every_place_is_looked_at_and_answered_in_order() {
    let server = RedisServer::start();
    let store = server.store();
    let (general, route) = (key("u", None), key("u", Some("search")));
    hset(&server, "ratelimit:config:{u}:route:search", "mode", b"block");
    let found = ask(&store, &policy("enforce"), &[&general, &route]).await;
    assert_eq!(found, Guarded::Overridden(vec![fields(&[]), fields(&[("mode", "block")])]));
    let found = ask(&store, &policy("enforce"), &[&route, &general]).await;
    assert_eq!(found, Guarded::Overridden(vec![fields(&[("mode", "block")]), fields(&[])]));
}

#[tokio::test]
async fn a_version_that_a_deletion_left_is_told() {
    let server = RedisServer::start();
    hset(&server, "ratelimit:config:{u}", "version", b"5");
    let found = ask(&server.store(), &policy("enforce"), &[&key("u", None)]).await;
    assert_eq!(found, Guarded::Overridden(vec![fields(&[("version", "5")])]));
}

#[tokio::test]
async fn rubbish_is_told_as_such_and_is_no_error() {
    let server = RedisServer::start();
    let store = server.store();
    redis::cmd("RPUSH").arg("ratelimit:config:{list}").arg("x").exec(&mut server.connect()).expect("RPUSH");
    assert_eq!(ask(&store, &policy("enforce"), &[&key("list", None)]).await, Guarded::Overridden(vec![Found::WrongType]));
    hset(&server, "ratelimit:config:{bytes}", "bucket_capacity", b"\xff\xfe");
    let found = ask(&store, &policy("enforce"), &[&key("bytes", None)]).await;
    assert_eq!(found, Guarded::Overridden(vec![fields(&[("bucket_capacity", "\u{fffd}\u{fffd}")])]));
}

#[tokio::test]
async fn a_policy_without_state_is_guarded_as_well_and_still_keeps_none() {
    let server = RedisServer::start();
    let store = server.store();
    let user = key("u", None);
    let Guarded::Decided(blocked) = ask(&store, &policy("block"), &[&user]).await else { panic!("nothing is set") };
    assert_eq!((blocked.admitted, blocked.reason, blocked.quota), (false, Some(Reason::Blocked), None));
    let Guarded::Decided(passed) = ask(&store, &policy("bypass"), &[&user]).await else { panic!("nothing is set") };
    assert_eq!((passed.admitted, passed.reason, passed.quota), (true, None, None));
    assert!(keys(&server).is_empty(), "{:?}", keys(&server));
    hset(&server, "ratelimit:config:{u}", "mode", b"enforce");
    assert_eq!(ask(&store, &policy("block"), &[&user]).await, Guarded::Overridden(vec![fields(&[("mode", "enforce")])]));
}

#[tokio::test]
async fn a_server_that_forgot_the_script_is_taught_again_and_charges_once() {
    let server = RedisServer::start();
    let store = server.store();
    let user = key("u", None);
    for taken in 1..=5 {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connect()).expect("SCRIPT FLUSH");
        let Guarded::Decided(decision) = ask(&store, &policy("enforce"), &[&user]).await else { panic!("nothing is set") };
        assert_eq!(decision.quota.expect("a quota").remaining, 100 - taken);
    }
}

/// The look leaves no trace in the decision behind it: policies with and without a window, of every kind.
#[tokio::test]
async fn a_guarded_decision_is_the_decision() {
    let server = RedisServer::start();
    let store = server.store();
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let mut rng = random::rng(seed);
    for trace in 0..200 {
        let policy = random::policy(&mut rng);
        let (general, route) = (key(&format!("u{trace}"), None), key(&format!("u{trace}"), Some("r")));
        let looked_at: &[&Key] = if rng.random_bool(0.5) { &[&general] } else { &[&general, &route] };
        let (mut state, mut now) = (State::default(), NOW);
        for event in 0..20 {
            now += random::step(&mut rng, &policy);
            let cost = random::cost(&mut rng);
            let asked = Ask { key: &general, policy: &policy, cost, at: Some(now) };
            let guarded = store.decide_unless_overridden(asked, looked_at).await.expect("an answer");
            let alone = decide(&policy, &mut state, now, cost);
            assert_eq!(guarded, Guarded::Decided(alone), "WEIR_TEST_SEED={seed}, trace {trace}, event {event}, policy {policy:?}");
        }
    }
}
