//! The sum of what was admitted in each slice of time. Twin: `lua/window/sliced.lua`.
//!
//! A slice counts whole until all of it lies outside the window: never more than the limit is admitted in any window, and
//! at most one slice's worth less.

use std::collections::VecDeque;

use super::Used;
use crate::limit::decision::Wait;
use crate::limit::{Micros, Policy, Units};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Slice {
    number: i64,
    cost: Units,
}

/// Slices of one width, in order, without the empty ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicedWindow {
    width: Micros,
    slices: VecDeque<Slice>,
    total: Units,
}

impl SlicedWindow {
    /// An empty window whose slices are `width` µs long.
    #[must_use]
    pub const fn new(width: Micros) -> Self {
        Self { width, slices: VecDeque::new(), total: 0 }
    }

    /// Length of a slice, µs.
    #[must_use]
    pub const fn width(&self) -> Micros {
        self.width
    }

    /// How many slices are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slices.len()
    }

    /// Whether nothing is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slices.is_empty()
    }

    pub(super) fn used(&self, policy: &Policy, now: Micros, cost: Units) -> Used {
        let first = self.first_counted(policy, now);
        let mut counted = self.slices.iter().skip_while(|slice| slice.number < first).copied().peekable();
        let units = if self.slices.front().is_none_or(|oldest| oldest.number >= first) {
            self.total
        } else {
            counted.clone().map(|slice| slice.cost).sum()
        };
        let empty_at = counted.peek().and_then(|_| self.empty_at(policy));
        Used { units, wait: self.wait(counted, units, policy, now, cost), empty_at }
    }

    pub(super) fn write(&mut self, policy: &Policy, now: Micros, admitted: Units) {
        let first = self.first_counted(policy, now);
        while let Some(oldest) = self.slices.front()
            && oldest.number < first
        {
            self.total -= oldest.cost;
            self.slices.pop_front();
        }
        if admitted == 0 {
            return;
        }
        let number = now.div_euclid(self.width);
        let later = self.slices.iter().rev().take_while(|slice| slice.number > number).count();
        let place = self.slices.len() - later;
        match place.checked_sub(1).and_then(|last| self.slices.get_mut(last)) {
            Some(slice) if slice.number == number => slice.cost += admitted,
            _ => self.slices.insert(place, Slice { number, cost: admitted }),
        }
        self.total += admitted;
    }

    pub(super) fn drop_after(&mut self, now: Micros) {
        let number = now.div_euclid(self.width);
        while let Some(newest) = self.slices.back()
            && newest.number > number
        {
            self.total -= newest.cost;
            self.slices.pop_back();
        }
    }

    /// When the newest slice will have left, µs; nothing when nothing is remembered.
    pub(super) fn empty_at(&self, policy: &Policy) -> Option<Micros> {
        self.slices.back().map(|newest| self.leaves_at(newest.number, policy))
    }

    /// The number of the oldest slice that still counts.
    const fn first_counted(&self, policy: &Policy, now: Micros) -> i64 {
        (now - policy.window).div_euclid(self.width)
    }

    /// When slice `number` has left the window.
    const fn leaves_at(&self, number: i64, policy: &Policy) -> Micros {
        (number + 1) * self.width + policy.window
    }

    fn wait(&self, counted: impl Iterator<Item = Slice>, used: Units, policy: &Policy, now: Micros, cost: Units) -> Wait {
        if used + cost <= policy.window_limit {
            return Wait::NONE;
        }
        if cost > policy.window_limit {
            return Wait::Never;
        }
        let mut left = used;
        for slice in counted {
            left -= slice.cost;
            if left + cost <= policy.window_limit {
                return Wait::For(self.leaves_at(slice.number, policy) - now);
            }
        }
        Wait::NONE
    }
}
