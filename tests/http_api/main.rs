//! The service over real TCP.

mod answers;
mod batch;
mod hygiene;
mod load;
mod operating;
#[path = "../support/mod.rs"]
mod support;
