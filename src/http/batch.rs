//! `POST /v1/check/batch`: many checks in one request, each decided on its own.

use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use actix_web::web::Payload;
use actix_web::{HttpRequest, HttpResponse};

use super::check::{Admitted, problem_of, store_away, to_request};
use super::{CheckBody, JSON, MOST_BATCH_BYTES, NO_STORE, Problem, Shared, body, builder, refuse};
use crate::limiter::{Answer, Request};
use crate::store::StoreError;

/// The most checks in one batch.
pub(super) const MOST_CHECKS: usize = 1_000;

pub(super) async fn batch(api: Shared, request: HttpRequest, mut payload: Payload) -> HttpResponse {
    let read = match read(&api, &request, &mut payload).await {
        Ok(read) => read,
        Err(problem) => return body::close_if_unread(refuse(&problem), payload),
    };
    let mut asked = Vec::with_capacity(read.len());
    // What could not be read keeps its place as a problem.
    let places: Vec<Option<Problem>> = read
        .into_iter()
        .map(|one| match one {
            Ok(one) => {
                asked.push(one);
                None
            }
            Err(problem) => Some(problem),
        })
        .collect();
    let answers = api.limiter.check_many(asked).await;
    let body = write(places, answers);
    builder(200).insert_header((CONTENT_TYPE, JSON)).insert_header((CACHE_CONTROL, NO_STORE)).body(body)
}

async fn read(api: &Shared, request: &HttpRequest, payload: &mut Payload) -> Result<Vec<Result<Request, Problem>>, Problem> {
    if let Err(problem) = body::expect_json(request.headers()) {
        body::drain(payload, MOST_BATCH_BYTES, super::DRAIN_PATIENCE).await;
        return Err(problem);
    }
    let bytes = body::read(request.headers(), payload, MOST_BATCH_BYTES, api.settings.body_timeout).await?;
    let batch: body::BatchBody<'_> = body::parse_object(&bytes)?;
    if batch.checks.len() > MOST_CHECKS {
        return Err(Problem::new(
            400,
            "too_many_checks",
            format!("{} checks in one batch; send at most {MOST_CHECKS}", batch.checks.len()),
        ));
    }
    let one = |text: &str| {
        if text.len() > super::MOST_CHECK_BYTES {
            return Err(Problem::new(413, "body_too_large", format!("a check is longer than {} bytes", super::MOST_CHECK_BYTES)));
        }
        to_request(api, request, CheckBody::parse(text.as_bytes())?)
    };
    Ok(batch.checks.iter().map(|check| one(check.get())).collect())
}

/// `{"answers":[…]}`: for each check, in its place, what a single check would have had for a body.
fn write(places: Vec<Option<Problem>>, answers: Vec<Result<Answer, StoreError>>) -> Vec<u8> {
    let mut body = Vec::with_capacity(16 + 200 * places.len());
    body.extend_from_slice(br#"{"answers":["#);
    let mut answers = answers.into_iter();
    for (index, problem) in places.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        let problem = problem.or_else(|| match answers.next() {
            Some(Ok(answer)) => {
                let problem = problem_of(&answer);
                if problem.is_none() {
                    body.extend(Admitted::of(&answer).to_json());
                }
                problem
            }
            Some(Err(error)) => Some(store_away(&error)),
            // There is an answer for every question.
            None => Some(Problem::store_away()),
        });
        if let Some(problem) = problem {
            body.extend(problem.to_json());
        }
    }
    body.extend_from_slice(b"]}");
    body
}
