//! The numbers that apply to a subject: what may be written ([`Part`]) and what may be relied on ([`Policy`]). Twin of what the
//! script unpacks: `lua/policy.lua`.
//!
//! A policy is put together from layers (built-in, defaults, tier, override, …), each a [`Part`] that sets some fields and
//! leaves the others to the layer below. A part checks each value on its own as it is set; [`Policy::compile`] merges nothing:
//! it takes the merged part, fills in what depends on other fields, and checks what only the whole can show.

use std::fmt;

use super::{Micros, US, Units};

mod field;
pub use field::{Field, Kind, Part, Problem, Value};

/// The largest `window_limit` whose admissions are remembered one by one.
pub(super) const MAX_EXACT_LIMIT: Units = 10_000;
/// The longest time a bucket may take to fill and a window may last: 30 days.
const LONGEST_SECONDS: f64 = 2_592_000.0;

/// Which limits apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// The bucket; while the breaker is open the window too.
    Hybrid,
    /// The bucket alone.
    TokenBucket,
    /// The window alone.
    SlidingWindow,
}

/// How the window remembers what was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Precision {
    /// Each admission with its time.
    Exact,
    /// The sum of each slice of time.
    Sliced {
        /// Length of one slice, µs, at least 1.
        width: Micros,
    },
}

/// What applies while the breaker is open (`hybrid` only).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhileOpen {
    /// Bucket and window.
    Both,
    /// The window instead of the bucket.
    Window,
}

/// What is done with a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It holds.
    Enforce,
    /// It is made and counted; nobody is refused.
    Shadow,
    /// All are refused, without state.
    Block,
    /// All are admitted, without state.
    Bypass,
}

/// A checked policy. Every value lies within the ranges of [`Field::kind`]; derived values are worked out once, here.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub(super) tokens_per_second: f64,
    pub(super) bucket_capacity: Units,
    pub(super) window: Micros,
    pub(super) window_limit: Units,
    pub(super) algorithm: Algorithm,
    pub(super) precision: Precision,
    pub(super) trip_point: f64,
    pub(super) cooldown: Micros,
    pub(super) while_open: WhileOpen,
    pub(super) mode: Mode,
    window_limit_is_derived: bool,
}

impl Default for Policy {
    /// The built-in policy: 2 tokens a second up to 100, and 200 a minute while the breaker is open.
    fn default() -> Self {
        Self::compile(&Part::default()).unwrap_or_else(|problems| unreachable!("the built-in policy: {problems:?}"))
    }
}

impl Policy {
    /// Makes a policy of the merged layers; a field that no layer set has its built-in default.
    ///
    /// # Errors
    /// Every problem that only the whole can show: a bucket that takes more than 30 days to fill, an exact window above
    /// 10 000.
    pub fn compile(merged: &Part) -> Result<Self, Vec<Problem>> {
        let whole_policy = merged.completed();
        // Complete: each field has a value of its own kind.
        let number = |field: Field| whole_policy.get(field).and_then(Value::number).unwrap_or_default();
        let word = |field: Field| whole_policy.get(field).and_then(Value::word).unwrap_or_default();

        let tokens_per_second = number(Field::TokensPerSecond);
        let bucket_capacity = number(Field::BucketCapacity);
        let window_limit = whole(number(Field::WindowLimit));
        let window = micros(number(Field::WindowSeconds));
        let precision = match word(Field::WindowPrecision) {
            "exact" => Precision::Exact,
            _ => Precision::Sliced { width: micros_ceil(window, number(Field::WindowSlices)) },
        };

        let mut problems = Vec::new();
        if bucket_capacity / tokens_per_second > LONGEST_SECONDS {
            problems.push(Problem::new(Field::BucketCapacity, bucket_capacity, "at most 30 days of tokens_per_second").with_hint(format!(
                "at {tokens_per_second} tokens a second the bucket would take {:.0} s to fill; the most is {LONGEST_SECONDS:.0} s",
                bucket_capacity / tokens_per_second
            )));
        }
        if precision == Precision::Exact && window_limit > MAX_EXACT_LIMIT {
            problems.push(
                Problem::new(Field::WindowPrecision, "exact", format!("sliced, as window_limit is {window_limit}"))
                    .with_hint(format!("an exact window remembers every admission and takes a window_limit of at most {MAX_EXACT_LIMIT}")),
            );
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        Ok(Self {
            tokens_per_second,
            bucket_capacity: whole(bucket_capacity),
            window,
            window_limit,
            algorithm: match word(Field::Algorithm) {
                "token_bucket" => Algorithm::TokenBucket,
                "sliding_window" => Algorithm::SlidingWindow,
                _ => Algorithm::Hybrid,
            },
            precision,
            trip_point: number(Field::BreakerRatio) * number(Field::BreakerThreshold),
            cooldown: micros(number(Field::BreakerCooldownSeconds)),
            while_open: if word(Field::WhileOpen) == "window" { WhileOpen::Window } else { WhileOpen::Both },
            mode: match word(Field::Mode) {
                "shadow" => Mode::Shadow,
                "block" => Mode::Block,
                "bypass" => Mode::Bypass,
                _ => Mode::Enforce,
            },
            window_limit_is_derived: merged.get(Field::WindowLimit).is_none(),
        })
    }

    /// Tokens a second that the bucket gains.
    #[must_use]
    pub const fn tokens_per_second(&self) -> f64 {
        self.tokens_per_second
    }

    /// The most the bucket holds.
    #[must_use]
    pub const fn bucket_capacity(&self) -> Units {
        self.bucket_capacity
    }

    /// Length of the window, µs.
    #[must_use]
    pub const fn window(&self) -> Micros {
        self.window
    }

    /// The most that is admitted within one window.
    #[must_use]
    pub const fn window_limit(&self) -> Units {
        self.window_limit
    }

    /// Which limits apply.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How the window remembers.
    #[must_use]
    pub const fn precision(&self) -> Precision {
        self.precision
    }

    /// The load, units a second, above which the breaker opens; 0 keeps it open.
    #[must_use]
    pub const fn trip_point(&self) -> f64 {
        self.trip_point
    }

    /// How long the breaker stays open after the load was last above the trip point, µs.
    #[must_use]
    pub const fn cooldown(&self) -> Micros {
        self.cooldown
    }

    /// What applies while the breaker is open.
    #[must_use]
    pub const fn while_open(&self) -> WhileOpen {
        self.while_open
    }

    /// What is done with a decision.
    #[must_use]
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Time that an empty bucket needs to be full, µs, rounded up.
    #[must_use]
    pub fn fill_time(&self) -> Micros {
        span((self.bucket_capacity as f64 * US as f64 / self.tokens_per_second).ceil())
    }

    /// Whether the bucket can ever decide under this policy.
    #[must_use]
    pub fn uses_bucket(&self) -> bool {
        self.algorithm != Algorithm::SlidingWindow
    }

    /// Whether the window can ever decide under this policy.
    #[must_use]
    pub fn uses_window(&self) -> bool {
        self.algorithm != Algorithm::TokenBucket
    }

    /// The share of one of `processes` that decide on their own: together they stay near the limit. Whole limits are rounded down, and are at least 1.
    #[must_use]
    pub fn divided(&self, processes: u32) -> Self {
        let share = |limit: Units| (limit / Units::from(processes.max(1))).max(1);
        Self {
            tokens_per_second: self.tokens_per_second / f64::from(processes.max(1)),
            bucket_capacity: share(self.bucket_capacity),
            window_limit: share(self.window_limit),
            trip_point: self.trip_point / f64::from(processes.max(1)),
            ..self.clone()
        }
    }

    /// What is allowed but not what an operator would expect.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let promised = self.tokens_per_second * (self.window as f64 / US as f64);
        let mut warnings = Vec::new();
        if self.algorithm == Algorithm::Hybrid && !self.window_limit_is_derived && (self.window_limit as f64) < promised {
            warnings.push(Warning::WindowBelowRate { window_limit: self.window_limit, promised });
        }
        warnings
    }
}

/// Something allowed that is worth a word to whoever wrote it.
#[derive(Debug, Clone, PartialEq)]
pub enum Warning {
    /// A storm would get less than a calm user is promised.
    WindowBelowRate {
        /// The limit as written.
        window_limit: Units,
        /// `tokens_per_second` × `window_seconds`.
        promised: f64,
    },
    /// Another window is used from now on, and it is empty.
    WindowStartsAnew,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WindowBelowRate { window_limit, promised } => write!(
                f,
                "window_limit {window_limit} is below tokens_per_second x window_seconds = {promised}: while the breaker is open a user gets less than a calm one is promised"
            ),
            Self::WindowStartsAnew => write!(f, "the window's precision or slice width changes: it starts anew, empty; the bucket goes on"),
        }
    }
}

/// Seconds as whole microseconds, rounded to the nearest.
fn micros(seconds: f64) -> Micros {
    span((seconds * US as f64 + 0.5).floor())
}

fn micros_ceil(window: Micros, slices: f64) -> Micros {
    span((window as f64 / slices).ceil())
}

/// A double that is known to be whole and within ±2⁵³.
#[expect(clippy::cast_possible_truncation, reason = "callers pass whole numbers within a double's exact range")]
pub(super) const fn span(value: f64) -> Micros {
    value as Micros
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and 0 … 1e9")]
const fn whole(value: f64) -> Units {
    value as Units
}

#[cfg(test)]
mod tests;
