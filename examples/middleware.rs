//! A program of one's own behind Weir's middleware, in memory or on Redis:
//!
//! ```sh
//! cargo run --example middleware                                   # listens on 127.0.0.1:8081
//! cargo run --example middleware -- 127.0.0.1:8081 redis://127.0.0.1:6379
//! curl -i -H 'Authorization: Bearer alice' http://127.0.0.1:8081/
//! ```
#![expect(clippy::print_stderr, reason = "a program that says where it listens")]

use std::error::Error;
use std::sync::Arc;

use actix_web::dev::ServiceRequest;
use actix_web::http::header::AUTHORIZATION;
use actix_web::web::{self, ReqData};
use actix_web::{App, HttpServer};
use weir::config::{Config, OnFailure};
use weir::http::Problem;
use weir::identity::{KeyHasher, Subject};
use weir::limiter::{Answer, Limiter};
use weir::middleware::RateLimit;
use weir::store::RedisOptions;

const LIMITS: &str = "
defaults: {tokens_per_second: 2, bucket_capacity: 5}
routes:
  - {name: export, match: {path: /export/*}, cost: 5}
";

/// Whoever sends a bearer token is limited by it (a real program checks it first), everybody else by address.
fn by_token(request: &ServiceRequest) -> Result<Option<Subject>, Problem> {
    let Some(value) = request.headers().get(AUTHORIZATION) else { return Ok(None) };
    let token = value.as_bytes().strip_prefix(b"Bearer ").ok_or_else(|| Problem::new(401, "unauthorized", "send Bearer TOKEN"))?;
    let subject = KeyHasher::default().subject(&[token]).map_err(|error| Problem::new(400, "invalid_api_key", error.to_string()))?;
    Ok(Some(subject))
}

async fn hello(answer: ReqData<Answer>) -> String {
    format!("hello; {} left\n", answer.decision.quota.map_or(0, |quota| quota.remaining))
}

#[actix_web::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let (config, _) = Config::from_yaml(LIMITS).map_err(|mistakes| format!("{mistakes:?}"))?;
    // Outside of the closure, which runs once per worker.
    let limiter = Arc::new(match arguments.next() {
        Some(url) => Limiter::on_redis(config, RedisOptions { url, ..RedisOptions::default() })?,
        None => Limiter::in_memory(config, 100_000),
    });
    let server = HttpServer::new(move || {
        let limit = RateLimit::new(limiter.clone())
            .identify_by(by_token)
            .exempt(|request| request.path() == "/health")
            .on_store_failure(OnFailure::Local);
        App::new()
            .wrap(limit)
            .route("/health", web::get().to(|| async { "ok" }))
            .route("/export/{name}", web::get().to(hello))
            .route("/", web::get().to(hello))
    });
    let server = server.bind(&address)?;
    for address in server.addrs() {
        eprintln!("listening on http://{address}");
    }
    server.run().await?;
    Ok(())
}
