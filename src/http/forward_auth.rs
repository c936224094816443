//! `ANY /v1/auth` and `/v1/auth/{tail}`: a proxy asks whether to let somebody else's request through, and looks at the status alone.
//!
//! Trust in a proxy is not trust in a header that it passes on. Who the user is stands in the headers that `identity.auth_headers` names,
//! or in a query parameter of a URL that the operator wrote, and nowhere else. Query parameters count on exactly `/v1/auth`: below it
//! path and query are the client's own.

use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderName, HeaderValue};
use actix_web::web::{Payload, Query};
use actix_web::{HttpRequest, HttpResponse};

use super::check::{problem_of, respond, store_away};
use super::original::{METHOD_HEADERS, Original, PATH_HEADERS, agreed, canonical_path};
use super::{Api, DRAIN_PATIENCE, MOST_BATCH_BYTES, Problem, Shared, believe, body, lines, peer, refuse};
use crate::identity::{Claims, Door, InvalidUserId, Settings};
use crate::limit::{MAX_COST, Units};
use crate::limiter::{Answer, Request};

/// Where query parameters count, and headers tell the original request.
pub(super) const PATH: &str = "/v1/auth";
/// Where the rest of the path, and the method, are the original request's.
pub(super) const BELOW: &str = "/v1/auth/{tail:.*}";

/// The true status of an outcome, whatever the response's own is.
const X_WEIR_STATUS: HeaderName = HeaderName::from_static("x-weir-status");
/// Why it was not let through, in one word.
const X_WEIR_REASON: HeaderName = HeaderName::from_static("x-weir-reason");

pub(super) async fn exactly(api: Shared, request: HttpRequest, mut payload: Payload) -> HttpResponse {
    body::drain(&mut payload, MOST_BATCH_BYTES, DRAIN_PATIENCE).await;
    let mut told = Told::default();
    let outcome = match told.read(request.query_string()).and_then(|()| told_by_headers(&api, &request)) {
        Ok(original) => ask(&api, &request, &told, original).await,
        Err(problem) => Err(problem),
    };
    body::close_if_unread(for_proxy(&api, outcome, told.deny_status), payload)
}

pub(super) async fn below(api: Shared, request: HttpRequest, mut payload: Payload) -> HttpResponse {
    body::drain(&mut payload, MOST_BATCH_BYTES, DRAIN_PATIENCE).await;
    let whole = request.uri().path();
    let path = canonical_path(whole.strip_prefix(PATH).unwrap_or(whole).as_bytes());
    let original = Original { path: Some(path.into()), method: Some(request.method().as_str().into()) };
    let outcome = ask(&api, &request, &Told::default(), original).await;
    body::close_if_unread(for_proxy(&api, outcome, None), payload)
}

/// Path and method as the headers of a trusted proxy tell them.
fn told_by_headers(api: &Api, request: &HttpRequest) -> Result<Original, Problem> {
    if !api.limiter.config().identity.trusts_proxy(peer(request)) {
        return Ok(Original::default());
    }
    let one = |names: &[&str]| {
        agreed(names.iter().flat_map(|name| lines(request, name))).map_err(|_| {
            let detail = format!(
                "{} say different things; let the proxy set one of them and delete the others, which come from its client",
                names.join(", ")
            );
            Problem::new(400, "ambiguous_request", detail)
        })
    };
    let path = one(&PATH_HEADERS)?.map(|target| canonical_path(target).into());
    let method = one(&METHOD_HEADERS)?.map(|method| String::from_utf8_lossy(method).to_ascii_uppercase().into());
    Ok(Original { path, method })
}

async fn ask(api: &Api, request: &HttpRequest, told: &Told, original: Original) -> Result<(Answer, Option<Problem>), Problem> {
    let subject = {
        let config = api.limiter.config();
        let settings = &config.identity;
        let (api_keys, user_ids) = named_by_headers(settings, |name| lines(request, name));
        let claims = Claims {
            peer: peer(request),
            door: Door::Proxy,
            user: told.user.as_deref(),
            address: None,
            api_keys: &api_keys,
            user_ids: &user_ids,
            forwarded: &lines(request, "forwarded"),
            x_forwarded_for: &lines(request, "x-forwarded-for"),
        };
        believe(api, settings, &claims)?
    };
    let asked = Request { subject, path: original.path, method: original.method, cost: told.cost };
    let answer = match &told.route {
        None => api.limiter.check(asked).await,
        Some(name) => match api.limiter.check_on(name, asked).await {
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => return Err(Problem::new(400, "unknown_route", format!("no route has the name {name:?}"))),
            Err(error) => Err(error),
        },
    };
    let answer = answer.map_err(|error| store_away(&error))?;
    let problem = problem_of(&answer);
    Ok((answer, problem))
}

/// The API keys and user ids in the headers that `identity.auth_headers` names, given the lines of each header.
pub(super) fn named_by_headers<'a>(settings: &Settings, lines: impl Fn(&str) -> Vec<&'a [u8]>) -> (Vec<&'a [u8]>, Vec<&'a [u8]>) {
    let said = |name: &str| lines(name).into_iter().filter(|line| !line.trim_ascii().is_empty()).collect::<Vec<_>>();
    let (api_keys, user_ids): (Vec<&str>, Vec<&str>) =
        settings.auth_headers.iter().map(|name| &**name).partition(|name| *name == &*settings.api_key_header);
    // The first user id that says something: they are alternatives, in the operator's order.
    let user_ids = user_ids.into_iter().map(&said).find(|lines| !lines.is_empty()).unwrap_or_default();
    (api_keys.into_iter().flat_map(said).collect(), user_ids)
}

/// 200 when it was admitted; every other outcome has the status that was asked for, and says its own in a header.
fn for_proxy(api: &Api, outcome: Result<(Answer, Option<Problem>), Problem>, deny_status: Option<StatusCode>) -> HttpResponse {
    let (mut response, problem) = match outcome {
        Ok((answer, problem)) => (respond(api, &answer, problem.as_ref()), problem),
        Err(problem) => (refuse(&problem), Some(problem)),
    };
    let status = response.status().as_u16();
    response.headers_mut().insert(X_WEIR_STATUS, status.into());
    if let Some(problem) = problem {
        response.headers_mut().insert(X_WEIR_REASON, HeaderValue::from_static(problem.reason()));
        if let Some(status) = deny_status {
            *response.status_mut() = status;
        }
    }
    response
}

/// What the query says. An operator wrote it into a proxy's configuration, so an unknown parameter is a mistake, or a client's query
/// that the proxy should not have put here.
#[derive(Default)]
struct Told {
    user: Option<String>,
    route: Option<String>,
    cost: Option<Units>,
    deny_status: Option<StatusCode>,
}

impl Told {
    /// Reads a query to its end, so that a status to deny with holds for mistakes before and behind it.
    fn read(&mut self, query: &str) -> Result<(), Problem> {
        let pairs = Query::<Vec<(String, String)>>::from_query(query)
            .map_err(|error| Problem::new(400, "invalid_query", format!("the query cannot be read: {error}")))?;
        let mut first = Ok(());
        let mut seen: Vec<String> = Vec::new();
        for (name, value) in pairs.into_inner() {
            let taken = if seen.contains(&name) {
                Err(Problem::new(400, "invalid_query", format!("{name} stands twice in the query")))
            } else {
                self.set(&name, value)
            };
            if seen.len() < 4 {
                seen.push(name);
            }
            first = first.and(taken);
        }
        first
    }

    fn set(&mut self, name: &str, value: String) -> Result<(), Problem> {
        match name {
            // What a proxy writes for a client that it does not know.
            "user" if value.is_empty() => {}
            // What is no UTF-8 has become this character, in which many ids would meet.
            "user" if value.contains(char::REPLACEMENT_CHARACTER) => {
                return Err(Problem::new(400, "invalid_user", InvalidUserId::NotUtf8.to_string()));
            }
            "user" => self.user = Some(value),
            "route" => self.route = Some(value),
            "cost" => self.cost = Some(cost(&value)?),
            "deny_status" => self.deny_status = Some(deny_status(&value)?),
            _ => {
                let detail = format!(
                    "{PATH} takes cost, route, user and deny_status, not {name:?}; a client's own query belongs below {PATH}/ or into a header"
                );
                return Err(Problem::new(400, "unknown_parameter", detail));
            }
        }
        Ok(())
    }
}

/// A request that goes through has a price: 0 would let it through for nothing.
fn cost(text: &str) -> Result<Units, Problem> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|cost| digits && (1..=MAX_COST).contains(cost)).ok_or_else(|| {
        Problem::new(
            400,
            "invalid_cost",
            format!("cost {text:?} is not a whole number, 1 to {MAX_COST}; a request that goes through takes at least 1"),
        )
    })
}

/// Anything that no proxy takes for a yes.
fn deny_status(text: &str) -> Result<StatusCode, Problem> {
    let status = text.parse().ok().filter(|status| (400..=599).contains(status)).and_then(|status| StatusCode::from_u16(status).ok());
    status.ok_or_else(|| Problem::new(400, "invalid_deny_status", format!("deny_status {text:?} is not a status, 400 to 599")))
}
