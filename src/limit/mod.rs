//! Deciding, and nothing else: no clock, no I/O, no async, no logging, no serde.
//!
//! One decision is [`decide`]: a function of a [`Policy`], the [`State`] of one subject, the time and a cost. Everything
//! around this module only fetches those four and carries the [`Decision`] home. The same algorithm stands a second time in
//! `lua/`, file by file (`bucket.rs` beside `bucket.lua`, …), and a differential test holds the two equal to the last digit:
//! whoever changes one changes the other, with the same floating-point operations in the same order.
//!
//! Times are whole microseconds ([`Micros`]), costs and limits whole units ([`Units`]); tokens, rates and the load are doubles.

mod bucket;
mod decide;
mod decision;
mod load;
mod mirror;
mod never;
mod policy;
mod state;
mod window;

pub use bucket::Bucket;
pub use decide::{decide, without_limits, without_state};
pub use decision::{Decision, Limit, Quota, Reason, Violations, Wait};
pub use load::{Breaker, Load};
pub use mirror::{HandedOn, KEPT, Mirror, Refused};
pub use never::never_fits;
pub use policy::{Algorithm, Field, Kind, Mode, Part, Policy, Precision, Problem, Value, Warning, WhileOpen};
pub use state::State;
pub use window::{ExactWindow, SlicedWindow};

/// A point in time (since the Unix epoch) or a span, in whole microseconds.
pub type Micros = i64;

/// Whole units of cost, 0 … [`MAX_COST`].
pub type Units = u64;

/// The largest cost of one request.
pub const MAX_COST: Units = 1_000_000_000;

/// Microseconds in a second.
pub const US: Micros = 1_000_000;

/// How far tokens and the load may miss a whole number and still count as it. Doubles round; without this a client that waits
/// exactly as long as it was told would now and then be refused. What is granted so is carried as debt, never forgiven.
pub(crate) const TOLERANCE: f64 = 0.000_001;

/// The time of day at which a stored part is at the latest as good as new, plus this, is when a store may forget it.
pub const EXPIRY_MARGIN: Micros = 60 * US;
