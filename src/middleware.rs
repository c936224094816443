//! Weir inside somebody else's actix-web program: `App::new().wrap(RateLimit::new(limiter))`.
//!
//! Each request asks the [`Limiter`] before it reaches the program. An admitted one goes on, and its answer gets the rate-limit
//! headers; any other is answered here, with the same headers and problem bodies as the service's own doors.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use actix_web::{App, HttpServer, web};
//! use weir::config::Config;
//! use weir::limiter::Limiter;
//! use weir::middleware::RateLimit;
//!
//! #[actix_web::main]
//! async fn main() -> std::io::Result<()> {
//!     let (config, _warnings) = Config::from_yaml("defaults: {tokens_per_second: 5, bucket_capacity: 20}").expect("right limits");
//!     // Outside of the closure, which runs once per worker: all workers share one limiter.
//!     let limiter = Arc::new(Limiter::in_memory(config, 100_000));
//!     HttpServer::new(move || {
//!         App::new()
//!             .wrap(RateLimit::new(limiter.clone()).cost_by(|request| request.path().starts_with("/export").then_some(10)))
//!             .route("/", web::get().to(|| async { "hello" }))
//!     })
//!     .bind("127.0.0.1:8081")?
//!     .run()
//!     .await
//! }
//! ```
//!
//! # Who asks
//!
//! As at the forward-auth door: the client's address (the connection's, or what `identity.trusted_proxies` say), and a user only
//! by a header that `identity.auth_headers` names and that comes from `identity.trusted_peers`. A program that knows its users
//! says so with [`RateLimit::identify_by`].
//!
//! # CORS
//!
//! A preflight (`OPTIONS` with `Origin` and `Access-Control-Request-Method`) is passed on and never charged, unless
//! [`RateLimit::charge_preflights`] says otherwise; any other `OPTIONS` is a request like all. Wrap `actix_cors::Cors` *after*
//! `RateLimit`, which puts it outside: then refusals too carry the headers that let a page read them. [`crate::http::EXPOSED`] is the list
//! for its `expose_headers`.
//!
//! # Bodies
//!
//! A request that is answered here has its body read first, up to 64 KiB: actix closes a connection whose request was not read,
//! and a client that is refused would pay for a new one each time.

use std::future::{Ready, ready};
use std::rc::Rc;
use std::sync::Arc;

use actix_web::body::{EitherBody, MessageBody};
use actix_web::dev::{Service, ServiceRequest, ServiceResponse, Transform, forward_ready};
use actix_web::http::Method;
use actix_web::http::header::{ACCESS_CONTROL_REQUEST_METHOD, HeaderValue, ORIGIN};
use actix_web::{Error, HttpMessage};
use futures_util::future::LocalBoxFuture;

use crate::config::OnFailure;
use crate::http::{self, Families, Problem};
use crate::identity::{Claims, Door, KeyHasher, Peer, Subject, resolve};
use crate::limit::{MAX_COST, Units};
use crate::limiter::{Answer, Limiter, Request};

type Identify = dyn Fn(&ServiceRequest) -> Result<Option<Subject>, Problem> + Send + Sync;
type Routing = dyn Fn(&ServiceRequest) -> Option<String> + Send + Sync;
type Pricing = dyn Fn(&ServiceRequest) -> Option<Units> + Send + Sync;
type Exempting = dyn Fn(&ServiceRequest) -> bool + Send + Sync;

/// The middleware. Cheap to clone; what it is told holds for the clones too.
#[derive(Clone)]
pub struct RateLimit {
    limiter: Arc<Limiter>,
    identify: Option<Arc<Identify>>,
    route: Option<Arc<Routing>>,
    cost: Option<Arc<Pricing>>,
    exempt: Option<Arc<Exempting>>,
    on_store_failure: Option<OnFailure>,
    charge_preflights: bool,
    headers: Families,
    key_hasher: KeyHasher,
}

impl RateLimit {
    /// Limits what `limiter` limits: by address, with the routes and costs of its configuration.
    #[must_use]
    pub fn new(limiter: Arc<Limiter>) -> Self {
        Self {
            limiter,
            identify: None,
            route: None,
            cost: None,
            exempt: None,
            on_store_failure: None,
            charge_preflights: false,
            headers: Families::default(),
            key_hasher: KeyHasher::default(),
        }
    }

    /// `identify` says who asks; nothing leaves it to the address, a problem is the answer (and nothing is charged). A name that the
    /// client may choose freely is no identity: it would be a new one for each request.
    #[must_use]
    pub fn identify_by(mut self, identify: impl Fn(&ServiceRequest) -> Result<Option<Subject>, Problem> + Send + Sync + 'static) -> Self {
        self.identify = Some(Arc::new(identify));
        self
    }

    /// `path` is matched with the routes of the configuration instead of the request's own path; nothing leaves it at that.
    #[must_use]
    pub fn path_by(mut self, path: impl Fn(&ServiceRequest) -> Option<String> + Send + Sync + 'static) -> Self {
        self.route = Some(Arc::new(path));
        self
    }

    /// What a request takes: 0 … 1e9, more counts as 1e9; nothing is what its route costs, else 1.
    #[must_use]
    pub fn cost_by(mut self, cost: impl Fn(&ServiceRequest) -> Option<Units> + Send + Sync + 'static) -> Self {
        self.cost = Some(Arc::new(cost));
        self
    }

    /// Requests that pass without a question: probes, metrics.
    #[must_use]
    pub fn exempt(mut self, exempt: impl Fn(&ServiceRequest) -> bool + Send + Sync + 'static) -> Self {
        self.exempt = Some(Arc::new(exempt));
        self
    }

    /// What is answered while the store cannot say, instead of what the configuration says.
    #[must_use]
    pub const fn on_store_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_store_failure = Some(on_failure);
        self
    }

    /// Whether CORS preflights are charged as other requests are; they are not by default.
    #[must_use]
    pub const fn charge_preflights(mut self, charge: bool) -> Self {
        self.charge_preflights = charge;
        self
    }

    /// Which families of headers are sent; all by default.
    #[must_use]
    pub const fn headers(mut self, headers: Families) -> Self {
        self.headers = headers;
        self
    }

    /// Turns API keys of `identity.auth_headers` into subjects; the same secret as the service's gives the same subjects.
    #[must_use]
    pub fn key_hasher(mut self, key_hasher: KeyHasher) -> Self {
        self.key_hasher = key_hasher;
        self
    }

    fn passes(&self, request: &ServiceRequest) -> bool {
        (!self.charge_preflights && is_preflight(request)) || self.exempt.as_ref().is_some_and(|exempt| exempt(request))
    }

    /// What to ask the limiter for `request`.
    fn question(&self, request: &ServiceRequest) -> Result<Request, Problem> {
        let said = self.identify.as_ref().map_or(Ok(None), |identify| identify(request))?;
        let subject = said.map_or_else(|| self.by_configuration(request), Ok)?;
        let path = self.route.as_ref().and_then(|path| path(request)).unwrap_or_else(|| request.path().to_owned());
        let cost = self.cost.as_ref().and_then(|cost| cost(request)).map(|cost| cost.min(MAX_COST));
        Ok(Request { subject, path: Some(path.into()), method: Some(request.method().as_str().into()), cost })
    }

    fn by_configuration(&self, request: &ServiceRequest) -> Result<Subject, Problem> {
        let config = self.limiter.config();
        let settings = &config.identity;
        let lines = |name: &str| request.headers().get_all(name).map(HeaderValue::as_bytes).collect::<Vec<_>>();
        let named = |is_key: bool| {
            let names = settings.auth_headers.iter().filter(move |name| (**name == settings.api_key_header) == is_key);
            names.flat_map(|name| lines(name)).collect::<Vec<_>>()
        };
        let claims = Claims {
            peer: request.peer_addr().map_or(Peer::Unix, |peer| Peer::Tcp(peer.ip())),
            door: Door::Proxy,
            user: None,
            address: None,
            api_keys: &named(true),
            user_ids: &named(false),
            forwarded: &lines("forwarded"),
            x_forwarded_for: &lines("x-forwarded-for"),
        };
        Ok(resolve(settings, &self.key_hasher, &claims).map_err(http::identity_problem)?.subject)
    }

    /// The answer of the limiter when it admits, else the problem and, where a limit is behind it, its answer.
    async fn ask(&self, request: &ServiceRequest) -> Result<Answer, (Problem, Option<Answer>)> {
        let question = self.question(request).map_err(|problem| (problem, None))?;
        let answer = self.limiter.check_or(question, self.on_store_failure).await.map_err(|error| (http::store_away(&error), None))?;
        match http::problem_of(&answer) {
            None => Ok(answer),
            Some(problem) => Err((problem, Some(answer))),
        }
    }
}

/// Whether a browser asks in advance whether it may ask.
fn is_preflight(request: &ServiceRequest) -> bool {
    let headers = request.headers();
    request.method() == Method::OPTIONS && headers.contains_key(ORIGIN) && headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

impl<S, B> Transform<S, ServiceRequest> for RateLimit
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Transform = Limited<S>;
    type InitError = ();
    type Future = Ready<Result<Self::Transform, ()>>;

    fn new_transform(&self, service: S) -> Self::Future {
        ready(Ok(Limited { service: Rc::new(service), limit: Rc::new(self.clone()) }))
    }
}

/// A service behind a [`RateLimit`].
pub struct Limited<S> {
    service: Rc<S>,
    limit: Rc<RateLimit>,
}

impl<S, B> Service<ServiceRequest> for Limited<S>
where
    S: Service<ServiceRequest, Response = ServiceResponse<B>, Error = Error> + 'static,
    B: MessageBody,
{
    type Response = ServiceResponse<EitherBody<B>>;
    type Error = Error;
    type Future = LocalBoxFuture<'static, Result<Self::Response, Error>>;

    forward_ready!(service);

    fn call(&self, request: ServiceRequest) -> Self::Future {
        let (service, limit) = (Rc::clone(&self.service), Rc::clone(&self.limit));
        Box::pin(async move {
            if limit.passes(&request) {
                return Ok(service.call(request).await?.map_into_left_body());
            }
            match limit.ask(&request).await {
                Ok(answer) => {
                    // The program may look at it: `ReqData<Answer>`.
                    request.extensions_mut().insert(answer.clone());
                    let mut response = service.call(request).await?.map_into_left_body();
                    let headers = response.headers_mut();
                    http::each_header(limit.headers, &answer, |name, value| {
                        headers.insert(name, value);
                    });
                    Ok(response)
                }
                Err((problem, answer)) => Ok(refuse(&limit, request, &problem, answer.as_ref()).await.map_into_right_body()),
            }
        })
    }
}

async fn refuse(limit: &RateLimit, mut request: ServiceRequest, problem: &Problem, answer: Option<&Answer>) -> ServiceResponse {
    http::drain(&mut request.take_payload(), http::MOST_CHECK_BYTES, http::DRAIN_PATIENCE).await;
    let mut response = http::refuse(problem);
    if let Some(answer) = answer {
        let headers = response.headers_mut();
        http::each_header(limit.headers, answer, |name, value| {
            headers.insert(name, value);
        });
    }
    request.into_response(response)
}
