//! What may be relied on: each promise of the algorithm as a property, on the Rust function and on the script in a real
//! Redis, with the same random traces. `WEIR_TEST_SEED` repeats a run.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use rand::RngExt;
use rand::rngs::StdRng;
use support::random;
use support::twin::Twin;
use weir::limit::{Algorithm, Decision, Field, Micros, Mode, Part, Policy, Precision, US, Units, Wait, WhileOpen};

const START: Micros = 1_767_225_600_000_000;
/// Traces for each promise: the function is quick, the script is a network away.
const RUST_TRACES: u32 = 500;
const LUA_TRACES: u32 = 60;
const EVENTS: usize = 60;

/// Shows `promise` on both twins, for traces that follow from a seed.
fn on_both(promise: impl Fn(&mut Twin, &mut StdRng) -> Result<(), TestCaseError>) {
    for (mut twin, traces) in [(Twin::rust(), RUST_TRACES), (Twin::lua(), LUA_TRACES)] {
        let name = if matches!(twin, Twin::Rust(_)) { "rust" } else { "lua" };
        let mut runner = TestRunner::new(Config { cases: traces, failure_persistence: None, max_shrink_iters: 0, ..Config::default() });
        let twin = std::cell::RefCell::new(&mut twin);
        let shown = runner.run(&any::<u64>(), |seed| promise(&mut twin.borrow_mut(), &mut random::rng(seed)));
        if let Err(failure) = shown {
            panic!("on the {name} twin (the input is the seed of the trace): {failure}");
        }
    }
}

/// A user that no other trace uses.
fn user(rng: &mut StdRng) -> String {
    format!("u{}", rng.random::<u64>())
}

fn policy_where(rng: &mut StdRng, wanted: impl Fn(&Policy) -> bool) -> Policy {
    loop {
        let policy = random::policy(rng);
        if policy.mode() == Mode::Enforce && wanted(&policy) {
            return policy;
        }
    }
}

/// The next time on a clock that steps back by up to a second behind the latest time it has shown, and is never corrected.
fn tick(rng: &mut StdRng, policy: &Policy, at: Micros, latest: &mut Micros) -> Micros {
    let next = (at + random::step(rng, policy)).max(*latest - US + 1);
    *latest = next.max(*latest);
    next
}

fn with(policy: &Part, field: Field, number: f64) -> Policy {
    let mut part = policy.clone();
    part.set_number(field, number).expect("in range");
    Policy::compile(&part).expect("a policy")
}

#[test]
fn promise_1_the_bucket_admits_its_capacity_and_what_it_gained_and_no_more() {
    on_both(|twin, rng| {
        let policy = policy_where(rng, |policy| policy.uses_bucket() && policy.while_open() == WhileOpen::Both);
        let (user, mut at, mut latest, mut admitted) = (user(rng), START, START, Vec::<(Micros, Units)>::new());
        for _ in 0..EVENTS {
            at = tick(rng, &policy, at, &mut latest);
            let cost = random::cost(rng);
            let decision = twin.decide(&user, &policy, at, cost);
            if decision.admitted && cost > 0 {
                admitted.push((decision.decided_at, cost));
            }
        }
        for (first, (from, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for (to, cost) in &admitted[first..] {
                sum += cost;
                let most = policy.bucket_capacity() as f64 + policy.tokens_per_second() * (to - from) as f64 / US as f64 + 0.001;
                prop_assert!(sum as f64 <= most, "{sum} admitted within {} µs, at most {most}; {policy:?}", to - from);
            }
        }
        Ok(())
    });
}

#[test]
fn promise_2_whenever_the_window_counts_no_window_holds_more_than_its_limit() {
    on_both(|twin, rng| {
        let policy = policy_where(rng, Policy::uses_window);
        let (user, mut at, mut latest, mut admitted) = (user(rng), START, START, Vec::<(Micros, Units)>::new());
        for _ in 0..EVENTS {
            at = tick(rng, &policy, at, &mut latest);
            let cost = random::cost(rng);
            let decision = twin.decide(&user, &policy, at, cost);
            let now = decision.decided_at;
            if decision.admitted {
                admitted.push((now, cost));
                let counts = policy.algorithm() == Algorithm::SlidingWindow || decision.breaker_open;
                let held: Units = admitted.iter().filter(|(at, _)| now - at < policy.window()).map(|(_, cost)| cost).sum();
                prop_assert!(!counts || cost == 0 || held <= policy.window_limit(), "{held} within the window; {policy:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn promise_3_an_open_breaker_never_admits_what_a_closed_one_refuses() {
    on_both(|twin, rng| {
        let mut part = random::part(rng);
        part.set_word(Field::Algorithm, "hybrid").expect("a word");
        part.set_word(Field::WhileOpen, "both").expect("a word");
        part.set_word(Field::Mode, "enforce").expect("a word");
        if Policy::compile(&part).is_err() {
            return Ok(());
        }
        let (open, closed) = (with(&part, Field::BreakerThreshold, 0.0), {
            part.set_number(Field::BreakerRatio, 1e6).expect("in range");
            with(&part, Field::BreakerThreshold, 1e9)
        });
        let (user, mut at, mut latest) = (user(rng), START, START);
        let fork = format!("{user}-fork");
        for _ in 0..EVENTS {
            at = tick(rng, &open, at, &mut latest);
            let cost = random::cost(rng);
            twin.copy(&user, &fork, &open);
            let with_open = twin.decide(&fork, &open, at, cost);
            let with_closed = twin.decide(&user, &closed, at, cost);
            prop_assert!(!with_open.admitted || with_closed.admitted, "open admits, closed refuses; {open:?}");
        }
        Ok(())
    });
}

#[test]
fn promise_4_a_refusal_changes_neither_bucket_nor_window() {
    on_both(|twin, rng| {
        let policy = policy_where(rng, |_| true);
        let (user, mut at, mut latest) = (user(rng), START, START);
        let (before, after) = (format!("{user}-before"), format!("{user}-after"));
        for _ in 0..EVENTS {
            at = tick(rng, &policy, at, &mut latest);
            let cost = random::cost(rng);
            twin.copy(&user, &before, &policy);
            let decision = twin.decide(&user, &policy, at, cost);
            if !decision.admitted {
                // Asked through a policy whose both limits count, so that neither can hide.
                twin.copy(&user, &after, &policy);
                for (algorithm, what) in [("token_bucket", "bucket"), ("sliding_window", "window")] {
                    let view = view(&policy, algorithm);
                    let [left_before, left_after] = [&before, &after].map(|copy| twin.decide(copy, &view, at, 0).quota);
                    prop_assert_eq!(left_before, left_after, "a refusal changed the {}", what);
                }
            }
        }
        Ok(())
    });
}

/// The same limits, of which only one counts.
fn view(policy: &Policy, algorithm: &str) -> Policy {
    let mut part = Part::default();
    part.set_number(Field::TokensPerSecond, policy.tokens_per_second()).expect("in range");
    part.set_number(Field::BucketCapacity, policy.bucket_capacity() as f64).expect("in range");
    part.set_number(Field::WindowSeconds, policy.window() as f64 / US as f64).expect("in range");
    part.set_number(Field::WindowLimit, policy.window_limit() as f64).expect("in range");
    if let Precision::Sliced { width } = policy.precision() {
        part.set_word(Field::WindowPrecision, "sliced").expect("a word");
        part.set_number(Field::WindowSlices, (policy.window() as f64 / width as f64).ceil()).expect("in range");
    } else {
        part.set_word(Field::WindowPrecision, "exact").expect("a word");
    }
    part.set_word(Field::Algorithm, algorithm).expect("a word");
    Policy::compile(&part).expect("a policy")
}

#[test]
fn promise_5_whoever_waits_as_long_as_told_is_admitted() {
    on_both(|twin, rng| {
        let policy = policy_where(rng, |_| true);
        let (user, mut at, mut latest) = (user(rng), START, START);
        let fork = format!("{user}-fork");
        for _ in 0..EVENTS {
            at = tick(rng, &policy, at, &mut latest);
            let cost = random::cost(rng);
            let decision = twin.decide(&user, &policy, at, cost);
            if let (false, Wait::For(wait)) = (decision.admitted, decision.retry_after) {
                prop_assert!(wait > 0, "a refusal that names no wait: {decision:?}; {policy:?}");
                twin.copy(&user, &fork, &policy);
                let again: Decision = twin.decide(&fork, &policy, at + wait, cost);
                prop_assert!(again.admitted, "told to wait {wait} µs for {cost}, then {again:?}; {policy:?}");
            }
        }
        Ok(())
    });
}

#[test]
fn promise_6_what_remains_lies_between_nothing_and_the_limit() {
    on_both(|twin, rng| {
        let mut policy = policy_where(rng, |_| true);
        let (user, mut at) = (user(rng), START);
        for _ in 0..EVENTS {
            if rng.random_bool(0.1) {
                policy = policy_where(rng, |_| true);
            }
            at += random::step(rng, &policy);
            let quota = twin.decide(&user, &policy, at, random::cost(rng)).quota.expect("enforce keeps state");
            prop_assert!(quota.remaining <= quota.limit && quota.reset_after >= 0, "{quota:?}");
            prop_assert!(
                quota.remaining < quota.limit || quota.reset_after == 0 || quota.binding == weir::limit::Limit::Bucket,
                "{quota:?}"
            );
        }
        Ok(())
    });
}

#[test]
fn promise_6_asking_more_often_does_not_change_the_long_run_rate() {
    on_both(|twin, rng| {
        // Room for two: in a bucket of one, what is gained while nobody asks is lost to the capacity.
        let (rate, capacity) = ([0.5, 1.0, 3.0][rng.random_range(0..3)], rng.random_range(2..6));
        let mut part = Part::default();
        part.set_number(Field::TokensPerSecond, rate).expect("in range");
        part.set_number(Field::BucketCapacity, f64::from(capacity)).expect("in range");
        part.set_word(Field::Algorithm, "token_bucket").expect("a word");
        let policy = Policy::compile(&part).expect("a policy");
        let seconds = 30;
        let poll = [US / 7, US / 20, US / 50][rng.random_range(0..3)];
        let user = user(rng);
        let admitted = (0..seconds * US / poll).filter(|n| twin.decide(&user, &policy, START + n * poll, 1).admitted).count();
        let most = f64::from(capacity) + rate * seconds as f64;
        prop_assert!(admitted as f64 <= most && admitted as f64 >= most - 2.0, "{admitted} of {most}");
        Ok(())
    });
}

#[test]
fn promise_7_two_subjects_never_touch_each_other() {
    on_both(|twin, rng| {
        let policies = [policy_where(rng, |_| true), policy_where(rng, |_| true)];
        let (user, mut at, mut latest, mut asked) = (user(rng), START, START, Vec::new());
        for _ in 0..EVENTS {
            let index = usize::from(rng.random_bool(0.5));
            at = tick(rng, &policies[index], at, &mut latest);
            let cost = random::cost(rng);
            let answer = twin.decide(&format!("{user}-together-{index}"), &policies[index], at, cost);
            asked.push((index, at, cost, answer));
        }
        // The same requests of each of the two, as if the other had never been.
        for (alone, policy) in policies.iter().enumerate() {
            for (_, at, cost, answer) in asked.iter().filter(|(index, ..)| *index == alone) {
                prop_assert_eq!(&twin.decide(&format!("{user}-alone-{alone}"), policy, *at, *cost), answer);
            }
        }
        Ok(())
    });
}

#[test]
fn promise_8_forgetting_idle_state_changes_no_decision() {
    let mut twin = Twin::rust();
    let mut runner = TestRunner::new(Config { cases: RUST_TRACES, failure_persistence: None, max_shrink_iters: 0, ..Config::default() });
    let twin = std::cell::RefCell::new(&mut twin);
    runner
        .run(&any::<u64>(), |seed| {
            let (mut twin, rng) = (twin.borrow_mut(), &mut random::rng(seed));
            let policy = policy_where(rng, |_| true);
            let (kept, forgotten, mut at) = (user(rng), user(rng), START);
            for _ in 0..EVENTS {
                at += random::step(rng, &policy).max(0);
                if let Twin::Rust(states) = &mut **twin
                    && states.get(&forgotten).is_some_and(|state| state.as_new_at(&policy) <= at)
                {
                    states.remove(&forgotten);
                }
                let cost = random::cost(rng);
                let (kept, forgotten) = (twin.decide(&kept, &policy, at, cost), twin.decide(&forgotten, &policy, at, cost));
                prop_assert_eq!(kept, forgotten, "{:?}", policy);
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("the input is the seed of the trace: {failure}"));
}

#[test]
fn promise_8_redis_keeps_state_for_as_long_as_it_means_something_and_a_minute() {
    let (mut rust, mut lua) = (Twin::rust(), Twin::lua());
    let mut runner = TestRunner::new(Config { cases: LUA_TRACES, failure_persistence: None, max_shrink_iters: 0, ..Config::default() });
    let twins = std::cell::RefCell::new((&mut rust, &mut lua));
    runner
        .run(&any::<u64>(), |seed| {
            let (mut twins, rng) = (twins.borrow_mut(), &mut random::rng(seed));
            let policy = policy_where(rng, |_| true);
            let (user, mut at) = (user(rng), START);
            for _ in 0..EVENTS {
                at += random::step(rng, &policy).max(0);
                let cost = random::cost(rng);
                twins.0.decide(&user, &policy, at, cost);
                let answer = twins.1.decide(&user, &policy, at, cost);
                let Twin::Rust(states) = &*twins.0 else { unreachable!() };
                let needed_ms = (states[&user].as_new_at(&policy) - at) / 1_000;
                let kept_ms = twins.1.kept_ms(&user, &policy);
                if cost > 0 && !kept_ms.is_empty() {
                    prop_assert!(
                        kept_ms.iter().all(|kept_ms| *kept_ms > 50_000),
                        "a key without an expiry, or one that is too short: {kept_ms:?}"
                    );
                    // The real clock has gone on for a moment between the call and this look.
                    let longest = kept_ms.iter().max().copied().unwrap_or(0);
                    prop_assert!(longest + 5_000 >= needed_ms + 60_000, "kept for {kept_ms:?} ms, needed for {needed_ms}; {policy:?}");
                    if let Some(quota) = answer.quota.filter(|quota| quota.binding == weir::limit::Limit::Bucket) {
                        prop_assert!(kept_ms[0] + 5_000 >= quota.reset_after / 1_000 + 60_000, "{kept_ms:?} ms, but {quota:?}");
                    }
                }
            }
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("the input is the seed of the trace: {failure}"));
}

#[test]
fn promise_9_changing_limits_keeps_what_was_used() {
    on_both(|twin, rng| {
        let mut part = random::part(rng);
        part.set_word(Field::Mode, "enforce").expect("a word");
        part.set_word(Field::Algorithm, ["token_bucket", "sliding_window"][rng.random_range(0..2)]).expect("a word");
        part.set_word(Field::WindowPrecision, "exact").expect("a word");
        part.set_number(Field::WindowLimit, f64::from(rng.random_range(1..200))).expect("in range");
        let Ok(before) = Policy::compile(&part) else { return Ok(()) };
        let (user, mut at) = (user(rng), START);
        for _ in 0..EVENTS {
            at += random::step(rng, &before).max(0);
            twin.decide(&user, &before, at, random::cost(rng));
        }
        // Written down at this moment: what is gained from here on is gained under the new limits.
        twin.decide(&user, &before, at, 1);
        let left = twin.decide(&user, &before, at, 0).quota.expect("a quota");
        let field = if before.uses_bucket() { Field::BucketCapacity } else { Field::WindowLimit };
        let (old, new) = (left.limit, rng.random_range(1..400));
        part.set_number(field, new as f64).expect("in range");
        let Ok(after) = Policy::compile(&part) else { return Ok(()) };
        let now = twin.decide(&user, &after, at, 0).quota.expect("a quota");
        if before.uses_bucket() {
            prop_assert_eq!(now.remaining, left.remaining.min(new), "tokens are kept, cut to a smaller capacity");
        } else {
            let used = old - left.remaining.min(old);
            prop_assert!(now.remaining <= new.saturating_sub(used), "entries are kept: {now:?} after {left:?}");
        }
        Ok(())
    });
}
