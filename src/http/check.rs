//! `POST /v1/check`: may this user do this now?

use std::fmt;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};
use serde::{Serialize, Serializer};
use tracing::debug;

use super::{
    Api, CheckBody, Families, JSON, MOST_CHECK_BYTES, NO_STORE, PROBLEM_JSON, Problem, Seconds, Shared, body, builder, headers, identify,
    refuse,
};
use crate::limit::{Reason, Units};
use crate::limiter::{Answer, Request};
use crate::store::StoreError;

/// Says that the store could not, and what decided in its place.
const X_RATELIMIT_DEGRADED: HeaderName = HeaderName::from_static("x-ratelimit-degraded");

pub(super) async fn check(api: Shared, request: HttpRequest, mut payload: Payload) -> HttpResponse {
    let asked = match read(&api, &request, &mut payload).await {
        Ok(asked) => asked,
        Err(problem) => return body::close_if_unread(refuse(&problem), payload),
    };
    match api.limiter.check(asked).await {
        Ok(answer) => respond(&api, &answer, problem_of(&answer).as_ref()),
        Err(error) => refuse(&store_away(&error)),
    }
}

/// The response that says `answer`, with its problem if it does not admit.
pub(super) fn respond(api: &Api, answer: &Answer, problem: Option<&Problem>) -> HttpResponse {
    let (status, content_type, body) = match problem {
        None => (200, JSON, Admitted::of(answer).to_json()),
        Some(problem) => (problem.status, PROBLEM_JSON, problem.to_json()),
    };
    let mut response = builder(status);
    response.insert_header((CONTENT_TYPE, content_type)).insert_header((CACHE_CONTROL, NO_STORE));
    each_header(api.settings.headers, answer, |name, value| {
        response.insert_header((name, value));
    });
    response.body(body)
}

async fn read(api: &Shared, request: &HttpRequest, payload: &mut Payload) -> Result<Request, Problem> {
    if let Err(problem) = body::expect_json(request.headers()) {
        body::drain(payload, MOST_CHECK_BYTES, super::DRAIN_PATIENCE).await;
        return Err(problem);
    }
    let bytes = body::read(request.headers(), payload, MOST_CHECK_BYTES, api.settings.body_timeout).await?;
    to_request(api, request, CheckBody::parse(&bytes)?)
}

/// What a door asks the limiter for `body`.
pub(super) fn to_request(api: &Shared, request: &HttpRequest, body: CheckBody) -> Result<Request, Problem> {
    let subject = identify(api, &api.limiter.config(), request, &body)?;
    body.check_address()?;
    Ok(Request { subject, path: body.path, method: body.method, cost: body.cost.map(|cost| cost.0) })
}

/// The headers of an answer, one by one into `add`.
pub(crate) fn each_header(families: Families, answer: &Answer, mut add: impl FnMut(HeaderName, HeaderValue)) {
    headers::of_decision(families, &answer.policy, &answer.decision, &mut add);
    if let Some(policy) = answer.degraded {
        add(X_RATELIMIT_DEGRADED, HeaderValue::from_static(policy.name()));
    }
}

/// The problem of an answer that does not admit.
pub(crate) fn problem_of(answer: &Answer) -> Option<Problem> {
    if answer.decision.admitted {
        return None;
    }
    // A refusal has a reason; one without would be blocked rather than let through.
    Some(Problem::refused(answer, answer.decision.reason.unwrap_or(Reason::Blocked)))
}

/// The problem of a store that could not say. Logged at debug: the metrics count these, and a log line for each would be a flood.
pub(crate) fn store_away(error: &StoreError) -> Problem {
    debug!(%error, "not decided");
    Problem::store_away()
}

/// The body of a 200.
#[derive(Serialize)]
pub(super) struct Admitted<'a> {
    allowed: bool,
    #[serde(serialize_with = "as_text")]
    subject: &'a dyn fmt::Display,
    limit: Option<Units>,
    remaining: Option<Units>,
    reset_after: Option<Seconds>,
    retry_after: Option<Seconds>,
    breaker: &'static str,
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_refuse: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    degraded: Option<bool>,
}

impl<'a> Admitted<'a> {
    pub(super) fn of(answer: &'a Answer) -> Self {
        let decision = &answer.decision;
        Self {
            allowed: true,
            subject: &answer.subject,
            limit: decision.quota.map(|quota| quota.limit),
            remaining: decision.quota.map(|quota| quota.remaining),
            reset_after: decision.quota.map(|quota| Seconds(quota.reset_after)),
            retry_after: decision.retry_after.micros().map(Seconds),
            breaker: if decision.breaker_open { "open" } else { "closed" },
            reason: decision.reason.map(Reason::name),
            would_refuse: decision.reason.map(|_| true),
            route: answer.route.as_deref(),
            degraded: answer.degraded.map(|_| true),
        }
    }

    pub(super) fn to_json(&self) -> Vec<u8> {
        let mut json = Vec::with_capacity(192);
        // Strings and numbers into memory: this does not fail.
        let _ = serde_json::to_writer(&mut json, self);
        json
    }
}

fn as_text<S: Serializer>(value: &&dyn fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}
