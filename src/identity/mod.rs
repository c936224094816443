//! Who is asking. Pure: what a door saw goes in, a [`Subject`] comes out.

mod subject;

pub use subject::{InvalidUserId, Subject};
