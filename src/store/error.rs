//! Why a store could not say.

use std::fmt;

/// What kept the store from answering, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The memory store holds as many subjects as it may, all of them active.
    Full,
    /// No answer within the deadline.
    Timeout,
    /// No connection, or it broke.
    Connection,
    /// The server is there but does not serve: loading, demoted, in a failover, busy, out of memory.
    Unavailable,
    /// The server refused the credentials or the command.
    Denied,
    /// The key holds another type than it should.
    WrongType,
    /// The server answered with something that is no answer to this.
    Unexpected,
}

impl ErrorKind {
    /// Every kind.
    pub const ALL: [Self; 7] =
        [Self::Full, Self::Timeout, Self::Connection, Self::Unavailable, Self::Denied, Self::WrongType, Self::Unexpected];

    /// The word for it in logs and labels.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Timeout => "timeout",
            Self::Connection => "connection",
            Self::Unavailable => "unavailable",
            Self::Denied => "denied",
            Self::WrongType => "wrong_type",
            Self::Unexpected => "unexpected",
        }
    }
}

/// A store could not say.
#[derive(Debug, Clone)]
pub struct StoreError {
    /// What kept it.
    pub kind: ErrorKind,
    /// Whether it is sure that nothing was decided or charged, so that asking again is safe.
    pub did_not_run: bool,
    detail: String,
}

impl StoreError {
    /// An error after which the request may have been charged.
    pub fn new(kind: ErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, did_not_run: false, detail: detail.to_string() }
    }

    /// An error after which nothing was charged.
    pub fn not_run(kind: ErrorKind, detail: impl fmt::Display) -> Self {
        Self { kind, did_not_run: true, detail: detail.to_string() }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the store could not answer ({}): {}", self.kind.name(), self.detail)
    }
}

impl std::error::Error for StoreError {}
