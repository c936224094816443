//! The values that labels take: all from enums, but for the names of routes and tiers, which the file bounds.

use crate::limit::{Decision, Reason};

/// First digits of status codes.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// What came of a request, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Admitted,
    Refused,
    /// Admitted in shadow mode, and would have been refused.
    WouldRefuse,
}

impl Outcome {
    pub(super) const NAMES: [&str; 3] = ["admitted", "refused", "would_refuse"];

    pub(super) const fn of(decision: &Decision) -> Self {
        match (decision.admitted, decision.reason) {
            (true, None) => Self::Admitted,
            (false, _) => Self::Refused,
            (true, Some(_)) => Self::WouldRefuse,
        }
    }
}

/// How many values the label `reason` takes: every reason, and none.
pub(super) const REASONS: usize = Reason::ALL.len() + 1;

/// Every reason as a label, and last the one for none.
pub(super) fn reasons() -> [&'static str; REASONS] {
    let mut labels = ["none"; REASONS];
    for (label, reason) in labels.iter_mut().zip(Reason::ALL) {
        *label = reason.name();
    }
    labels
}

/// Where a reason stands in [`reasons`].
pub(super) fn place(reason: Option<Reason>) -> usize {
    reason.and_then(|reason| Reason::ALL.iter().position(|one| *one == reason)).unwrap_or(Reason::ALL.len())
}

/// What was asked over HTTP, as a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint {
    /// `/v1/check`.
    Check,
    /// `/v1/check/batch`.
    Batch,
    /// `/v1/auth` and everything below it.
    Auth,
    /// `/admin/…`.
    Admin,
    /// `/health/…`.
    Health,
    /// `/metrics`.
    Metrics,
    /// Everything else.
    Other,
}

impl Endpoint {
    /// Every endpoint.
    pub const ALL: [Self; 7] = [Self::Check, Self::Batch, Self::Auth, Self::Admin, Self::Health, Self::Metrics, Self::Other];

    /// Where a request for `path` goes.
    #[must_use]
    pub fn of(path: &str) -> Self {
        match path {
            "/v1/check" => Self::Check,
            "/v1/check/batch" => Self::Batch,
            "/v1/auth" => Self::Auth,
            "/health/live" | "/health/ready" => Self::Health,
            "/metrics" => Self::Metrics,
            _ if path.starts_with("/v1/auth/") => Self::Auth,
            _ if path.starts_with("/admin/") => Self::Admin,
            _ => Self::Other,
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Check => "check",
            Self::Batch => "batch",
            Self::Auth => "auth",
            Self::Admin => "admin",
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::Other => "other",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_numbered_as_they_are_listed() {
        for (index, endpoint) in Endpoint::ALL.into_iter().enumerate() {
            assert_eq!(endpoint as usize, index);
        }
    }

    #[test]
    fn every_path_is_one_of_the_endpoints() {
        for (path, endpoint) in [
            ("/v1/check", Endpoint::Check),
            ("/v1/auth", Endpoint::Auth),
            ("/v1/auth/any/thing", Endpoint::Auth),
            ("/v1/authentic", Endpoint::Other),
            ("/admin/rate-limit/config", Endpoint::Admin),
            ("/", Endpoint::Other),
        ] {
            assert_eq!(Endpoint::of(path), endpoint, "{path}");
        }
    }
}
