//! What several test files share. Each uses a part of it.
#![allow(dead_code, reason = "every test binary compiles all of it and uses a part")]
#![allow(missing_docs, clippy::must_use_candidate, reason = "test code: names say it")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(unreachable_pub, reason = "some test binaries have this as a module of a module")]
#![allow(clippy::large_enum_variant, reason = "a handful of them, in tests")]

pub mod cluster;
pub mod document;
pub mod fields;
pub mod policy;
pub mod proxy;
pub mod random;
pub mod redis;
pub mod rig;
pub mod server;
pub mod shell;
pub mod twin;
pub mod vectors;
