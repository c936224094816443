//! The service's HTTP API: JSON in, decisions out. Each door translates to and from a decision of the [`Limiter`] and decides nothing.
//!
//! Layout: `check` and `batch` are the doors, `health` is for whoever watches; `headers` and `problem` say a decision in HTTP's
//! words and are pure; `body` reads what was sent; `edge` is what every request passes on its way in and out; `openapi` describes it all.

mod admin;
mod batch;
mod body;
mod check;
mod edge;
mod headers;
mod health;
mod openapi;
mod problem;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use actix_web::web::{self, Data, Payload, ServiceConfig};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder, Resource};
use tracing::warn;

pub use admin::{Role, Token, TokenFileError, Tokens};
pub(crate) use body::drain;
pub use body::{CheckBody, Cost};
pub(crate) use check::{each_header, problem_of, store_away};
pub(crate) use edge::{cors, edge};
pub use headers::{EXPOSED, Families, of_decision, whole_millis, whole_seconds};
pub use openapi::openapi;
pub use problem::{Problem, Refusal, Seconds};

use crate::config::Config;
use crate::identity::{Claims, Door, IdentityError, Ignored, KeyHasher, Peer, Subject, resolve};
use crate::limiter::Limiter;
use crate::telemetry::Metrics;

/// The longest body of a check, bytes.
pub(crate) const MOST_CHECK_BYTES: usize = 64 * 1024;
/// The longest body of a batch, bytes.
const MOST_BATCH_BYTES: usize = 1024 * 1024;
/// How long to wait for the rest of a body that nobody will look at.
pub(crate) const DRAIN_PATIENCE: Duration = Duration::from_millis(500);
/// What to tell a client when the store is away: it is probed about once a second.
const STORE_AWAY_SECONDS: i64 = 1;

const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// How the API answers.
#[derive(Clone)]
pub struct Settings {
    /// Which families of headers are sent.
    pub headers: Families,
    /// Origins whose pages may ask; `*` is any; none turns CORS off.
    pub cors_origins: Vec<String>,
    /// How long a body may take to arrive.
    pub body_timeout: Duration,
    /// The word for the store in `/health/ready`.
    pub store: &'static str,
    /// Turns API keys into subjects.
    pub key_hasher: KeyHasher,
    /// Whether `/openapi.json` and `/docs` are answered.
    pub docs: bool,
    /// Who may administer; nobody by default.
    pub tokens: Arc<Tokens>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            headers: Families::default(),
            cors_origins: Vec::new(),
            body_timeout: Duration::from_secs(10),
            store: "memory",
            key_hasher: KeyHasher::default(),
            docs: true,
            tokens: Arc::default(),
        }
    }
}

/// What the doors share: one per process, made outside of the app factory, which runs once per worker.
pub struct Api {
    limiter: Arc<Limiter>,
    metrics: Arc<Metrics>,
    settings: Settings,
    draining: AtomicBool,
    warned_of_claims: AtomicBool,
}

impl Api {
    /// The API of this limiter.
    #[must_use]
    pub const fn new(limiter: Arc<Limiter>, metrics: Arc<Metrics>, settings: Settings) -> Self {
        Self { limiter, metrics, settings, draining: AtomicBool::new(false), warned_of_claims: AtomicBool::new(false) }
    }

    /// From here on the process is not ready, and every answer closes its connection.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::SeqCst);
        self.metrics.set_draining();
    }

    /// Whether the process is on its way out.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    pub(crate) const fn settings(&self) -> &Settings {
        &self.settings
    }
}

/// Puts the API's routes into an app whose `Data` holds an [`Api`].
pub(crate) fn routes(config: &mut ServiceConfig) {
    config
        .service(only(web::resource("/v1/check").route(web::post().to(check::check)), "POST"))
        .service(only(web::resource("/v1/check/batch").route(web::post().to(batch::batch)), "POST"))
        .service(get("/health/live", || web::to(health::live)))
        .service(get("/health/ready", || web::to(health::ready)))
        .service(get("/metrics", || web::to(health::metrics)))
        .configure(openapi::routes)
        .configure(admin::routes)
        .default_service(web::to(not_found));
}

/// A resource for GET and HEAD.
fn get(path: &str, to: impl Fn() -> actix_web::Route) -> Resource {
    only(web::resource(path).route(to().guard(actix_web::guard::Get())).route(to().guard(actix_web::guard::Head())), "GET, HEAD")
}

/// Every other method is 405.
fn only(resource: Resource, allow: &'static str) -> Resource {
    resource.default_service(web::to(move |request: HttpRequest, mut payload: Payload| async move {
        drain(&mut payload, MOST_CHECK_BYTES, DRAIN_PATIENCE).await;
        let detail = format!("{} is not answered here; use {allow}", request.method());
        let mut response = refuse(&Problem::new(405, "method_not_allowed", detail));
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allow));
        response
    }))
}

async fn not_found(mut payload: Payload) -> HttpResponse {
    drain(&mut payload, MOST_CHECK_BYTES, DRAIN_PATIENCE).await;
    nothing_here()
}

fn nothing_here() -> HttpResponse {
    refuse(&Problem::new(404, "not_found", "there is nothing at this path; ask at POST /v1/check"))
}

/// Who is limited. The one place where a door finds that out.
fn identify(api: &Api, config: &Config, request: &HttpRequest, body: &CheckBody) -> Result<Subject, Problem> {
    let settings = &config.identity;
    let headers = request.headers();
    let lines = |name: &str| headers.get_all(name).map(HeaderValue::as_bytes).collect::<Vec<_>>();
    let claims = Claims {
        peer: request.peer_addr().map_or(Peer::Unix, |peer| Peer::Tcp(peer.ip())),
        door: Door::Check,
        user: body.user.as_deref(),
        address: body.address.as_deref(),
        api_keys: &lines(&settings.api_key_header),
        user_ids: &lines(&settings.user_id_header),
        forwarded: &lines("forwarded"),
        x_forwarded_for: &lines("x-forwarded-for"),
    };
    let identified = resolve(settings, &api.settings.key_hasher, &claims).map_err(nobody)?;
    if identified.ignored != Ignored::default() {
        api.metrics.claim_ignored();
        if !api.warned_of_claims.swap(true, Ordering::Relaxed) {
            warn!(
                peer = ?claims.peer,
                "somebody who is not trusted says who asks, and is not believed; if this is your proxy, put its address into identity.trusted_proxies (said once)"
            );
        }
    }
    Ok(identified.subject)
}

/// The problem of a request of which cannot be said who asks.
pub(crate) fn nobody(error: IdentityError) -> Problem {
    match error {
        IdentityError::UntrustedPeer => Problem::new(403, "untrusted_peer", error.to_string()),
        IdentityError::InvalidUserId(_) | IdentityError::TwoUserIds => Problem::new(400, "invalid_user", error.to_string()),
        IdentityError::InvalidApiKey(_) => Problem::new(400, "invalid_api_key", error.to_string()),
        IdentityError::InvalidAddress => Problem::new(400, "invalid_address", error.to_string()),
    }
}

/// The answer for a problem that no limit is behind.
pub(crate) fn refuse(problem: &Problem) -> HttpResponse {
    let mut response = builder(problem.status);
    response.insert_header((CONTENT_TYPE, PROBLEM_JSON)).insert_header((CACHE_CONTROL, NO_STORE));
    match problem.status {
        503 => {
            response.insert_header((RETRY_AFTER, HeaderValue::from(STORE_AWAY_SECONDS)));
        }
        // What is left of the body may never come.
        408 => {
            response.force_close();
        }
        _ => {}
    }
    response.body(problem.to_json())
}

fn builder(status: u16) -> HttpResponseBuilder {
    HttpResponse::build(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
}

type Shared = Data<Api>;
