//! What happens when Redis fails, on real servers behind a line that is spoilt. Counts and orders of magnitude are asserted, with ten
//! times slack; `make chaos` runs all of it for longer and prints the figures.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the figures, for whoever asks with --nocapture")]

#[path = "../support/mod.rs"]
mod support;

mod errors;
mod outage;
mod processes;
mod replies;
mod state;
