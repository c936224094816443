//! A decision as a response: status, body, header fields.

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;

use super::headers::{self, Families};
use crate::limit::{Decision, Limit, Micros, Reason, US, Units, Wait};
use crate::limiter::Answer;

/// The body of a 200.
#[derive(Debug, Serialize)]
struct Admitted<'a> {
    allowed: bool,
    subject: &'a str,
    limit: Option<Units>,
    remaining: Option<Units>,
    reset_after: Option<f64>,
    retry_after: Option<f64>,
    breaker: &'static str,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
}

/// The body of a refusal.
#[derive(Debug, Serialize)]
struct Refused<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    allowed: bool,
    subject: &'a str,
    reason: &'static str,
    retry_after: Option<f64>,
    retry_after_ms: Option<Micros>,
    limit: Option<Units>,
    remaining: Option<Units>,
    reset_after: Option<f64>,
    breaker: &'static str,
    /// Length of what refused, seconds: the window, or the time to fill the bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    window: Option<f64>,
    #[serde(rename = "violated-policies", skip_serializing_if = "Vec::is_empty")]
    violated: Vec<&'static str>,
}

const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";

/// The whole response.
pub(super) fn response(answer: &Answer, families: Families) -> HttpResponse {
    let decision = &answer.decision;
    let subject = answer.subject.to_string();
    let (status, content_type, body) = match decision.reason {
        Some(reason) if !decision.admitted => {
            let refused = refused(answer, &subject, reason);
            (status(reason), "application/problem+json", serde_json::to_vec(&refused))
        }
        _ => (StatusCode::OK, "application/json", serde_json::to_vec(&admitted(decision, &subject))),
    };
    let mut response = HttpResponseBuilder::new(status);
    response.insert_header((CONTENT_TYPE, HeaderValue::from_static(content_type)));
    response.insert_header((CACHE_CONTROL, HeaderValue::from_static("no-store")));
    for (name, value) in headers::of_decision(&answer.policy, decision, families) {
        if let Ok(value) = HeaderValue::try_from(value) {
            response.insert_header((HeaderName::from_static(name), value));
        }
    }
    response.body(body.unwrap_or_default())
}

fn status(reason: Reason) -> StatusCode {
    match reason {
        Reason::Bucket | Reason::Window => StatusCode::TOO_MANY_REQUESTS,
        Reason::Blocked => StatusCode::FORBIDDEN,
        Reason::CostExceedsLimit => StatusCode::UNPROCESSABLE_ENTITY,
    }
}

fn admitted<'a>(decision: &Decision, subject: &'a str) -> Admitted<'a> {
    let quota = decision.quota;
    Admitted {
        allowed: true,
        subject,
        limit: quota.map(|quota| quota.limit),
        remaining: quota.map(|quota| quota.remaining),
        reset_after: quota.map(|quota| seconds(quota.reset_after)),
        retry_after: wait_seconds(decision.retry_after),
        breaker: breaker(decision),
        reason: decision.reason.map(Reason::name),
        would_refuse: decision.reason.map(|_| true),
    }
}

fn refused<'a>(answer: &Answer, subject: &'a str, reason: Reason) -> Refused<'a> {
    let (policy, decision) = (&answer.policy, &answer.decision);
    let quota = decision.quota;
    let wait = decision.retry_after.micros();
    let (kind, title, code, window) = match reason {
        Reason::Bucket => (QUOTA_EXCEEDED, "Too many requests", "rate_limit_exceeded", Some(policy.fill_time())),
        Reason::Window if policy.uses_bucket() => {
            (ABNORMAL_USAGE, "Too many requests in a storm", "rate_limit_exceeded", Some(policy.window()))
        }
        Reason::Window => (QUOTA_EXCEEDED, "Too many requests", "rate_limit_exceeded", Some(policy.window())),
        Reason::CostExceedsLimit => ("about:blank", "The cost can never fit", "cost_exceeds_limit", None),
        Reason::Blocked => ("about:blank", "This user is blocked", "blocked", None),
    };
    Refused {
        kind,
        title,
        status: status(reason).as_u16(),
        detail: detail(reason, wait),
        code,
        allowed: false,
        subject,
        reason: reason.name(),
        retry_after: wait.map(seconds),
        retry_after_ms: wait.map(headers::ceil_millis),
        limit: quota.map(|quota| quota.limit),
        remaining: quota.map(|quota| quota.remaining),
        reset_after: quota.map(|quota| seconds(quota.reset_after)),
        breaker: breaker(decision),
        window: window.map(seconds),
        violated: decision.violations.iter().map(Limit::name).collect(),
    }
}

fn detail(reason: Reason, wait: Option<Micros>) -> String {
    match (reason, wait) {
        (Reason::Blocked, _) => "an operator has blocked this user".to_owned(),
        (Reason::CostExceedsLimit, _) => "the cost is above a limit that always counts; ask for less, or have the limit raised".to_owned(),
        (_, Some(wait)) => format!("the {} has no room for this; it has in {} s", reason.name(), seconds(wait)),
        (_, None) => format!("the {} never has room for this cost", reason.name()),
    }
}

fn breaker(decision: &Decision) -> &'static str {
    if decision.breaker_open { "open" } else { "closed" }
}

fn wait_seconds(wait: Wait) -> Option<f64> {
    wait.micros().map(seconds)
}

/// µs as seconds: the nearest double, which prints with at most six decimals.
fn seconds(span: Micros) -> f64 {
    span as f64 / US as f64
}
