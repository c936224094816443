//! Replays of traces and access logs: who would have been refused, how often and why.
//!
//! A trace is read line by line (`lines`) and turned into `Step`s (`trace`, `access_log`), which [`replay()`] puts to a store, one
//! after the other and each at its own time. What is remembered does not grow with the length of the trace: a line is at most so
//! long, the lines of an access log are sorted within a bounded buffer (`order`), the report counts a bounded number of users
//! one by one, and a store is bounded by itself.
//!
//! Nothing here opens files or prints: the command line does.

mod access_log;
mod input;
mod lines;
mod order;
mod replay;
mod report;
mod trace;

pub use access_log::SubjectFrom;
pub use input::open;
pub use lines::{BadLine, BadLines};
pub use order::LINES_HELD;
pub use replay::{Backend, Error, OnDecision, Options, replay};
pub use report::{MAX_COUNTED_USERS, Report, Tally};

use crate::identity::Subject;
use crate::limit::{Micros, Part, Units};

/// What a trace says, one thing at a time.
#[derive(Debug)]
enum Step {
    /// A request.
    Request {
        /// When, µs since the Unix epoch.
        at: Micros,
        /// Who.
        subject: Subject,
        /// Of what cost.
        cost: Units,
    },
    /// This user's override from now on, in place of an earlier one.
    Override {
        /// Whose.
        subject: Subject,
        /// What it sets.
        part: Part,
    },
    /// From now on nothing has happened, and this lies over the configured policy.
    Begin(Part),
}
