//! Random policies and traces, from a seed that a failing test prints.

use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};
use weir::limit::{Field, Micros, Part, Policy, US, Units};

/// A seed: the one in `WEIR_TEST_SEED`, to repeat a failure, or a new one.
#[expect(clippy::disallowed_methods, reason = "a test's own switch, documented in CONTRIBUTING")]
pub fn seed() -> u64 {
    std::env::var("WEIR_TEST_SEED").ok().map_or_else(rand::random, |seed| seed.parse().expect("WEIR_TEST_SEED is a whole number"))
}

pub fn rng(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}

fn one_of<T: Copy>(rng: &mut StdRng, of: &[T]) -> T {
    of[rng.random_range(0..of.len())]
}

/// A policy that is likely to be at its edges: small limits, windows shorter than the bucket takes to fill, all kinds.
pub fn policy(rng: &mut StdRng) -> Policy {
    loop {
        if let Ok(policy) = Policy::compile(&part(rng)) {
            return policy;
        }
    }
}

pub fn part(rng: &mut StdRng) -> Part {
    let mut part = Part::default();
    let mut number = |field, value: f64| part.set_number(field, value).expect("in range");
    number(Field::TokensPerSecond, one_of(rng, &[0.1, 1.0 / 3.0, 1.0, 2.0, 7.5, 50.0, 1_000.0]));
    number(Field::BucketCapacity, one_of(rng, &[1.0, 2.0, 5.0, 10.0, 100.0, 10_000.0]));
    number(Field::WindowSeconds, one_of(rng, &[0.1, 0.5, 1.0, 3.7, 10.0, 60.0]));
    if rng.random_bool(0.9) {
        number(Field::WindowLimit, one_of(rng, &[1.0, 2.0, 5.0, 10.0, 30.0, 200.0, 20_000.0]));
    }
    if rng.random_bool(0.7) {
        number(Field::BreakerThreshold, one_of(rng, &[0.0, 0.5, 1.0, 3.0, 10.0]));
    }
    number(Field::BreakerRatio, one_of(rng, &[0.0, 0.5, 1.0, 3.0, 3.0, 3.0]));
    number(Field::BreakerCooldownSeconds, one_of(rng, &[0.1, 1.0, 2.5, 10.0]));
    number(Field::WindowSlices, one_of(rng, &[1.0, 2.0, 7.0, 10.0, 60.0]));
    let mut word = |field, value: &str| part.set_word(field, value).expect("a word of it");
    word(Field::Algorithm, one_of(rng, &["hybrid", "hybrid", "hybrid", "token_bucket", "sliding_window"]));
    if rng.random_bool(0.6) {
        word(Field::WindowPrecision, one_of(rng, &["exact", "sliced"]));
    }
    word(Field::WhileOpen, one_of(rng, &["both", "both", "window"]));
    word(Field::Mode, one_of(rng, &["enforce", "enforce", "enforce", "enforce", "enforce", "enforce", "shadow", "block", "bypass"]));
    part
}

/// A cost: mostly 1, sometimes a peek, sometimes more than fits.
pub fn cost(rng: &mut StdRng) -> Units {
    match rng.random_range(0..20) {
        0 | 1 => 0,
        2 | 3 => 2,
        4 => rng.random_range(3..12),
        5 => rng.random_range(12..300),
        6 if rng.random_bool(0.1) => 1_000_000_000,
        _ => 1,
    }
}

/// How far the clock moves: bursts, pauses around every boundary there is, steps back, corrections.
pub fn step(rng: &mut StdRng, policy: &Policy) -> Micros {
    match rng.random_range(0..40) {
        0..=9 => 0,
        10..=19 => rng.random_range(0..20_000),
        20..=25 => rng.random_range(0..US),
        26..=28 => rng.random_range(0..3 * US),
        29 | 30 => policy.window() + rng.random_range(-2..=2),
        31 => policy.cooldown() + rng.random_range(-2..=2),
        32 => US + rng.random_range(-1..=1),
        33 => rng.random_range(0..2 * policy.window()),
        34 => rng.random_range(0..100 * US),
        35 => -rng.random_range(0..US),
        36 => -US + rng.random_range(-1..=1),
        37 => -rng.random_range(0..20 * US),
        _ => 1_000,
    }
}

/// A seed for each of `n` traces.
pub fn seeds(rng: &mut StdRng, n: usize) -> Vec<u64> {
    (0..n).map(|_| rng.next_u64()).collect()
}
