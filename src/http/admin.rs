//! `/admin/rate-limit/…`: what operators do while everything runs. It is never limited by the limits it edits.

mod auth;
mod change;
mod explain;
mod show;
mod token;

use std::net::SocketAddr;

use actix_web::http::header::{CONTENT_TYPE, IF_MATCH};
use actix_web::http::{Method, header};
use actix_web::web::{self, Data, Payload, Query, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub use auth::Tokens;
pub use token::{Role, Token, TokenFileError};

use super::{Api, JSON, MOST_BATCH_BYTES, MOST_CHECK_BYTES, NO_STORE, Problem, Shared, body, builder, refuse};
use crate::identity::{Subject, canonical, parse_address};
use crate::limiter::{OperateError, Order};
use crate::overrides::{Change, Target};
use actix_web::http::header::CACHE_CONTROL;

/// The most that a list or an audit gives at once.
const MOST_ITEMS: usize = 1_000;
const SOME_ITEMS: usize = 100;

/// The addresses that the admin API answers at; all if there is none.
pub(crate) struct AdminAt(pub Vec<SocketAddr>);

/// Who and what a call is about.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct About {
    user_id: Option<String>,
    subject: Option<String>,
    route: Option<String>,
    prefix: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
    by: Option<String>,
}

pub(super) fn routes(config: &mut ServiceConfig) {
    for path in ["config", "state", "reset", "explain", "audit", "top", "export", "import"] {
        config.service(web::resource(format!("/admin/rate-limit/{path}")).default_service(web::to(call)));
    }
}

/// One call: asked at the right address, known path, known method, known caller, then what it does.
async fn call(api: Shared, at: Data<AdminAt>, request: HttpRequest, mut payload: Payload) -> HttpResponse {
    if !at.0.is_empty() && !at.0.contains(&request.app_config().local_addr()) {
        return super::not_found(payload).await;
    }
    let import = request.path().ends_with("/import");
    let most = if import { MOST_BATCH_BYTES } else { MOST_CHECK_BYTES };
    let writes = request.method() != Method::GET && request.method() != Method::HEAD && !request.path().ends_with("/explain");
    let token = match auth::authenticate(&api, &request, writes).await {
        Ok(token) => token,
        Err(problem) => {
            body::drain(&mut payload, most, super::DRAIN_PATIENCE).await;
            let status = problem.status;
            let mut response = refuse(&problem);
            if status == 401 {
                response.headers_mut().insert(header::WWW_AUTHENTICATE, header::HeaderValue::from_static("Bearer"));
            }
            return response;
        }
    };
    match answer(&api, &request, &mut payload, most, &token).await {
        Ok(response) => response,
        Err(problem) => {
            let wrong_method = problem.status == 405;
            let mut response = refuse(&problem);
            if wrong_method {
                response.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static(allowed(request.path())));
            }
            response
        }
    }
}

/// The methods of a path.
fn allowed(path: &str) -> &'static str {
    match path.rsplit('/').next().unwrap_or("") {
        "config" => "GET, POST, PUT, DELETE",
        "reset" | "explain" | "import" => "POST",
        _ => "GET",
    }
}

async fn answer(api: &Data<Api>, request: &HttpRequest, payload: &mut Payload, most: usize, token: &str) -> Result<HttpResponse, Problem> {
    if let Err(problem) = body::expect_json(request.headers()) {
        body::drain(payload, most, super::DRAIN_PATIENCE).await;
        return Err(problem);
    }
    let bytes = body::read(request.headers(), payload, most, api.settings.body_timeout).await?;
    let about = Query::<About>::from_query(request.query_string())
        .map_err(|error| Problem::new(400, "invalid_query", format!("the query cannot be used: {error}")))?
        .into_inner();
    if about.limit.is_some_and(|limit| !(1..=MOST_ITEMS).contains(&limit)) {
        return Err(Problem::new(400, "invalid_query", format!("limit: must be 1 to {MOST_ITEMS}")));
    }
    let order =
        |reason: Option<String>| -> Result<Order, Problem> { Ok(Order { by: token.to_owned(), reason, if_match: if_match(request)? }) };
    let path = request.path().rsplit('/').next().unwrap_or("");
    match (path, request.method().as_str()) {
        ("config", "GET") if about.user_id.is_none() && about.subject.is_none() => show::list(api, &about).await,
        ("config", "GET") => show::one(api, &target(api, &about, None)?).await,
        ("config", "DELETE") => change::make(api, &target(api, &about, None)?, &Change::Delete, &order(None)?, false).await,
        ("config", method @ ("POST" | "PUT")) => {
            let mut fields = object(&bytes)?;
            let target = target(api, &about, Some(&mut fields))?;
            let asked = change::parse(fields, method == "PUT")?;
            change::make(api, &target, &asked.change, &order(asked.reason)?, asked.refill).await
        }
        ("state", "GET") => show::state(api, &target(api, &about, None)?).await,
        ("reset", "POST") => {
            let target = target(api, &about, None)?;
            api.limiter.reset(&target).await.map_err(problem)?;
            Ok(ok(&json!({"status": "reset", "user_id": target.subject.to_string()})))
        }
        ("audit", "GET") => show::audit(api, &target(api, &about, None)?, about.limit.unwrap_or(SOME_ITEMS).min(MOST_ITEMS)).await,
        ("top", "GET") => show::top(api, &about).await,
        ("explain", "POST") => explain::explain(api, request, &bytes).await,
        ("export", "GET") => show::export(api).await,
        ("import", "POST") => change::import(api, &bytes, &order(None)?).await,
        (_, method) => Err(Problem::new(405, "method_not_allowed", format!("{method} is not answered here"))),
    }
}

fn ok(body: &Value) -> HttpResponse {
    builder(200).insert_header((CONTENT_TYPE, JSON)).insert_header((CACHE_CONTROL, NO_STORE)).body(body.to_string())
}

fn object(bytes: &[u8]) -> Result<Map<String, Value>, Problem> {
    body::parse_object(if bytes.trim_ascii().is_empty() { b"{}" } else { bytes })
}

/// Who a call is about: `user_id`, `subject`, or the same in the body, where an `api_key` may stand too.
fn target(api: &Api, about: &About, fields: Option<&mut Map<String, Value>>) -> Result<Target, Problem> {
    let mut named = Vec::new();
    let invalid = |error: &dyn std::fmt::Display| Problem::new(400, "invalid_user", error.to_string());
    let user = |id: &str| Subject::user(id).map_err(|error| invalid(&error));
    let reserved = |text: &str| reserved(api, text);
    named.extend(about.user_id.as_deref().map(user));
    named.extend(about.subject.as_deref().map(reserved));
    if let Some(fields) = fields {
        let mut text = |name: &str| match fields.remove(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::new(400, "invalid_body", format!("{name}: must be a text"))),
        };
        named.extend(text("user_id")?.map(|id| user(&id)));
        named.extend(text("subject")?.map(|id| reserved(&id)));
        named.extend(text("api_key")?.map(|key| api.settings.key_hasher.subject(&[key.as_bytes()]).map_err(|error| invalid(&error))));
    }
    let mut named = named.into_iter();
    match (named.next(), named.next()) {
        (Some(subject), None) => Ok(Target { subject: subject?, route: about.route.as_deref().map(Into::into) }),
        (None, _) => Err(Problem::new(400, "missing_user", "say who it is about: user_id or subject")),
        (Some(_), Some(_)) => Err(Problem::new(400, "invalid_user", "say only once who it is about")),
    }
}

/// A subject that is no user. An address may be written in any of its ways: it stands for the client that it is limited as.
fn reserved(api: &Api, text: &str) -> Result<Subject, Problem> {
    let text = if text.starts_with("ip:") { text.to_ascii_lowercase() } else { text.to_owned() };
    let subject = Subject::from_reserved(&text).ok_or_else(|| Problem::new(400, "invalid_subject", "subject is key:…, ip:… or anon:"))?;
    let Subject::Address(written) = &subject else { return Ok(subject) };
    let prefix = api.limiter.config().identity.ipv6_prefix;
    // (A network that was cut before keeps its address in front of the slash; `unknown` is the fallback that all unreadable ones share.)
    let address = written.split('/').next().unwrap_or_default();
    Ok(parse_address(address.as_bytes()).map_or(subject, |address| Subject::Address(canonical(address, prefix))))
}

/// The version that the caller saw: `If-Match: "17"`.
fn if_match(request: &HttpRequest) -> Result<Option<u64>, Problem> {
    let Some(value) = request.headers().get(IF_MATCH) else { return Ok(None) };
    let version = value.to_str().ok().and_then(|text| text.trim_matches('"').parse().ok());
    version.map(Some).ok_or_else(|| Problem::new(400, "invalid_if_match", "If-Match takes the version in quotes"))
}

/// By value: it stands in `map_err`.
#[expect(clippy::needless_pass_by_value, reason = "map_err hands it over")]
fn problem(error: OperateError) -> Problem {
    match error {
        OperateError::Store(_) => Problem::store_away(),
        OperateError::Stale(_) => Problem::new(412, "stale", error.to_string()),
        OperateError::NoOverrides => Problem::new(503, "no_overrides", error.to_string()),
        OperateError::NoTop => Problem::new(503, "no_top", error.to_string()),
        OperateError::UnknownRoute => Problem::new(404, "unknown_route", error.to_string()),
        OperateError::UnknownTier(_) | OperateError::Policy(_) | OperateError::Change(_) => {
            Problem::new(400, "invalid_limits", error.to_string())
        }
    }
}
