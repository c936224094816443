//! The headers of an answer: functions of the decision and its policy, without clock and without a second look at the store.
//!
//! Three families, each of which an operator may leave out: `standard` (`RateLimit-Policy` and `RateLimit`, structured fields of
//! draft-ietf-httpapi-ratelimit-headers), `legacy` (`X-RateLimit-*`, which most clients know), and `hints` (`retry-after-ms` and
//! `x-should-retry`, which the clients of LLM providers honour). `Retry-After` is plain HTTP and always there.

use std::fmt::Write as _;
use std::str::FromStr;

use actix_web::http::header::{HeaderName, HeaderValue, RETRY_AFTER};

use crate::limit::{Decision, Limit, Micros, Policy, Reason, US, Wait};

/// The longest wait, µs, for which a client should retry by itself.
const LONGEST_PATIENCE: Micros = 60 * US;

const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");
const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const X_SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// Every header that an answer may carry beyond HTTP's own: what a page on another origin is let see.
pub const EXPOSED: [HeaderName; 10] = [
    RATELIMIT_POLICY,
    RATELIMIT,
    X_RATELIMIT_LIMIT,
    X_RATELIMIT_REMAINING,
    X_RATELIMIT_RESET,
    RETRY_AFTER,
    RETRY_AFTER_MS,
    X_SHOULD_RETRY,
    HeaderName::from_static("x-request-id"),
    HeaderName::from_static("x-ratelimit-degraded"),
];

/// Which families of headers are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    /// `RateLimit-Policy` and `RateLimit`.
    pub standard: bool,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    pub legacy: bool,
    /// `retry-after-ms` and `x-should-retry`.
    pub hints: bool,
}

impl Default for Families {
    /// All of them.
    fn default() -> Self {
        Self { standard: true, legacy: true, hints: true }
    }
}

impl FromStr for Families {
    type Err = String;

    /// `standard`, `legacy` and `hints` with commas between, or `none`.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut families = Self { standard: false, legacy: false, hints: false };
        if text == "none" {
            return Ok(families);
        }
        for name in text.split(',') {
            match name.trim() {
                "standard" => families.standard = true,
                "legacy" => families.legacy = true,
                "hints" => families.hints = true,
                other => return Err(format!("{other:?} is no family of headers; give some of standard,legacy,hints, or none")),
            }
        }
        Ok(families)
    }
}

/// The headers of `decision` under `policy`, one by one into `add`.
pub fn of_decision(families: Families, policy: &Policy, decision: &Decision, mut add: impl FnMut(HeaderName, HeaderValue)) {
    let hopeless = matches!(decision.reason, Some(Reason::Blocked | Reason::CostExceedsLimit)) && !decision.admitted;
    if let Some(quota) = decision.quota.filter(|_| !hopeless) {
        if families.standard {
            let wait = if decision.admitted { Wait::For(quota.reset_after) } else { decision.retry_after };
            let seconds = wait.micros().map_or(1, whole_seconds);
            add_text(&mut add, RATELIMIT_POLICY, policy_text(policy));
            add_text(&mut add, RATELIMIT, format!("\"{}\";r={};t={seconds}", quota.binding.name(), quota.remaining));
        }
        if families.legacy {
            add(X_RATELIMIT_LIMIT, quota.limit.into());
            add(X_RATELIMIT_REMAINING, quota.remaining.into());
            add(X_RATELIMIT_RESET, ceil_div(decision.decided_at.saturating_add(quota.reset_after), US).into());
        }
    }
    if decision.admitted {
        return;
    }
    let wait = decision.retry_after.micros();
    if let Some(wait) = wait {
        add(RETRY_AFTER, whole_seconds(wait).into());
        if families.hints {
            add(RETRY_AFTER_MS, whole_millis(wait).into());
        }
    }
    if families.hints {
        let retry = wait.is_some_and(|wait| wait <= LONGEST_PATIENCE);
        add(X_SHOULD_RETRY, HeaderValue::from_static(if retry { "true" } else { "false" }));
    }
}

/// Whole seconds, rounded up, at least 1: who waits so long has waited long enough.
#[must_use]
pub const fn whole_seconds(micros: Micros) -> i64 {
    let seconds = ceil_div(micros, US);
    if seconds < 1 { 1 } else { seconds }
}

/// Whole milliseconds, rounded up, at least 1.
#[must_use]
pub const fn whole_millis(micros: Micros) -> i64 {
    let millis = ceil_div(micros, 1_000);
    if millis < 1 { 1 } else { millis }
}

const fn ceil_div(value: Micros, by: Micros) -> i64 {
    let whole = value.div_euclid(by);
    if value.rem_euclid(by) == 0 { whole } else { whole + 1 }
}

/// The limits that can ever decide under this policy, the bucket first.
fn policy_text(policy: &Policy) -> String {
    let mut text = String::with_capacity(64);
    let mut limit = |limit: Limit, quota: u64, window: Micros| {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a String does not fail.
        let _ = write!(text, "{comma}\"{}\";q={quota};w={}", limit.name(), whole_seconds(window));
    };
    if policy.uses_bucket() {
        limit(Limit::Bucket, policy.bucket_capacity(), policy.fill_time());
    }
    if policy.uses_window() {
        limit(Limit::Window, policy.window_limit(), policy.window());
    }
    text
}

/// The texts here are ASCII, so none is lost.
fn add_text(add: &mut impl FnMut(HeaderName, HeaderValue), name: HeaderName, text: String) {
    if let Ok(value) = HeaderValue::try_from(text) {
        add(name, value);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::limit::{State, decide};

    fn headers(families: Families, policy: &Policy, decision: &Decision) -> BTreeMap<String, String> {
        let mut found = BTreeMap::new();
        of_decision(families, policy, decision, |name, value| {
            assert!(found.insert(name.to_string(), value.to_str().unwrap().to_owned()).is_none(), "{name} twice");
        });
        found
    }

    #[test]
    fn an_admission_says_what_is_left_and_nothing_of_waiting() {
        let policy = Policy::default();
        let decision = decide(&policy, &mut State::default(), 1_700_000_000_000_000, 1);
        let found = headers(Families::default(), &policy, &decision);
        assert_eq!(found["ratelimit-policy"], r#""bucket";q=100;w=50, "window";q=200;w=60"#);
        assert_eq!(found["ratelimit"], r#""bucket";r=99;t=1"#);
        assert_eq!(found["x-ratelimit-limit"], "100");
        assert_eq!(found["x-ratelimit-remaining"], "99");
        assert_eq!(found["x-ratelimit-reset"], "1700000001");
        assert!(!found.contains_key("retry-after"));
        assert!(!found.contains_key("x-should-retry"));
    }

    #[test]
    fn a_refusal_waits_in_whole_seconds_rounded_up() {
        let policy = Policy::default();
        let mut state = State::default();
        assert!(decide(&policy, &mut state, 0, 100).admitted);
        let found = headers(Families::default(), &policy, &decide(&policy, &mut state, 0, 1));
        assert_eq!(found["retry-after"], "1");
        assert_eq!(found["retry-after-ms"], "500");
        assert_eq!(found["x-should-retry"], "true");
        assert_eq!(found["ratelimit"], r#""bucket";r=0;t=1"#);
    }

    #[test]
    fn what_can_never_fit_has_no_wait() {
        let policy = Policy::default();
        let found = headers(Families::default(), &policy, &decide(&policy, &mut State::default(), 0, 101));
        assert_eq!(found.into_iter().collect::<Vec<_>>(), [("x-should-retry".to_owned(), "false".to_owned())]);
    }

    #[test]
    fn families_can_be_left_out() {
        let policy = Policy::default();
        let decision = decide(&policy, &mut State::default(), 0, 1);
        assert!(headers("none".parse().unwrap(), &policy, &decision).is_empty());
        assert!(!headers("legacy, hints".parse().unwrap(), &policy, &decision).contains_key("ratelimit"));
        assert!("legacy,nonsense".parse::<Families>().is_err());
    }

    #[test]
    fn waits_round_up_and_are_never_zero() {
        for (micros, seconds, millis) in [(0, 1, 1), (1, 1, 1), (999_999, 1, 1_000), (1_000_001, 2, 1_001), (60_000_000, 60, 60_000)] {
            assert_eq!((whole_seconds(micros), whole_millis(micros)), (seconds, millis), "{micros} µs");
        }
    }
}
