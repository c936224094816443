//! The service over real TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod admin;
mod answers;
mod batch;
mod fleet;
mod forward_auth;
mod hygiene;
mod identity;
mod limits_file;
mod load;
mod operating;
#[path = "../support/mod.rs"]
mod support;
mod waits;
