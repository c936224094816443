//! What a process remembers of a subject that was refused, to refuse it again without asking the store. Twin of the hand-on in
//! `lua/state.lua` and `lua/load.lua`.
//!
//! A refusal charges nothing: all it changes is the refilled bucket, the load and the breaker. Until the first admission leaves the
//! window, the window stays as it is. So these few numbers are enough to decide like the store would, with the same function, for the
//! same cost and for peeks, until one of them could fit, the breaker opens or closes, or [`KEPT`] is over. Whatever a mirror cannot tell is
//! asked of the store, which is handed on what was answered here meanwhile: in one process the two together are the algorithm, to
//! the last digit. Of what other processes do, a mirror knows nothing for up to [`KEPT`]: they can only have taken what is refused here
//! already, or have opened the breaker, which may let the window decide in the bucket's place.

use super::decide::{Assessment, assess_with};
use super::never::never_fits;
use super::window::Used;
use super::{Breaker, Bucket, Decision, Load, Micros, Policy, Precision, State, US, Units, Wait};

/// The longest that a mirror answers, µs: what it saw is handed on by then.
pub const KEPT: Micros = US;

/// The numbers that the store tells with a refusal.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Refused {
    /// What the request asked for.
    pub cost: Units,
    /// When it was decided, µs on the store's clock; the subject's own time too.
    pub decided_at: Micros,
    /// What is in the bucket.
    pub tokens: f64,
    /// The load, this request included.
    pub load: Load,
    /// Open before this time, µs.
    pub open_until: Micros,
    /// The breaker was open for the decision.
    pub breaker_open: bool,
    /// Sum of the costs in the window, if that had to be known.
    pub used: Units,
    /// How long until the cost fits into the window.
    pub window_wait: Wait,
    /// When the newest admission will have left the window; nothing when it is empty, or nobody had to know.
    pub empty_at: Option<Micros>,
    /// When the first admission leaves the window; never before.
    pub leaves_at: Micros,
}

/// What is handed on to the store with the next question.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HandedOn {
    /// The subject's own time when the mirror was made: if the store still has it, nobody else has written.
    pub base: Micros,
    /// The bucket after the last answer.
    pub bucket: Bucket,
    /// The load after the last answer.
    pub load: Load,
    /// Open before this time, µs.
    pub open_until: Micros,
    /// The part of the load that was seen here, in the seconds of `load`.
    pub seen: Load,
    /// What lies at or before this is out of the exact window, µs; nothing when the policy has none.
    pub dropped: Option<Micros>,
}

/// A subject that was refused a moment ago.
#[derive(Debug, Clone)]
pub struct Mirror {
    refused: Refused,
    state: State,
    seen: Load,
    dropped: Option<Micros>,
    answered: bool,
}

impl Mirror {
    /// A mirror of what the store has after this refusal.
    #[must_use]
    pub fn new(refused: Refused) -> Self {
        let bucket = Bucket { tokens: refused.tokens, refilled_at: refused.decided_at };
        let breaker = Breaker { open_until: refused.open_until };
        let state = State { bucket: Some(bucket), load: Some(refused.load), breaker, ..State::default() };
        Self { refused, state, seen: Load::none(refused.decided_at), dropped: None, answered: false }
    }

    /// When the store decided, µs.
    #[must_use]
    pub const fn made_at(&self) -> Micros {
        self.refused.decided_at
    }

    /// The decision on a request at `now` (µs, the store's clock), if it is another refusal, or a peek; nothing when the store must be asked.
    pub fn decide(&mut self, policy: &Policy, now: Micros, cost: Units) -> Option<Decision> {
        if now < self.last() || now >= self.refused.leaves_at.min(self.refused.decided_at + KEPT) || never_fits(policy, cost) {
            return None;
        }
        let used = if policy.uses_window() { Some(self.used(policy, now, cost)?) } else { None };
        let assessed = assess_with(policy, &self.state, now, cost, |_, _| used);
        if assessed.breaker_is_open() != self.refused.breaker_open {
            return None;
        }
        let refusal = assessed.refusal(policy);
        if cost > 0 {
            refusal?;
            self.note(&assessed, policy, now, cost);
        }
        Some(assessed.answer(policy, refusal))
    }

    /// What the store does not know yet, if there is anything.
    #[must_use]
    pub fn handed_on(&self) -> Option<HandedOn> {
        let (bucket, load) = self.state.bucket.zip(self.state.load).filter(|_| self.answered)?;
        Some(HandedOn {
            base: self.refused.decided_at,
            bucket,
            load,
            open_until: self.state.breaker.open_until,
            seen: self.seen,
            dropped: self.dropped,
        })
    }

    fn last(&self) -> Micros {
        self.state.bucket.map_or(self.refused.decided_at, |bucket| bucket.refilled_at)
    }

    fn note(&mut self, assessed: &Assessment, policy: &Policy, now: Micros, cost: Units) {
        self.state.commit_but_window(policy, assessed, 0);
        self.seen = self.seen.rolled(now).plus(cost);
        self.dropped = (policy.uses_window() && policy.precision() == Precision::Exact).then(|| now - policy.window());
        self.answered = true;
    }

    /// The window at `now`: as it was, but for the time that has passed.
    fn used(&self, policy: &Policy, now: Micros, cost: Units) -> Option<Used> {
        let Refused { used: units, window_wait, empty_at, decided_at, .. } = self.refused;
        let wait = match window_wait {
            _ if cost == 0 && units <= policy.window_limit() => Wait::NONE,
            _ if cost != self.refused.cost => return None,
            Wait::For(wait) if wait > 0 => Wait::For(wait - (now - decided_at)),
            wait => wait,
        };
        Some(Used { units, wait, empty_at })
    }
}
