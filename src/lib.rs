//! Weir: a rate limiter for many instances together. May this user do this now, and if not, when?
//!
//! It reads as one sentence: a *subject* has a *policy*; a *store* keeps the subject's state; one pure function *decides*;
//! every door (JSON, forward-auth, middleware) translates to and from that *decision*. Everything else is an edge.
//!
//! # Layout
//!
//! - [`limit`]: decides. Pure: time and state are arguments.
//! - [`identity`]: who is asking. Pure.
//! - [`store`]: where state lives: this process's memory, or Redis (whose script in `lua/` is the twin of [`limit`]).
//! - [`config`]: `limit.yaml`, from text to something that may be relied on.
//! - [`limiter`]: the one path that every door uses: identity, policy, store, decision, metrics.
//! - [`http`], [`server`]: the service.
//! - [`middleware`]: the same inside somebody else's actix-web program.
//! - [`simulate`]: replays of traces and access logs.
//! - [`telemetry`]: logs and metrics.
//! - [`top`]: the busiest subjects of the last minutes.
//! - [`cli`]: the commands.
//! - [`clock`]: the only place that reads time.

pub mod cli;
pub mod clock;
pub mod config;
pub mod http;
pub mod identity;
pub mod limit;
pub mod limiter;
pub mod middleware;
pub mod overrides;
pub mod server;
pub mod simulate;
pub mod store;
pub mod telemetry;
pub mod top;

/// The version, and in a release build the commit it was made from: `0.1.0 (0123456789ab)`.
pub const VERSION: &str = env!("WEIR_VERSION");
