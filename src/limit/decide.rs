//! One decision. Twin: `lua/decide.lua`.
//!
//! [`assess`] reads and works everything out; [`commit`](State::commit) writes. Nothing is written before everything has
//! been checked, so a refusal charges nothing and a peek, which is never committed, changes nothing.

use super::decision::{Decision, Limit, Quota, Reason, Violations, Wait};
use super::load::{Breaker, Load};
use super::never::{exceeded, never_fits};
use super::policy::{Algorithm, Mode, Policy, WhileOpen};
use super::state::{Moment, State};
use super::window::Used;
use super::{Bucket, Micros, Precision, US, Units};

/// Decides one request of `cost` at `now` and writes what follows from it into `state`. A cost of 0 is a peek: it asks
/// without taking and writes nothing.
///
/// `now` comes from one clock; when it steps back by up to a second it stands still for the subject, further back means
/// that the clock was corrected.
#[must_use]
pub fn decide(policy: &Policy, state: &mut State, now: Micros, cost: Units) -> Decision {
    if let Some(decision) = without_state(policy, now) {
        return decision;
    }
    if never_fits(policy, cost) {
        let peek = assess(policy, state, now, 0);
        let decision = peek.answer(policy, Some((Reason::CostExceedsLimit, Wait::Never)));
        return Decision { violations: exceeded(policy, cost), ..decision };
    }
    let assessed = assess(policy, state, now, cost);
    let refusal = assessed.refusal(policy);
    if cost > 0 {
        state.commit(policy, &assessed, if refusal.is_none() { cost } else { 0 });
    }
    assessed.answer(policy, refusal)
}

/// The answer of a policy that needs no state: `bypass` and `block`.
#[must_use]
pub const fn without_state(policy: &Policy, now: Micros) -> Option<Decision> {
    match policy.mode {
        Mode::Bypass => Some(Decision::without_state(None, now)),
        Mode::Block => Some(Decision::without_state(Some(Reason::Blocked), now)),
        Mode::Enforce | Mode::Shadow => None,
    }
}

/// The answer when nobody may ask the limits and all are to be admitted; a blocked user stays blocked.
#[must_use]
pub fn without_limits(policy: &Policy, now: Micros) -> Decision {
    without_state(policy, now).unwrap_or_else(|| Decision::without_state(None, now))
}

/// Everything that one decision needs to know, worked out without writing.
#[expect(clippy::struct_excessive_bools, reason = "independent answers to independent questions, not a state machine")]
pub(super) struct Assessment {
    now: Micros,
    /// How far the clock lies behind the subject's own last time.
    lacking: Micros,
    /// The clock was corrected: what lies after `now` is dropped.
    corrected: bool,
    cost: Units,
    bucket: Bucket,
    load: Load,
    breaker: Breaker,
    breaker_open: bool,
    breaker_opened: bool,
    bucket_wait: Wait,
    /// Nothing when the algorithm leaves windows alone.
    used: Option<Used>,
    bucket_counts: bool,
    window_counts: bool,
}

fn assess(policy: &Policy, state: &State, clock: Micros, cost: Units) -> Assessment {
    assess_with(policy, state, clock, cost, |now, corrected| {
        policy.uses_window().then(|| {
            if corrected {
                let mut windows = state.windows.clone();
                windows.drop_after(policy, now);
                windows.used(policy, now, cost)
            } else {
                state.windows.used(policy, now, cost)
            }
        })
    })
}

/// The same with a window that is read by `used`, which is told the time and whether the clock was corrected.
pub(super) fn assess_with(
    policy: &Policy,
    state: &State,
    clock: Micros,
    cost: Units,
    used: impl FnOnce(Micros, bool) -> Option<Used>,
) -> Assessment {
    let Moment { now, lacking, corrected } = state.moment(clock);
    let (mut load, mut breaker) = match state.load {
        Some(load) if !corrected => (load.rolled(now), state.breaker),
        _ => (Load::none(now), if corrected { Breaker::default() } else { state.breaker }),
    };
    let was_open = breaker.is_open(policy, now);
    if cost > 0 {
        if policy.trip_point > 0.0 && load.trips(policy, now) {
            breaker.open_until = now + policy.cooldown;
        }
        load = load.plus(cost);
    }
    let breaker_open = breaker.is_open(policy, now);

    let stored = state.bucket.unwrap_or(Bucket::full(policy, now));
    let bucket = Bucket { refilled_at: stored.refilled_at.min(now), ..stored }.refilled(policy, now);
    let window_counts = policy.algorithm == Algorithm::SlidingWindow || (policy.algorithm == Algorithm::Hybrid && breaker_open);
    let bucket_counts = match policy.algorithm {
        Algorithm::SlidingWindow => false,
        Algorithm::TokenBucket => true,
        Algorithm::Hybrid => !(breaker_open && policy.while_open == WhileOpen::Window),
    };
    Assessment {
        now,
        lacking,
        corrected,
        cost,
        bucket,
        load,
        breaker,
        breaker_open,
        breaker_opened: breaker_open && !was_open,
        bucket_wait: bucket.wait(policy, cost),
        used: used(now, corrected),
        bucket_counts,
        window_counts,
    }
}

impl Assessment {
    pub(super) const fn breaker_is_open(&self) -> bool {
        self.breaker_open
    }

    fn window_wait(&self) -> Wait {
        self.used.map_or(Wait::NONE, |used| used.wait)
    }

    fn violations(&self) -> Violations {
        Violations {
            bucket: self.bucket_counts && !self.bucket_wait.is_none(),
            window: self.window_counts && !self.window_wait().is_none(),
        }
    }

    /// Why and for how long it is refused, if it is.
    pub(super) fn refusal(&self, policy: &Policy) -> Option<(Reason, Wait)> {
        let violations = self.violations();
        let reason = if violations.bucket {
            Reason::Bucket
        } else if violations.window {
            Reason::Window
        } else {
            return None;
        };
        Some((reason, self.retry_after(policy)))
    }

    fn retry_after(&self, policy: &Policy) -> Wait {
        match policy.algorithm {
            Algorithm::TokenBucket => self.bucket_wait,
            Algorithm::SlidingWindow => self.window_wait(),
            Algorithm::Hybrid => self.hybrid_retry_after(policy),
        }
    }

    /// Both limits have room; or, earlier, the bucket has and the breaker has closed and would not open again; or, where
    /// the window replaces the bucket, the window has room before the breaker closes.
    fn hybrid_retry_after(&self, policy: &Policy) -> Wait {
        let window_wait = self.window_wait();
        let mut wait = self.bucket_wait.max(window_wait);
        if policy.trip_point > 0.0 {
            let mut early = self.bucket_wait.max(Wait::For(self.breaker.open_until - self.now));
            if let Wait::For(micros) = early
                && self.load.trips(policy, self.now + micros)
            {
                early = early.max(Wait::For((self.load.second + 2) * US - self.now));
            }
            wait = wait.min(early);
        }
        if policy.while_open == WhileOpen::Window {
            let before_it_closes = match window_wait {
                Wait::For(micros) => self.now + micros < self.breaker.open_until,
                Wait::Never => false,
            };
            if policy.trip_point == 0.0 || before_it_closes {
                wait = wait.min(window_wait);
            }
        }
        wait
    }

    pub(super) fn answer(&self, policy: &Policy, refusal: Option<(Reason, Wait)>) -> Decision {
        let charged = if refusal.is_none() { self.cost } else { 0 };
        let retry_after = match refusal {
            None => Wait::NONE,
            Some((_, Wait::For(micros))) if micros != 0 => Wait::For(micros + self.lacking),
            Some((_, wait)) => wait,
        };
        Decision {
            admitted: refusal.is_none() || policy.mode == Mode::Shadow,
            reason: refusal.map(|(reason, _)| reason),
            retry_after,
            quota: Some(self.quota(policy, charged)),
            breaker_open: self.breaker_open,
            breaker_opened: self.breaker_opened,
            violations: self.violations(),
            decided_at: self.now,
        }
    }

    /// Of what binds, after `charged`.
    fn quota(&self, policy: &Policy, charged: Units) -> Quota {
        let bucket = self.charged_bucket(policy, charged);
        let used = self.used.map_or(0, |used| used.units) + charged;
        let window_room = policy.window_limit.saturating_sub(used);
        let window_binds = self.window_counts && (!self.bucket_counts || window_room < bucket.room());
        let (binding, limit, remaining, reset_after) = if window_binds {
            let empty_at = self.used.and_then(|used| used.empty_at);
            let empty_at = if charged > 0 { empty_at.max(Some(self.leaves_at(policy))) } else { empty_at };
            (Limit::Window, policy.window_limit, window_room, empty_at.map_or(0, |at| at - self.now))
        } else {
            (Limit::Bucket, policy.bucket_capacity, bucket.room(), bucket.reset_after(policy))
        };
        Quota { binding, limit, remaining, reset_after: if reset_after == 0 { 0 } else { reset_after + self.lacking } }
    }

    /// When what is admitted now will have left the window.
    const fn leaves_at(&self, policy: &Policy) -> Micros {
        match policy.precision {
            Precision::Exact => self.now + policy.window,
            Precision::Sliced { width } => (self.now.div_euclid(width) + 1) * width + policy.window,
        }
    }

    /// The bucket after `charged`. Where it does not count it is emptied at most, never put into debt.
    fn charged_bucket(&self, policy: &Policy, charged: Units) -> Bucket {
        let tokens = self.bucket.tokens;
        let tokens = if charged == 0 || policy.algorithm == Algorithm::SlidingWindow {
            tokens
        } else if self.bucket_counts {
            tokens - charged as f64
        } else {
            tokens.min(0.0).max(tokens - charged as f64)
        };
        Bucket { tokens, ..self.bucket }
    }
}

impl State {
    /// Writes what follows from an assessed request that was admitted with `charged` units, or refused with 0.
    fn commit(&mut self, policy: &Policy, assessed: &Assessment, charged: Units) {
        self.commit_but_window(policy, assessed, charged);
        if policy.uses_window() {
            if assessed.corrected {
                self.windows.drop_after(policy, assessed.now);
            }
            self.windows.write(policy, assessed.now, charged);
        }
    }

    pub(super) fn commit_but_window(&mut self, policy: &Policy, assessed: &Assessment, charged: Units) {
        self.bucket = Some(assessed.charged_bucket(policy, charged));
        self.load = Some(assessed.load);
        self.breaker = assessed.breaker;
    }
}
