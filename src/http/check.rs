//! `POST /v1/check`: may this user do this now?

use actix_web::http::header::CONTENT_TYPE;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde_json::{Map, Value};

use super::problem::Problem;
use super::{Shared, answer, body};
use crate::identity::{Claims, resolve};
use crate::limit::{MAX_COST, Units};
use crate::limiter::Request;

pub(super) async fn check(shared: Data<Shared>, request: HttpRequest, payload: Payload) -> HttpResponse {
    let body = match body::read(payload, body::SINGLE).await {
        Ok(body) => body,
        Err(problem) => return problem.response(),
    };
    let question = match question(&request, &body) {
        Ok(question) => question,
        Err(problem) => return problem.response(),
    };
    match shared.limiter.check(question).await {
        Ok(answer) => answer::response(&answer, shared.families),
        Err(error) => Problem::store(&error).response(),
    }
}

/// What is asked, or what is wrong with it. No store is called before this has said yes.
fn question(request: &HttpRequest, body: &[u8]) -> Result<Request, Problem> {
    check_content_type(request)?;
    let fields = Fields::parse(body)?;
    let claims = Claims { peer: request.peer_addr().map(|peer| peer.ip()), user: fields.text("user")?, address: fields.text("address")? };
    // Known and checked, and of use once there are routes.
    fields.text("path")?;
    fields.text("method")?;
    let cost = fields.cost()?;
    let subject = resolve(&claims).map_err(Problem::identity)?;
    Ok(Request { subject, cost })
}

/// JSON; or nothing said, or what `curl -d` says when it is told nothing, since people at night write neither.
fn check_content_type(request: &HttpRequest) -> Result<(), Problem> {
    let Some(value) = request.headers().get(CONTENT_TYPE) else { return Ok(()) };
    let found = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
    let media_type = found.split(';').next().unwrap_or("").trim();
    let json = matches!(media_type, "application/json" | "application/x-www-form-urlencoded") || media_type.ends_with("+json");
    if json { Ok(()) } else { Err(Problem::unsupported_media_type(media_type)) }
}

/// The body's fields.
struct Fields(Map<String, Value>);

const KNOWN: [&str; 5] = ["user", "cost", "path", "method", "address"];

impl Fields {
    /// An empty body says nothing, which is allowed.
    fn parse(body: &[u8]) -> Result<Self, Problem> {
        if body.iter().all(u8::is_ascii_whitespace) {
            return Ok(Self(Map::new()));
        }
        let value =
            serde_json::from_slice(body).map_err(|error| Problem::bad_request("body", &format!("the body is not JSON: {error}")))?;
        let Value::Object(fields) = value else {
            return Err(Problem::bad_request("body", "the body must be an object like {\"user\":\"alice\",\"cost\":1}"));
        };
        match fields.keys().find(|key| !KNOWN.contains(&key.as_str())) {
            Some(unknown) => {
                let shown: String = unknown.chars().take(60).collect();
                Err(Problem::bad_request(&shown, &format!("unknown field {shown:?}; known are {}", KNOWN.join(", "))))
            }
            None => Ok(Self(fields)),
        }
    }

    fn text(&self, name: &str) -> Result<Option<&str>, Problem> {
        match self.0.get(name) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Problem::bad_request(name, &format!("{name}: must be a text"))),
        }
    }

    /// A whole number 0 … 1e9; 1 when it is missing. `1e3` and `1000.0` are the whole number 1000.
    fn cost(&self) -> Result<Units, Problem> {
        let Some(value) = self.0.get("cost") else { return Ok(1) };
        let cost = value.as_u64().or_else(|| value.as_f64().and_then(whole));
        cost.filter(|cost| *cost <= MAX_COST && value.is_number())
            .ok_or_else(|| Problem::bad_request("cost", &format!("cost: must be a whole number from 0 to {MAX_COST}")))
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and within range")]
fn whole(number: f64) -> Option<Units> {
    (number.fract() == 0.0 && (0.0..=MAX_COST as f64).contains(&number)).then_some(number as Units)
}
