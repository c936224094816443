//! The floor that the service is measured against: the same framework, a JSON body in, a JSON body of the same size out.

use std::net::SocketAddr;

use actix_web::web::{self, Json};
use actix_web::{App, HttpResponse, HttpServer};
use serde::{Deserialize, Serialize};

use crate::Failure;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long, default_value_t = 1)]
    workers: usize,
}

#[derive(Deserialize)]
struct Question {
    user: String,
    cost: u64,
}

#[derive(Serialize)]
struct Answer {
    allowed: bool,
    subject: String,
    limit: u64,
    remaining: u64,
    reset_after: f64,
    retry_after: f64,
    breaker: &'static str,
    reason: Option<&'static str>,
}

async fn answer(question: Json<Question>) -> HttpResponse {
    let Question { user, cost } = question.into_inner();
    HttpResponse::Ok().json(Answer {
        allowed: true,
        subject: user,
        limit: 100,
        remaining: 100 - cost,
        reset_after: 0.5,
        retry_after: 0.0,
        breaker: "closed",
        reason: None,
    })
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let server = HttpServer::new(|| App::new().service(web::resource("/v1/check").route(web::post().to(answer))))
        .workers(args.workers)
        .bind(args.bind)?;
    actix_web::rt::System::new().block_on(server.run())?;
    Ok(())
}
