//! What an error of the client library means: to a caller, to the connection, and to whoever might send the command again.

use redis::{ErrorKind as Kind, RedisError, ServerErrorKind as Server};

use super::super::{ErrorKind, StoreError};

/// A command that failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) error: RedisError,
    /// It may have left this process.
    pub(super) sent: bool,
}

impl Failed {
    /// It never left.
    pub(super) const fn unsent(error: RedisError) -> Self {
        Self { error, sent: false }
    }

    /// It may have run.
    pub(super) const fn sent(error: RedisError) -> Self {
        Self { error, sent: true }
    }

    pub(super) fn timed_out(sent: bool) -> Self {
        Self { error: std::io::Error::from(std::io::ErrorKind::TimedOut).into(), sent }
    }

    /// What may be done about it.
    pub(super) fn remedy(&self) -> Remedy {
        match self.error.kind() {
            Kind::Server(Server::NoScript) => Remedy::SendWhole,
            Kind::Server(Server::Moved) => self.elsewhere(false),
            Kind::Server(Server::Ask) => self.elsewhere(true),
            Kind::Server(Server::TryAgain | Server::BusyLoading | Server::MasterDown | Server::ClusterDown | Server::ReadOnly) => {
                Remedy::Wait
            }
            _ => Remedy::None,
        }
    }

    fn elsewhere(&self, asking: bool) -> Remedy {
        match self.error.redirect_node() {
            Some((address, _)) => Remedy::Elsewhere { address: address.to_owned(), asking },
            None => Remedy::Wait,
        }
    }

    /// Whether another server may have the key by now.
    pub(super) fn is_of_the_server(&self) -> bool {
        matches!(
            self.error.kind(),
            Kind::Io
                | Kind::AuthenticationFailed
                | Kind::Server(Server::MasterDown | Server::ClusterDown | Server::ReadOnly | Server::Moved)
        )
    }
}

/// What may be done about a command that a server says it did not run. Nothing is done about any other.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// The server does not know the script: send its text.
    SendWhole,
    /// Another server has the key, for good or (`asking`) for this one question.
    Elsewhere { address: String, asking: bool },
    /// In a moment it may be another's turn, or this one's again.
    Wait,
    /// It may have run, or asking again is of no use.
    None,
}

/// An error as one of ours. Only a server's own word that it did not execute makes it `did_not_run`; or that it never left.
pub(super) fn store_error(failed: &Failed) -> StoreError {
    let mut error = by_kind(&failed.error);
    error.did_not_run |= !failed.sent;
    error
}

fn by_kind(error: &RedisError) -> StoreError {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An error as a server words it.
    fn said(text: &str) -> Failed {
        Failed::sent(
            redis::parse_redis_value(format!("-{text}\r\n").as_bytes()).and_then(redis::Value::extract_error).expect_err("an error"),
        )
    }

    #[track_caller]
    fn check(text: &str, remedy: Remedy, kind: ErrorKind, did_not_run: bool) {
        let failed = said(text);
        let error = store_error(&failed);
        assert_eq!((failed.remedy(), error.kind, error.did_not_run), (remedy, kind, did_not_run), "{text}");
    }

    #[test]
    fn what_did_not_run_may_be_sent_again() {
        let elsewhere = |asking| Remedy::Elsewhere { address: "10.0.0.7:7000".to_owned(), asking };
        check("NOSCRIPT No matching script", Remedy::SendWhole, ErrorKind::Unavailable, true);
        check("MOVED 42 10.0.0.7:7000", elsewhere(false), ErrorKind::Unavailable, true);
        check("ASK 42 10.0.0.7:7000", elsewhere(true), ErrorKind::Unavailable, true);
        for text in ["TRYAGAIN later", "LOADING data", "MASTERDOWN link", "CLUSTERDOWN hash slot", "READONLY You can't write"] {
            check(text, Remedy::Wait, ErrorKind::Unavailable, true);
        }
    }

    #[test]
    fn what_may_have_run_or_will_not_run_is_not_sent_again() {
        check("BUSY running a script", Remedy::None, ErrorKind::Unavailable, true);
        check("OOM command not allowed", Remedy::None, ErrorKind::Unavailable, true);
        check("NOPERM no permissions", Remedy::None, ErrorKind::Denied, true);
        check("WRONGPASS invalid", Remedy::None, ErrorKind::Denied, true);
        check("WRONGTYPE Operation against a key", Remedy::None, ErrorKind::WrongType, true);
        check("ERR anything else", Remedy::None, ErrorKind::Unexpected, false);
        for failed in [Failed::timed_out(true), Failed::sent(std::io::Error::from(std::io::ErrorKind::BrokenPipe).into())] {
            assert!(failed.remedy() == Remedy::None && !store_error(&failed).did_not_run && is_broken(&failed.error), "{failed:?}");
        }
        assert!(store_error(&Failed::timed_out(false)).did_not_run, "it never left");
    }
}
