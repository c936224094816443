//! The fields of a policy as data: names, ranges and defaults in one table, which the file, the admin API, the stored
//! overrides and the documents all read.

use std::fmt;

use super::MAX_EXACT_LIMIT;

/// One field of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// Tokens a second that the bucket gains.
    TokensPerSecond,
    /// The most the bucket holds.
    BucketCapacity,
    /// Length of the window.
    WindowSeconds,
    /// The most that is admitted within one window.
    WindowLimit,
    /// Which limits apply.
    Algorithm,
    /// How the window remembers what was admitted.
    WindowPrecision,
    /// Into how many slices a sliced window is cut.
    WindowSlices,
    /// How many times its threshold the load must exceed for the breaker to open.
    BreakerRatio,
    /// The load, units a second, that is normal.
    BreakerThreshold,
    /// How long the breaker stays open after the load was last too high.
    BreakerCooldownSeconds,
    /// What applies while the breaker is open.
    WhileOpen,
    /// What is done with a decision.
    Mode,
}

/// What a field takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// A number from `min` to `max`.
    Number {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// A whole number from `min` to `max`.
    Whole {
        /// Smallest.
        min: f64,
        /// Largest.
        max: f64,
    },
    /// One of these words.
    Word(&'static [&'static str]),
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { min, max } => write!(f, "a number from {min} to {max}"),
            Self::Whole { min, max } => write!(f, "a whole number from {min} to {max}"),
            Self::Word(words) => write!(f, "one of {}", words.join(", ")),
        }
    }
}

impl Field {
    /// All fields, in the order in which people read them.
    pub const ALL: [Self; 12] = [
        Self::TokensPerSecond,
        Self::BucketCapacity,
        Self::WindowSeconds,
        Self::WindowLimit,
        Self::Algorithm,
        Self::WindowPrecision,
        Self::WindowSlices,
        Self::BreakerRatio,
        Self::BreakerThreshold,
        Self::BreakerCooldownSeconds,
        Self::WhileOpen,
        Self::Mode,
    ];

    /// The name in files, bodies, and stored hashes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens_per_second",
            Self::BucketCapacity => "bucket_capacity",
            Self::WindowSeconds => "window_seconds",
            Self::WindowLimit => "window_limit",
            Self::Algorithm => "algorithm",
            Self::WindowPrecision => "window_precision",
            Self::WindowSlices => "window_slices",
            Self::BreakerRatio => "breaker_ratio",
            Self::BreakerThreshold => "breaker_threshold",
            Self::BreakerCooldownSeconds => "breaker_cooldown_seconds",
            Self::WhileOpen => "while_open",
            Self::Mode => "mode",
        }
    }

    /// The field of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|field| field.name() == name)
    }

    /// What the field takes.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::TokensPerSecond => Kind::Number { min: 0.000_001, max: 1e9 },
            Self::BucketCapacity | Self::WindowLimit => Kind::Whole { min: 1.0, max: 1e9 },
            Self::WindowSeconds => Kind::Number { min: 0.1, max: 2_592_000.0 },
            Self::Algorithm => Kind::Word(&["hybrid", "token_bucket", "sliding_window"]),
            Self::WindowPrecision => Kind::Word(&["exact", "sliced"]),
            Self::WindowSlices => Kind::Whole { min: 1.0, max: 1_000.0 },
            Self::BreakerRatio => Kind::Number { min: 0.0, max: 1e6 },
            Self::BreakerThreshold => Kind::Number { min: 0.0, max: 1e9 },
            Self::BreakerCooldownSeconds => Kind::Number { min: 0.1, max: 3_600.0 },
            Self::WhileOpen => Kind::Word(&["both", "window"]),
            Self::Mode => Kind::Word(&["enforce", "shadow", "block", "bypass"]),
        }
    }

    /// One sentence for people, and the built-in default.
    #[must_use]
    pub const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::TokensPerSecond => ("tokens a second that the bucket gains", "2"),
            Self::BucketCapacity => ("the most the bucket holds: the largest burst", "100"),
            Self::WindowSeconds => ("length of the sliding window in seconds", "60"),
            Self::WindowLimit => {
                ("the most that is admitted within one window", "the larger of 200 and tokens_per_second x window_seconds")
            }
            Self::Algorithm => ("which limits apply", "hybrid"),
            Self::WindowPrecision => {
                ("how the window remembers: each admission, or sums by slice", "exact up to a window_limit of 10000, else sliced")
            }
            Self::WindowSlices => ("into how many slices a sliced window is cut", "60"),
            Self::BreakerRatio => ("the breaker opens above this many times breaker_threshold", "3"),
            Self::BreakerThreshold => ("normal load in units a second; 0 keeps the breaker open", "tokens_per_second"),
            Self::BreakerCooldownSeconds => ("how long the breaker stays open after the load was last too high", "10"),
            Self::WhileOpen => ("what applies while the breaker is open: bucket and window, or the window alone", "both"),
            Self::Mode => ("enforce; shadow (count, refuse nobody); block (refuse all); bypass (admit all)", "enforce"),
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A checked value of one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Value {
    /// A number, finite and within its field's range.
    Number(f64),
    /// One of its field's words.
    Word(&'static str),
}

impl Value {
    /// The number, if it is one.
    #[must_use]
    pub const fn number(self) -> Option<f64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Word(_) => None,
        }
    }

    /// The word, if it is one.
    #[must_use]
    pub const fn word(self) -> Option<&'static str> {
        match self {
            Self::Number(_) => None,
            Self::Word(word) => Some(word),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}

/// Some fields of a policy: one layer. Each value was checked on its own when it was set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Part {
    values: [Option<Value>; Field::ALL.len()],
}

impl Part {
    /// The value of `field`, if this layer sets it.
    #[must_use]
    pub const fn get(&self, field: Field) -> Option<Value> {
        self.values[field.index()]
    }

    /// Gives `field` back to the layer below.
    pub const fn unset(&mut self, field: Field) {
        self.values[field.index()] = None;
    }

    /// Whether this layer sets nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    /// What this layer sets, in the order of [`Field::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Field, Value)> + '_ {
        Field::ALL.into_iter().filter_map(|field| Some((field, self.get(field)?)))
    }

    /// Lays `above` over this one.
    pub fn lay_over(&mut self, above: &Self) {
        for (field, value) in above.iter() {
            self.values[field.index()] = Some(value);
        }
    }

    /// With a value for every field: what no layer set has its built-in default, which for some follows from other fields.
    #[must_use]
    pub fn completed(&self) -> Self {
        let mut part = self.clone();
        let rate = part.fill(Field::TokensPerSecond, Value::Number(2.0));
        part.fill(Field::BucketCapacity, Value::Number(100.0));
        let window = part.fill(Field::WindowSeconds, Value::Number(60.0));
        let needed = rate.number().zip(window.number()).map_or(0.0, |(rate, window)| (rate * window).ceil());
        let limit = part.fill(Field::WindowLimit, Value::Number(needed.clamp(200.0, 1e9)));
        let exact = limit.number().is_some_and(|limit| limit <= MAX_EXACT_LIMIT as f64);
        part.fill(Field::Algorithm, Value::Word("hybrid"));
        part.fill(Field::WindowPrecision, Value::Word(if exact { "exact" } else { "sliced" }));
        part.fill(Field::WindowSlices, Value::Number(60.0));
        part.fill(Field::BreakerRatio, Value::Number(3.0));
        part.fill(Field::BreakerThreshold, rate);
        part.fill(Field::BreakerCooldownSeconds, Value::Number(10.0));
        part.fill(Field::WhileOpen, Value::Word("both"));
        part.fill(Field::Mode, Value::Word("enforce"));
        part
    }

    /// The value of `field`, which is `default` from here on if it was not set.
    fn fill(&mut self, field: Field, default: Value) -> Value {
        *self.values[field.index()].get_or_insert(default)
    }

    /// Sets `field` to a number.
    ///
    /// # Errors
    /// When the field takes a word, or another range.
    pub fn set_number(&mut self, field: Field, number: f64) -> Result<(), Problem> {
        let fits = match field.kind() {
            Kind::Number { min, max } => (min..=max).contains(&number),
            Kind::Whole { min, max } => (min..=max).contains(&number) && number.fract() == 0.0,
            Kind::Word(_) => false,
        };
        if !fits {
            let problem = Problem::new(field, number, field.kind());
            let is_limit = matches!(field, Field::BucketCapacity | Field::WindowLimit | Field::TokensPerSecond);
            return Err(if number == 0.0 && is_limit { problem.with_hint("to refuse everything use mode: block") } else { problem });
        }
        self.values[field.index()] = Some(Value::Number(number));
        Ok(())
    }

    /// Sets `field` to a word.
    ///
    /// # Errors
    /// When the field takes a number, or other words.
    pub fn set_word(&mut self, field: Field, word: &str) -> Result<(), Problem> {
        let known = match field.kind() {
            Kind::Word(words) => words.iter().find(|known| **known == word),
            Kind::Number { .. } | Kind::Whole { .. } => None,
        };
        let known = known.ok_or_else(|| Problem::new(field, format!("{word:?}"), field.kind()))?;
        self.values[field.index()] = Some(Value::Word(known));
        Ok(())
    }

    /// Sets `field` from text as it is stored in a Redis hash or typed on a command line: a plain decimal number or a word.
    ///
    /// # Errors
    /// As [`Self::set_number`] and [`Self::set_word`]; also for `nan`, `inf`, hexadecimal, an empty text.
    pub fn set_text(&mut self, field: Field, text: &str) -> Result<(), Problem> {
        if matches!(field.kind(), Kind::Word(_)) {
            return self.set_word(field, text);
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E' | b'+' | b'-'));
        match text.parse::<f64>() {
            Ok(number) if plain && number.is_finite() => self.set_number(field, number),
            _ => Err(Problem::new(field, format!("{text:?}"), field.kind())),
        }
    }
}

/// Why a value is not taken: the field, what was written, what it takes, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} is not {expected}")]
pub struct Problem {
    /// The field.
    pub field: Field,
    /// What was written.
    pub value: String,
    /// What the field takes.
    pub expected: String,
    /// What to do, where that is not plain.
    pub hint: Option<String>,
}

impl Problem {
    pub(super) fn new(field: Field, value: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { field, value: shortened(&value.to_string()), expected: expected.to_string(), hint: None }
    }

    pub(super) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

/// What people wrote, cut to a length that is safe to show.
fn shortened(text: &str) -> String {
    const MOST: usize = 80;
    if text.chars().count() <= MOST {
        return text.to_owned();
    }
    text.chars().take(MOST).chain(['…']).collect()
}
