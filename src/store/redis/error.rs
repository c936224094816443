//! What an error of the client library means to a caller.

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind as Server};

use super::super::{ErrorKind, StoreError};

/// An error as one of ours. Only a server's own word that it did not execute makes it `did_not_run`.
pub(super) fn store_error(error: &RedisError) -> StoreError {
    match error.kind() {
        Kind::Server(
            Server::BusyLoading
            | Server::ClusterDown
            | Server::MasterDown
            | Server::ReadOnly
            | Server::TryAgain
            | Server::Moved
            | Server::Ask
            | Server::NoScript,
        ) => StoreError::not_run(ErrorKind::Unavailable, error),
        Kind::Server(Server::NoPerm) | Kind::AuthenticationFailed | Kind::InvalidClientConfig => {
            StoreError::not_run(ErrorKind::Denied, error)
        }
        Kind::Server(_) | Kind::Extension => by_code(error),
        Kind::Io if error.is_timeout() => StoreError::new(ErrorKind::Timeout, error),
        Kind::Io => StoreError::new(ErrorKind::Connection, error),
        _ => StoreError::new(ErrorKind::Unexpected, error),
    }
}

/// Errors that the library knows by their code only.
fn by_code(error: &RedisError) -> StoreError {
    match error.code() {
        // Out of memory is said before the first write of a script.
        Some("BUSY" | "OOM" | "MISCONF" | "NOREPLICAS" | "UNBLOCKED") => StoreError::not_run(ErrorKind::Unavailable, error),
        Some("NOAUTH" | "WRONGPASS") => StoreError::not_run(ErrorKind::Denied, error),
        Some("WRONGTYPE") => StoreError::not_run(ErrorKind::WrongType, error),
        _ => StoreError::new(ErrorKind::Unexpected, error),
    }
}

/// Whether the connection is of no more use: it broke, it is silent, or its server no longer serves.
pub(super) fn is_broken(error: &RedisError) -> bool {
    match error.kind() {
        Kind::Io | Kind::Parse | Kind::AuthenticationFailed | Kind::Server(Server::ReadOnly | Server::MasterDown) => true,
        _ => matches!(error.code(), Some("NOAUTH" | "WRONGPASS")),
    }
}
