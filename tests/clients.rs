//! What people use to talk to the service, for real: the examples in Python and shell, the official openai client behind the middleware,
//! and schemathesis, which asks everything that the description of the API allows and forbids.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, mpsc};

use actix_web::dev::ServiceRequest;
use actix_web::http::header::AUTHORIZATION;
use actix_web::{App, HttpServer, web};
use serde_json::json;
use support::server::{PATIENCE, Process, Setup, limits};
use weir::clock::ManualClock;
use weir::config::Config;
use weir::http::Problem;
use weir::identity::{KeyHasher, Subject};
use weir::limit::{Field, US};
use weir::limiter::Limiter;
use weir::middleware::RateLimit;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// The environment with the pinned versions, made if it is not there.
fn venv() -> PathBuf {
    let made = Command::new("sh").arg("deploy/test-venv.sh").current_dir(ROOT).output().unwrap();
    assert!(made.status.success(), "deploy/test-venv.sh: {} (Debian: apt-get install python3-venv)", said(&made));
    PathBuf::from(String::from_utf8(made.stdout).unwrap().trim())
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Two at once, then four a second.
fn two() -> Config {
    limits(&[(Field::Algorithm, "token_bucket"), (Field::BucketCapacity, "2"), (Field::TokensPerSecond, "4")])
}

fn by_token(request: &ServiceRequest) -> Result<Option<Subject>, Problem> {
    let Some(token) = request.headers().get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer ")) else {
        return Ok(None);
    };
    KeyHasher::default().subject(&[token]).map(Some).map_err(|error| Problem::new(400, "invalid_api_key", error.to_string()))
}

/// A stub of an LLM provider and of a site with pages, each request at a cost of 2. It lives as long as the test's process.
fn program() -> String {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let limiter = Arc::new(Limiter::in_memory(two(), 1_000));
        actix_web::rt::System::new().block_on(async move {
            let completion = || async {
                let message = json!({"role": "assistant", "content": "stub"});
                let choices = json!([{"index": 0, "finish_reason": "stop", "message": message}]);
                web::Json(json!({"id": "1", "object": "chat.completion", "created": 1, "model": "stub", "choices": choices}))
            };
            let server = HttpServer::new(move || {
                App::new()
                    .wrap(RateLimit::new(limiter.clone()).identify_by(by_token).cost_by(|_| Some(2)))
                    .route("/v1/chat/completions", web::post().to(completion))
                    .route("/page/{n}", web::get().to(|| async { "<html>page</html>" }))
            });
            let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
            tell.send(server.addrs()[0]).unwrap();
            server.run().await.unwrap();
        });
    });
    format!("http://{}", told.recv_timeout(PATIENCE).unwrap())
}

#[test]
fn the_examples_do_what_they_say_and_the_openai_client_waits_as_told() {
    let service = Setup::default().config(two()).start();
    let ran = Command::new(venv().join("bin/python"))
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "test_examples.py"])
        .current_dir(Path::new(ROOT).join("examples/python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("WEIR_URL", service.url(""))
        .env("PROGRAM_URL", program())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

#[test]
fn schemathesis_finds_nothing_that_is_not_as_described() {
    let service = Process::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let ran = Command::new(venv().join("bin/schemathesis"))
        .args(["run", &format!("http://{}/openapi.json", service.address), "--max-examples", "15", "--seed", "1", "--no-color"])
        .args(["--phases", "examples,coverage,fuzzing", "--checks", "all", "--continue-on-failure", "--generation-database", "none"])
        // That one of two parameters must be there, and not both, no schema says: what it allows may be 400.
        .args(["--exclude-checks", "positive_data_acceptance"])
        // JSON lines are nothing that schemathesis can write; the door for proxies takes every method, which no description can say.
        .args(["--exclude-path", "/admin/rate-limit/import", "--exclude-path", "/v1/auth"])
        .args(["--header", &format!("Authorization: Bearer {}", service.token())])
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", said(&ran));
}

/// Ten minutes of a thousand clients that come back exactly when they were told, on a clock of the test's own.
#[test]
fn case_113_a_herd_that_waits_as_told_gets_the_limit_and_no_more() {
    const START: i64 = 1_700_000_000 * US;
    let clock = Arc::new(ManualClock::new(START));
    let fields = [(Field::Algorithm, "sliding_window"), (Field::WindowLimit, "100"), (Field::WindowSeconds, "60")];
    let service = Setup::with_clock(clock.clone()).config(limits(&fields)).start();
    let mut raw = service.connect();
    // When each comes back, and which it is.
    let mut herd: BTreeSet<(i64, usize)> = (0..1_000).map(|client| (START, client)).collect();
    let mut admitted = Vec::new();
    while let Some((at, client)) = herd.pop_first().filter(|(at, _)| *at < START + 600 * US) {
        clock.set(at);
        let reply = raw.check("", r#"{"user":"herd"}"#).expect("an answer");
        let wait = match reply.status {
            200 => {
                admitted.push(at);
                US
            }
            429 => reply.header("retry-after").unwrap().parse::<i64>().unwrap() * US,
            other => panic!("{other}: {}", reply.body),
        };
        herd.insert((at + wait, client));
    }
    for (index, at) in admitted.iter().enumerate() {
        let within = admitted[index..].iter().take_while(|later| **later < at + 60 * US).count();
        assert!(within <= 100, "{within} within 60 s of {at}");
    }
    for minute in 0..10 {
        let from = START + minute * 60 * US;
        let within = admitted.iter().filter(|at| (from..from + 60 * US).contains(*at)).count();
        assert_eq!(within, 100, "minute {minute}");
    }
}
