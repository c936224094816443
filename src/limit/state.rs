//! What is known of one subject, and what time it is for it. Twin: `lua/state.lua`.

use super::window::Windows;
use super::{Breaker, Bucket, Load, Micros, Policy, US};

/// All that is known of one subject. Default is a subject never seen: full bucket, empty window, no load, closed breaker.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    pub(super) bucket: Option<Bucket>,
    pub(super) load: Option<Load>,
    pub(super) breaker: Breaker,
    pub(super) windows: Windows,
}

/// What time it is for a subject whose own last time may lie ahead of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// The time to decide for, never before the subject's last.
    pub now: Micros,
    /// How far the clock lies behind that.
    pub lacking: Micros,
    /// The clock was corrected: what lies after `now` is dropped.
    pub corrected: bool,
}

impl State {
    /// More than a second ahead of the clock means that the clock was corrected; up to a second, that it stepped back and
    /// stands still for this subject until it has caught up.
    pub(super) fn moment(&self, clock: Micros) -> Moment {
        let last = self.bucket.map_or(clock, |bucket| bucket.refilled_at);
        let corrected = last > clock + US;
        let now = if corrected { clock } else { clock.max(last) };
        Moment { now, lacking: now - clock, corrected }
    }

    /// When the state will equal no state, if nobody asks and the policy stays, µs: the time from which it may be forgotten.
    #[must_use]
    pub fn as_new_at(&self, policy: &Policy) -> Micros {
        let Some(bucket) = self.bucket else { return 0 };
        let now = bucket.refilled_at;
        let load_gone = (self.load.map_or(0, |load| load.second) + 2) * US;
        (now + bucket.reset_after(policy)).max(load_gone).max(self.breaker.open_until).max(self.windows.empty_at(policy))
    }

    /// How many admissions or slices the windows of this subject remember.
    #[must_use]
    pub fn window_entries(&self) -> usize {
        self.windows.len()
    }
}
