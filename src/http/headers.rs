//! The header fields of an answer: functions of the policy and the decision, and of nothing else. No second read, no clock.
//!
//! `RateLimit-Policy` and `RateLimit` are structured fields (draft-ietf-httpapi-ratelimit-headers); `X-RateLimit-*` is what
//! older clients read; `retry-after-ms` and `x-should-retry` are what the clients of large APIs read.

use std::fmt::Write as _;

use actix_web::HttpResponse;
use actix_web::http::header::{HeaderName, HeaderValue};

use crate::limit::{Decision, Micros, Policy, US};

/// Waits above this, µs, are not worth holding a request for.
const LONGEST_RETRY: Micros = 60 * US;

/// Which families of header fields are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Families {
    /// `RateLimit-Policy` and `RateLimit`.
    pub standard: bool,
    /// `X-RateLimit-Limit`, `-Remaining`, `-Reset`.
    pub legacy: bool,
}

impl Default for Families {
    fn default() -> Self {
        Self { standard: true, legacy: true }
    }
}

/// Adds one field; a value that is none is left out.
pub(super) fn insert(response: &mut HttpResponse, name: &'static str, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    }
}

/// The fields of an answer that a decision was made for.
pub(super) fn of_decision(policy: &Policy, decision: &Decision, families: Families) -> Vec<(&'static str, String)> {
    let mut fields = Vec::with_capacity(10);
    if let Some(quota) = decision.quota {
        if families.standard {
            fields.push(("ratelimit-policy", policy_field(policy)));
            let until = if decision.admitted { quota.reset_after } else { decision.retry_after.micros().unwrap_or(quota.reset_after) };
            fields.push(("ratelimit", format!("\"{}\";r={};t={}", quota.binding.name(), quota.remaining, whole_seconds(until))));
        }
        if families.legacy {
            fields.push(("x-ratelimit-limit", quota.limit.to_string()));
            fields.push(("x-ratelimit-remaining", quota.remaining.to_string()));
            fields.push(("x-ratelimit-reset", ceil_seconds(decision.decided_at + quota.reset_after).to_string()));
        }
    }
    if !decision.admitted {
        match decision.retry_after.micros() {
            Some(wait) => {
                fields.push(("retry-after", whole_seconds(wait).to_string()));
                fields.push(("retry-after-ms", ceil_millis(wait).to_string()));
                if wait > LONGEST_RETRY {
                    fields.push(("x-should-retry", "false".to_owned()));
                }
            }
            None => fields.push(("x-should-retry", "false".to_owned())),
        }
    }
    fields
}

/// `"bucket";q=100;w=50, "window";q=200;w=60`: the limits that can count, and the seconds after which each is whole again.
fn policy_field(policy: &Policy) -> String {
    let mut field = String::with_capacity(48);
    if policy.uses_bucket() {
        let _ = write!(field, "\"bucket\";q={};w={}", policy.bucket_capacity(), whole_seconds(policy.fill_time()));
    }
    if policy.uses_window() {
        let comma = if field.is_empty() { "" } else { ", " };
        let _ = write!(field, "{comma}\"window\";q={};w={}", policy.window_limit(), whole_seconds(policy.window()));
    }
    field
}

/// Rounded up, at least 1: whoever waits that long has waited long enough.
pub(super) fn whole_seconds(span: Micros) -> Micros {
    ceil_seconds(span).max(1)
}

fn ceil_seconds(span: Micros) -> Micros {
    span.div_euclid(US) + Micros::from(span.rem_euclid(US) > 0)
}

/// Rounded up.
pub(super) fn ceil_millis(span: Micros) -> Micros {
    span.div_euclid(1_000) + Micros::from(span.rem_euclid(1_000) > 0)
}
