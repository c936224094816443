//! What deciding costs, without a store or a network: beside governor's keyed check, in the same run.
//!
//! `decide` is the pure function on a state at hand. `memory store` adds what a service needs around it: finding the subject
//! among ten thousand, a lock, the clock, remembering; governor's keyed check does the same.
#![allow(missing_docs, reason = "criterion's macros make functions without any")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a bench fails by panicking")]

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use governor::{Quota, RateLimiter};
use weir::clock::SystemClock;
use weir::identity::Subject;
use weir::limit::{Field, Part, Policy, State, decide};
use weir::store::{Ask, Key, MemoryStore};

const USERS: usize = 10_000;
/// So high that nobody is refused, for all of them alike.
const RATE: u32 = 1_000_000;

/// A bucket that nobody empties, and a window of the size that it has by default.
fn policy(algorithm: &str) -> Policy {
    let mut part = Part::default();
    for (field, number) in
        [(Field::TokensPerSecond, f64::from(RATE)), (Field::BucketCapacity, f64::from(RATE)), (Field::WindowLimit, 200.0)]
    {
        part.set_number(field, number).expect("a number within its range");
    }
    part.set_word(Field::Algorithm, algorithm).expect("a word");
    Policy::compile(&part).expect("a policy")
}

fn pure(c: &mut Criterion) {
    for (name, algorithm) in [("decide_token_bucket", "token_bucket"), ("decide_hybrid", "hybrid")] {
        let policy = policy(algorithm);
        let (mut state, mut now) = (State::default(), 1_767_225_600_000_000);
        c.bench_function(name, |b| {
            b.iter(|| {
                now += 10;
                decide(black_box(&policy), black_box(&mut state), now, 1)
            });
        });
    }
}

fn keyed(c: &mut Criterion) {
    let names: Vec<String> = (0..USERS).map(|user| format!("user-{user}")).collect();
    let keys: Vec<Key> = names.iter().map(|name| Key::new(&Subject::user(name).expect("an id"), None)).collect();
    let store = MemoryStore::new(1_000_000, Arc::new(SystemClock));
    let policy = policy("hybrid");
    let mut index = 0;
    c.bench_function("memory_store_hybrid", |b| {
        b.iter(|| {
            index = (index + 7_919) % USERS;
            store.decide(Ask { key: &keys[index], policy: &policy, cost: 1, at: None })
        });
    });
    let limiter = RateLimiter::keyed(Quota::per_second(NonZeroU32::new(RATE).expect("not zero")));
    c.bench_function("governor_keyed", |b| {
        b.iter(|| {
            index = (index + 7_919) % USERS;
            limiter.check_key(black_box(&names[index])).is_ok()
        });
    });
}

criterion_group!(decisions, pure, keyed);
criterion_main!(decisions);
