//! The sliding window: what was admitted during the last `window_seconds`. Twin: `lua/window.lua`.
//!
//! Two ways to remember, each in a file of its own, with the same four questions: what is [`used`](Used), how long until
//! a cost fits, when is the newest gone, and, once all is checked, write it down.

mod exact;
mod sliced;

pub use exact::ExactWindow;
pub use sliced::SlicedWindow;

use super::decision::Wait;
use super::{Micros, Policy, Precision, Units};

/// What a window says at one moment, read without changing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Used {
    /// Sum of the costs that count.
    pub units: Units,
    /// How long until the asked cost fits; [`Wait::NONE`] when it does.
    pub wait: Wait,
    /// When the newest that counts will have left, µs; nothing when nothing counts.
    pub empty_at: Option<Micros>,
}

/// The windows of one subject: one per kind and slice width.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Windows {
    exact: ExactWindow,
    sliced: Vec<SlicedWindow>,
}

/// How many slice widths of one subject are remembered at once. A width is only ever left behind by a change of the
/// policy, and is empty a window later; this bounds what a program that changes it all the time can pile up.
const MOST_WIDTHS: usize = 8;

impl Windows {
    /// The policy's own window, read at `now`.
    pub(super) fn used(&self, policy: &Policy, now: Micros, cost: Units) -> Used {
        match policy.precision {
            Precision::Exact => self.exact.used(policy, now, cost),
            Precision::Sliced { width } => match self.sliced.iter().find(|sliced| sliced.width() == width) {
                Some(sliced) => sliced.used(policy, now, cost),
                None => SlicedWindow::new(width).used(policy, now, cost),
            },
        }
    }

    /// Drops what no longer counts from the policy's own window, and enters `admitted` if it is not 0.
    pub(super) fn write(&mut self, policy: &Policy, now: Micros, admitted: Units) {
        match policy.precision {
            Precision::Exact => self.exact.write(policy, now, admitted),
            Precision::Sliced { width } => match self.sliced.iter_mut().find(|sliced| sliced.width() == width) {
                Some(sliced) => sliced.write(policy, now, admitted),
                None if admitted > 0 => {
                    let mut sliced = SlicedWindow::new(width);
                    sliced.write(policy, now, admitted);
                    if self.sliced.len() == MOST_WIDTHS {
                        self.sliced.remove(0);
                    }
                    self.sliced.push(sliced);
                }
                None => {}
            },
        }
    }

    /// Drops from the policy's own window what lies after `now`: the clock was corrected.
    pub(super) fn drop_after(&mut self, policy: &Policy, now: Micros) {
        match policy.precision {
            Precision::Exact => self.exact.drop_after(now),
            Precision::Sliced { width } => {
                if let Some(sliced) = self.sliced.iter_mut().find(|sliced| sliced.width() == width) {
                    sliced.drop_after(now);
                }
            }
        }
    }

    /// When the newest that any of the windows remembers will have left, taking each to be as long as the policy's, µs.
    pub(super) fn empty_at(&self, policy: &Policy) -> Micros {
        let sliced = self.sliced.iter().map(|sliced| sliced.empty_at(policy));
        sliced.chain([self.exact.empty_at(policy)]).flatten().max().unwrap_or(0)
    }

    /// How many admissions or slices are remembered in all.
    pub(super) fn len(&self) -> usize {
        self.exact.len() + self.sliced.iter().map(SlicedWindow::len).sum::<usize>()
    }
}
