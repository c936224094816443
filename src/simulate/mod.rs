//! Replays traces and access logs without a service: who would have been refused, how often, and why. So a limit is tried on
//! yesterday's traffic before it is set.
//!
//! Input is read line by line, what is remembered is bounded, so memory does not depend on the length of a trace.

mod access_log;
mod lines;
mod replay;
mod report;
mod trace;

use crate::limit::{Micros, Part, Units};

pub use access_log::SubjectOf;
pub use lines::{InputError, Source};
pub use replay::{Decider, Outcome, Replay};
pub use report::{Report, UserReport};

/// One line of input that says something.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// When, µs.
    pub at: Micros,
    /// Who.
    pub user: String,
    /// What.
    pub what: What,
}

/// What happens in an event.
#[derive(Debug, Clone, PartialEq)]
pub enum What {
    /// The user asks for this much.
    Request(Units),
    /// The user's override from now on, in place of an earlier one.
    Policy(Part),
}

/// What comes out of the input.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// Something happened.
    Event(Event),
    /// From here on everything is new, and this lies over the config's defaults: a vector begins.
    Fresh(Part),
    /// This line says nothing that can be understood.
    Bad {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        why: String,
    },
}
