//! Bodies of type `application/problem+json` (RFC 9457): what is refused, and what is wrong with a request.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::headers::whole_millis;
use crate::limit::{Algorithm, Limit, Micros, Reason, US, Units};
use crate::limiter::Answer;

/// The longest detail, in bytes: some quote what the caller sent.
const LONGEST_DETAIL: usize = 400;

/// Why there is no 200.
#[derive(Debug, Clone, Serialize)]
pub struct Problem {
    /// What it is, for programs that follow RFC 9457.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// What it is, for a person.
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// What exactly, and what to do about it.
    pub detail: Cow<'static, str>,
    /// What it is, for programs: one word.
    pub code: &'static str,
    /// What a limit said.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Box<Refusal>>,
}

/// What a limit said of a request that it did not admit.
#[derive(Debug, Clone, Serialize)]
pub struct Refusal {
    /// The limit, or why else.
    pub reason: &'static str,
    /// The wait; nothing when waiting does not help.
    pub retry_after: Option<Seconds>,
    /// The same in milliseconds, rounded up.
    pub retry_after_ms: Option<i64>,
    /// Size of the limit that binds; nothing where no state is kept.
    pub limit: Option<Units>,
    /// Its room.
    pub remaining: Option<Units>,
    /// Length of the policy's window.
    pub window: Seconds,
    /// All limits that did not fit.
    #[serde(rename = "violated-policies")]
    pub violated: Vec<&'static str>,
    /// The route that the request is on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<Box<str>>,
    /// The store could not say, and something else decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degraded: Option<bool>,
}

/// A span of time, written as seconds: a whole number where it is one, else the shortest decimal that means this many µs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Micros);

impl Serialize for Seconds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0 % US == 0 { serializer.serialize_i64(self.0 / US) } else { serializer.serialize_f64(self.0 as f64 / US as f64) }
    }
}

impl Problem {
    /// The request is wrong in a way that `code` names and `detail` explains.
    pub fn new(status: u16, code: &'static str, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind: "about:blank", title: phrase(status), status, detail: shorten(detail.into()), code, refusal: None }
    }

    /// The store could not say, and the request is not let through for that.
    #[must_use]
    pub const fn store_away() -> Self {
        Self {
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            title: "Temporarily reduced capacity",
            status: 503,
            detail: Cow::Borrowed("the limits cannot be looked up at the moment; try again shortly"),
            code: "store_unavailable",
            refusal: None,
        }
    }

    /// What to say of `answer`, which did not admit its request for `reason`.
    #[must_use]
    pub fn refused(answer: &Answer, reason: Reason) -> Self {
        let decision = &answer.decision;
        let wait = decision.retry_after.micros();
        let (status, code, kind, title, detail) = match reason {
            Reason::Blocked => (403, "blocked", "about:blank", phrase(403), Cow::Borrowed("an operator has blocked this subject")),
            Reason::CostExceedsLimit => (
                422,
                "cost_exceeds_limit",
                "about:blank",
                phrase(422),
                Cow::Borrowed("the cost is larger than the limit: it can never be admitted; ask for less"),
            ),
            Reason::Bucket | Reason::Window => {
                let abnormal = reason == Reason::Window && answer.policy.algorithm() == Algorithm::Hybrid;
                let (kind, title) = if abnormal {
                    ("https://iana.org/assignments/http-problem-types#abnormal-usage-detected", "Abnormal usage detected")
                } else {
                    ("https://iana.org/assignments/http-problem-types#quota-exceeded", "Quota exceeded")
                };
                (429, "rate_limit_exceeded", kind, title, wait_detail(reason, wait))
            }
        };
        let refusal = Refusal {
            reason: reason.name(),
            retry_after: wait.map(Seconds),
            retry_after_ms: wait.map(whole_millis),
            limit: decision.quota.map(|quota| quota.limit),
            remaining: decision.quota.map(|quota| quota.remaining),
            window: Seconds(answer.policy.window()),
            violated: decision.violations.iter().map(Limit::name).collect(),
            route: answer.route.clone(),
            degraded: answer.degraded.map(|_| true),
        };
        Self { kind, title, status, detail, code, refusal: Some(Box::new(refusal)) }
    }

    /// One word for why: what the limit said, else what is wrong.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.refusal.as_ref().map_or(self.code, |refusal| refusal.reason)
    }

    /// As JSON.
    #[must_use]
    pub fn to_json(&self) -> Vec<u8> {
        // Strings and numbers alone: serializing them does not fail.
        serde_json::to_vec(self).unwrap_or_default()
    }
}

fn wait_detail(reason: Reason, wait: Option<Micros>) -> Cow<'static, str> {
    match wait {
        Some(wait) => Cow::Owned(format!("the {} has no room for this request; it has in {} s", reason.name(), wait as f64 / US as f64)),
        None => Cow::Owned(format!("the {} has no room for this request, and waiting does not help", reason.name())),
    }
}

/// HTTP's own words, which RFC 9457 asks for where a problem has no type of its own.
const fn phrase(status: u16) -> &'static str {
    match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        408 => "Request Timeout",
        412 => "Precondition Failed",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        _ => "Error",
    }
}

fn shorten(detail: Cow<'static, str>) -> Cow<'static, str> {
    if detail.len() <= LONGEST_DETAIL {
        return detail;
    }
    let end = (0..=LONGEST_DETAIL).rev().find(|end| detail.is_char_boundary(*end)).unwrap_or(0);
    Cow::Owned(format!("{}…", &detail[..end]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_written_without_noise() {
        for (micros, text) in [(0, "0"), (500_000, "0.5"), (100_000, "0.1"), (1, "0.000001"), (7_000_000, "7"), (1_234_567, "1.234567")] {
            let written = serde_json::to_string(&Seconds(micros)).unwrap();
            assert_eq!(written.parse::<f64>().unwrap(), text.parse::<f64>().unwrap());
            assert!(written == text || micros == 1, "{written} for {text}");
        }
    }

    #[test]
    fn a_detail_that_quotes_the_caller_is_bounded_and_stays_text() {
        let problem = Problem::new(400, "invalid_body", "é".repeat(100_000));
        assert!(problem.detail.len() <= LONGEST_DETAIL + '…'.len_utf8());
    }
}
