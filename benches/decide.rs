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
use weir::limit::{Algorithm, Part, Policy, State, decide};
use weir::store::{Ask, Key, MemoryStore};

const USERS: usize = 10_000;
/// So high that nobody is refused, for all of them alike.
const RATE: u32 = 1_000_000;

fn policy(algorithm: Algorithm) -> Policy {
    let part = Part {
        tokens_per_second: Some(f64::from(RATE)),
        bucket_capacity: Some(u64::from(RATE)),
        algorithm: Some(algorithm),
        ..Part::default()
    };
    Policy::compile(&part).expect("a policy")
}

fn pure(c: &mut Criterion) {
    for (name, algorithm) in [("decide_token_bucket", Algorithm::TokenBucket), ("decide_hybrid", Algorithm::Hybrid)] {
        // A bucket as large as the rate, a window of the size that it has by default.
        let policy = Policy { window_limit: 200, ..policy(algorithm) };
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
    let policy = Policy { window_limit: 200, ..policy(Algorithm::Hybrid) };
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
