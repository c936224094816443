//! What the load tests are made of. A library so that the tests of weir can use it too.

pub mod access_log;
pub mod plot;
