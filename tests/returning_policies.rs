//! The twins decide alike when a subject comes back to a policy that it had before: what an earlier policy left behind counts again,
//! and what the clock made of it in between must be the same on both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use futures_util::{StreamExt, stream};
use rand::RngExt;
use rand::rngs::StdRng;
use support::random;
use support::redis::RedisServer;
use weir::identity::Subject;
use weir::limit::{Field, Micros, Mode, Part, Policy, State, US, decide};
use weir::store::{Ask, Key, RedisStore, Store};

const START: Micros = 1_767_225_600_000_000;
const TRACES: usize = 1_500;
const EVENTS: usize = 80;

/// Variations of one policy: other kinds, other lengths of the window with slices as wide, other limits.
fn family(rng: &mut StdRng) -> Vec<Policy> {
    let mut base = random::part(rng);
    base.set_word(Field::Mode, "enforce").expect("a word");
    let mut family = Vec::new();
    while family.len() < 4 {
        let mut part = base.clone();
        let other = random::part(rng);
        for field in [Field::Algorithm, Field::WindowLimit, Field::WindowPrecision, Field::BreakerThreshold, Field::WhileOpen] {
            if rng.random_bool(0.5) {
                take(&mut part, &other, field);
            }
        }
        if rng.random_bool(0.3) {
            take(&mut part, &other, Field::WindowSeconds);
        } else if rng.random_bool(0.5) {
            // Twice as long with twice the slices: the width, and with it the sliced window, is the same.
            let number = |field| part.get(field).and_then(weir::limit::Value::number);
            let (seconds, slices) = (number(Field::WindowSeconds).unwrap_or(60.0), number(Field::WindowSlices).unwrap_or(60.0));
            part.set_number(Field::WindowSeconds, 2.0 * seconds).expect("in range");
            part.set_number(Field::WindowSlices, 2.0 * slices).expect("in range");
        }
        if let Ok(policy) = Policy::compile(&part)
            && policy.mode() == Mode::Enforce
        {
            family.push(policy);
        }
    }
    family
}

/// Gives `part` what `other` says of `field`, and nothing when it says nothing.
fn take(part: &mut Part, other: &Part, field: Field) {
    part.unset(field);
    let mut only = Part::default();
    match other.get(field) {
        Some(weir::limit::Value::Number(number)) => only.set_number(field, number).expect("in range"),
        Some(weir::limit::Value::Word(word)) => only.set_word(field, word).expect("a word"),
        None => {}
    }
    part.lay_over(&only);
}

async fn trace(store: &RedisStore, seed: u64) {
    let mut rng = random::rng(seed);
    let family = family(&mut rng);
    let mut state = State::default();
    let key = Key::new(&Subject::user(&seed.to_string()).expect("a good id"), None);
    let (mut now, mut current) = (START + rng.random_range(0..US), 0);
    for event in 0..EVENTS {
        if rng.random_bool(0.15) {
            current = rng.random_range(0..family.len());
        }
        let policy = &family[current];
        now += match rng.random_range(0..60) {
            0 => -rng.random_range(0..100_000 * US),
            1 => rng.random_range(0..100_000 * US),
            _ => random::step(&mut rng, policy),
        };
        let cost = random::cost(&mut rng);
        let before = state.clone();
        let rust = decide(policy, &mut state, now, cost);
        let lua = store.decide(Ask { key: &key, policy, cost, at: Some(now) }).await.expect("redis answers");
        assert_eq!(
            rust, lua,
            "trace seed {seed}, event {event} (cost {cost}, at {now}), left is Rust, right is Lua; {policy:?}; before {before:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn policies_that_come_back_are_decided_alike() {
    let server = RedisServer::start();
    let store = server.store();
    let seed = random::seed();
    println!("WEIR_TEST_SEED={seed}");
    let seeds = random::seeds(&mut random::rng(seed), TRACES);
    stream::iter(&seeds).for_each_concurrent(32, |seed| trace(&store, *seed)).await;
    assert_eq!(store.corrupt_states(), 0, "WEIR_TEST_SEED={seed}: no state of ours looks like rubbish to us");
}
