//! Request bodies: read to the end or given up, within a size and a time.
//!
//! A handler that answers without having read the body makes the server close the connection, which costs the client a new
//! one; so early answers read it first. What is too long is read on for a while and dropped.

use std::time::Duration;

use actix_web::web::{Bytes, BytesMut, Payload};
use futures_util::StreamExt;

use super::problem::Problem;

/// The longest body of a single question, bytes.
pub(super) const SINGLE: usize = 64 * 1024;
/// How much of a body that is too long is read on, so that the client gets to see the answer.
const DRAINED: usize = 1024 * 1024;
/// How long a client may take to send a body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Reads a body of at most `most` bytes.
pub(super) async fn read(payload: Payload, most: usize) -> Result<Bytes, Problem> {
    match tokio::time::timeout(PATIENCE, read_all(payload, most)).await {
        Ok(read) => read,
        Err(_) => Err(Problem::body_too_slow()),
    }
}

async fn read_all(mut payload: Payload, most: usize) -> Result<Bytes, Problem> {
    let mut body = BytesMut::new();
    let mut dropped = 0;
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|error| Problem::bad_request("body", &format!("the body broke off: {error}")))?;
        if dropped > 0 || body.len() + chunk.len() > most {
            dropped += chunk.len();
            if dropped > DRAINED {
                break;
            }
        } else {
            body.extend_from_slice(&chunk);
        }
    }
    if dropped > 0 { Err(Problem::body_too_long(most)) } else { Ok(body.freeze()) }
}
