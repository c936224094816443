//! The gate before the shared subject of anonymous traffic.
//!
//! In a storm every anonymous request would ask the store about one and the same subject, only to learn that its breaker is open. While
//! a process knows that, it asks once a second, for all that arrived meanwhile together: that keeps the load known, and the
//! breaker closes in time when the storm is over.

use std::sync::{Mutex, PoisonError};

use crate::limit::{Micros, Policy, US, Units};

/// How often the shared subject is asked while its breaker is open, µs.
const ASK_EVERY: Micros = US;

#[derive(Default)]
struct State {
    /// The breaker is known to be open, and the next question is due then.
    ask_at: Option<Micros>,
    /// What arrived since the last question.
    arrived: Units,
}

/// What a process knows of the shared subject.
#[derive(Default)]
pub(super) struct Gate(Mutex<State>);

impl Gate {
    /// What to ask the shared subject for on behalf of a request of `cost` at `now`; nothing when it need not be asked.
    pub(super) fn cost_to_ask(&self, cost: Units, policy: &Policy, now: Micros) -> Option<Units> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(ask_at) = state.ask_at else { return Some(cost) };
        state.arrived = state.arrived.saturating_add(cost);
        // (A question due later than that is one of a clock that was set back since.)
        if now < ask_at && ask_at <= now + ASK_EVERY {
            return None;
        }
        state.ask_at = Some(now + ASK_EVERY);
        // A cost that can never fit would not be noted as load.
        let most = policy.bucket_capacity().min(policy.window_limit()).max(1);
        Some(std::mem::take(&mut state.arrived).min(most))
    }

    /// The shared subject was asked, and its breaker is open or closed.
    pub(super) fn learned(&self, breaker_open: bool, now: Micros) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !breaker_open {
            *state = State::default();
        } else if state.ask_at.is_none() {
            state.ask_at = Some(now + ASK_EVERY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn while_the_breaker_is_open_the_shared_subject_is_asked_once_a_second_for_all_that_arrived() {
        let (gate, policy) = (Gate::default(), Policy::default());
        assert_eq!(gate.cost_to_ask(1, &policy, 0), Some(1));
        gate.learned(true, 0);
        let asked: Vec<_> = (0..3_000).filter_map(|ms| gate.cost_to_ask(1, &policy, ms * 1_000)).collect();
        assert_eq!(asked, [100, 100], "a thousand arrivals each, as far as they could ever fit");
        gate.learned(false, 3 * US);
        assert_eq!(gate.cost_to_ask(1, &policy, 3 * US), Some(1));
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_keep_the_gate_shut() {
        let (gate, policy) = (Gate::default(), Policy::default());
        gate.learned(true, 1_000_000 * US);
        assert_eq!(gate.cost_to_ask(1, &policy, 5 * US), Some(1));
    }
}
