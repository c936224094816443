//! What several test files share. Each uses a part of it.
#![allow(dead_code, reason = "every test binary compiles all of it and uses a part")]
#![allow(unreachable_pub, missing_docs, clippy::must_use_candidate, reason = "test code: names say it")]

pub mod policy;
pub mod random;
pub mod redis;
pub mod vectors;
