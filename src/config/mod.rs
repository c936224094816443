//! `limit.yaml`: what may be written (`raw`) is compiled into what may be relied on ([`Config`]), or into every mistake at once.
//!
//! Start, reload and `weir check-config` share [`load()`], so a file that one of them takes is taken by all. Everything in the
//! file is hot: there is no value that is "changed but not applied". What is fixed for the life of a process is a flag.
//!
//! - [`Config`] and its parts: the checked file. Pure.
//! - [`layers`]: which value wins, and where it comes from. Pure.
//! - [`load()`]: from a path to a [`Loaded`] or a [`LoadError`] with all mistakes.
//! - [`watch`]: puts a changed file in force.
//! - [`schema()`]: the file's JSON Schema, for editors.

mod compile;
mod json;
pub mod layers;
mod load;
mod model;
mod pattern;
mod raw;
mod schema;
pub mod watch;

pub use crate::identity::Settings as Identity;
pub use json::part_from_json;
pub use layers::{Layers, Overrides, Own, Source, Who};
pub use load::{LoadCause, LoadError, Loaded, load};
pub use model::{Anonymous, Config, OnFailure, Route, StoreSettings, Tier};
pub use pattern::Pattern;
pub use raw::Mistake;
pub use schema::schema;
