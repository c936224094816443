//! The middleware in a program that is not the service, over real TCP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

use actix_cors::Cors;
use actix_web::dev::{ServerHandle, ServiceRequest};
use actix_web::web::{self, ReqData};
use actix_web::{App, HttpServer};
use support::redis::RedisServer;
use support::server::{PATIENCE, Raw, Reply, Setup, limits};
use weir::clock::ManualClock;
use weir::config::{Config, OnFailure};
use weir::http::{EXPOSED, Families, Problem};
use weir::identity::Subject;
use weir::limit::{Field, US};
use weir::limiter::{Answer, Limiter};
use weir::middleware::RateLimit;
use weir::store::{MemoryStore, RedisOptions};

const NOW: i64 = 1_700_000_000 * US;

/// Somebody's program: every path answers with what the middleware told it.
struct Program {
    address: SocketAddr,
    reached: Arc<AtomicUsize>,
    handle: ServerHandle,
    thread: Option<JoinHandle<()>>,
}

impl Program {
    fn start(limit: impl Fn() -> RateLimit + Send + Clone + 'static) -> Self {
        let (tell, told) = mpsc::channel();
        let reached = Arc::new(AtomicUsize::new(0));
        let counted = reached.clone();
        let thread = std::thread::spawn(move || {
            actix_web::rt::System::new().block_on(async move {
                let server = HttpServer::new(move || {
                    let counted = counted.clone();
                    let cors = Cors::default().allowed_origin("http://page.example").allow_any_method().expose_headers(EXPOSED);
                    App::new().wrap(limit()).wrap(cors).default_service(web::to(
                        move |answer: Option<ReqData<Answer>>, _body: web::Bytes| {
                            counted.fetch_add(1, Ordering::SeqCst);
                            async move { answer.map_or("exempt".to_owned(), |answer| answer.subject.to_string()) }
                        },
                    ))
                })
                .workers(1)
                .disable_signals()
                .bind("127.0.0.1:0")
                .unwrap();
                let address = server.addrs()[0];
                let server = server.run();
                tell.send((address, server.handle())).unwrap();
                server.await.unwrap();
            });
        });
        let (address, handle) = told.recv_timeout(PATIENCE).unwrap();
        Self { address, reached, handle, thread: Some(thread) }
    }

    fn reached(&self) -> usize {
        self.reached.load(Ordering::SeqCst)
    }

    fn connect(&self) -> Raw {
        Raw::connect(self.address)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The command is sent at once; what comes back only tells when it was obeyed, which the thread's end tells too.
        drop(self.handle.stop(false));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn ask(raw: &mut Raw, line: &str, headers: &str) -> Reply {
    raw.send(format!("{line} HTTP/1.1\r\nHost: program\r\n{headers}\r\n"));
    raw.reply().expect("an answer")
}

fn get(raw: &mut Raw, headers: &str) -> Reply {
    ask(raw, "GET /", headers)
}

/// Two requests for each subject, then none for ten seconds.
fn two() -> Config {
    limits(&[(Field::Algorithm, "token_bucket"), (Field::BucketCapacity, "2"), (Field::TokensPerSecond, "0.1")])
}

fn on_manual_clock(config: Config) -> Arc<Limiter> {
    Arc::new(Limiter::new(config, Arc::new(MemoryStore::new(1_000, Arc::new(ManualClock::new(NOW))))))
}

/// For programs that know their users by a header that they have checked.
fn by_name(request: &ServiceRequest) -> Result<Option<Subject>, Problem> {
    let Some(name) = request.headers().get("name") else { return Ok(None) };
    let name = name.to_str().map_err(|_| Problem::new(400, "invalid_user", "the name is not ASCII"))?;
    Subject::user(name).map(Some).map_err(|error| Problem::new(400, "invalid_user", error.to_string()))
}

fn named(limiter: &Arc<Limiter>) -> impl Fn() -> RateLimit + Send + Clone + use<> {
    let limiter = limiter.clone();
    move || RateLimit::new(limiter.clone()).identify_by(by_name)
}

#[test]
fn the_same_headers_and_problems_as_the_service() {
    let program = Program::start(named(&on_manual_clock(two())));
    let service = Setup::with_clock(Arc::new(ManualClock::new(NOW))).config(two()).start();
    let (mut here, mut there) = (program.connect(), service.connect());
    for _ in 0..4 {
        let (one, other) = (get(&mut here, "name: alice\r\n"), there.check("", r#"{"user":"alice"}"#).unwrap());
        assert_eq!(one.status, other.status);
        for name in EXPOSED.iter().filter(|name| *name != "x-request-id") {
            assert_eq!(one.header(name.as_str()), other.header(name.as_str()), "{name}");
        }
        if one.status == 429 {
            assert_eq!(one.body, other.body);
            assert_eq!(one.header("content-type"), Some("application/problem+json"));
            assert_eq!(one.header("cache-control"), Some("no-store"));
        } else {
            assert_eq!(one.body, "alice", "the program sees the answer");
            assert_eq!(one.header("cache-control"), None, "whether an answer of the program may be kept is the program's business");
        }
    }
    assert_eq!(program.reached(), 2, "a refused request does not reach the program");
}

#[test]
fn a_refusal_reads_the_body_and_keeps_the_connection() {
    let program = Program::start(named(&on_manual_clock(two())));
    let mut raw = program.connect();
    let body = "x".repeat(60_000);
    for status in [200, 200, 429, 429, 429, 429] {
        raw.send(format!("POST / HTTP/1.1\r\nHost: program\r\nname: bob\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        assert_eq!(raw.reply().expect("an answer on the same connection").status, status);
    }
    assert_eq!(get(&mut raw, "name: carol\r\n").status, 200);
}

#[test]
fn without_a_name_the_address_decides_and_forged_headers_change_nothing() {
    let program = Program::start({
        let limiter = on_manual_clock(
            Config::from_yaml("{defaults: {window_limit: 2}, identity: {trusted_proxies: [], trusted_peers: []}}").unwrap().0,
        );
        move || RateLimit::new(limiter.clone())
    });
    let mut raw = program.connect();
    let statuses: Vec<u16> = (0..4)
        .map(|n| get(&mut raw, &format!("X-User-ID: u{n}\r\nX-API-Key: k{n}\r\nX-Forwarded-For: 198.51.100.{n}\r\n")).status)
        .collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[test]
fn who_cannot_be_named_is_told_and_not_charged() {
    let limiter = on_manual_clock(two());
    let program = Program::start(named(&limiter));
    let mut raw = program.connect();
    let reply = get(&mut raw, &format!("name: {}\r\n", "x".repeat(300)));
    assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("invalid_user")));
    assert_eq!(program.reached(), 0);
}

#[test]
fn cost_route_and_exemption_are_the_programs_to_say() {
    let config = Config::from_yaml(
        "{defaults: {algorithm: token_bucket, bucket_capacity: 10, tokens_per_second: 0.1}, routes: [{name: dear, match: {path: /dear}, cost: 4}]}",
    );
    let limiter = on_manual_clock(config.unwrap().0);
    let program = Program::start(move || {
        named(&limiter)()
            .path_by(|request| request.headers().contains_key("dear").then(|| "/dear".to_owned()))
            .cost_by(|request| request.headers().get("cost").and_then(|cost| cost.to_str().ok()?.parse().ok()))
            .exempt(|request| request.path() == "/health")
            .headers(Families { legacy: true, standard: false, hints: false })
    });
    let mut raw = program.connect();
    let mut left = |headers: &str| get(&mut raw, &format!("name: a\r\n{headers}")).header("x-ratelimit-remaining").map(str::to_owned);
    assert_eq!(left(""), Some("9".to_owned()));
    assert_eq!(left("dear: 1\r\n"), Some("5".to_owned()));
    assert_eq!(left("cost: 3\r\n"), Some("2".to_owned()));
    assert_eq!(left("cost: 0\r\n"), Some("2".to_owned()));
    let free = ask(&mut raw, "GET /health", "name: a\r\n");
    assert_eq!((free.status, free.body.as_str(), free.header("x-ratelimit-remaining")), (200, "exempt", None));
    let never = get(&mut raw, "name: a\r\ncost: 11\r\n");
    assert_eq!((never.status, never.header("retry-after"), never.header("ratelimit")), (422, None, None));
}

#[test]
fn case_107_a_preflight_is_not_charged_and_a_refusal_can_be_read_by_the_page() {
    let program = Program::start(named(&on_manual_clock(two())));
    let mut raw = program.connect();
    let origin = "Origin: http://page.example\r\n";
    for _ in 0..5 {
        let preflight = ask(&mut raw, "OPTIONS /", &format!("{origin}Access-Control-Request-Method: POST\r\nname: a\r\n"));
        assert!(preflight.status == 200 || preflight.status == 204, "{}", preflight.status);
    }
    let replies: Vec<Reply> = (0..3).map(|_| get(&mut raw, &format!("{origin}name: a\r\n"))).collect();
    assert_eq!(replies.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 200, 429]);
    for reply in &replies {
        assert_eq!(reply.header("access-control-allow-origin"), Some("http://page.example"), "{}", reply.status);
        let exposed = reply.header("access-control-expose-headers").unwrap().to_ascii_lowercase();
        assert!(exposed.contains("retry-after-ms"), "{exposed}");
    }
}

#[test]
fn two_programs_on_one_redis_share_what_a_user_has() {
    let redis = RedisServer::start();
    let limiter = || {
        let options = RedisOptions { url: redis.url(), deadline: PATIENCE, ..RedisOptions::default() };
        Arc::new(Limiter::on_redis(two(), options).unwrap())
    };
    let programs = [Program::start(named(&limiter())), Program::start(named(&limiter()))];
    let statuses: Vec<u16> = (0..4).map(|n| get(&mut programs[n % 2].connect(), "name: a\r\n").status).collect();
    assert_eq!(statuses, [200, 200, 429, 429]);
}

#[test]
fn without_its_redis_the_program_does_what_it_was_told_to() {
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let options = RedisOptions { url: format!("redis://127.0.0.1:{port}"), ..RedisOptions::default() };
    let ask_under = |on_failure: OnFailure| {
        let limiter = Arc::new(Limiter::on_redis(two(), options.clone()).unwrap());
        let program = Program::start(move || named(&limiter)().on_store_failure(on_failure));
        let mut raw = program.connect();
        (0..3).map(|_| get(&mut raw, "name: a\r\n")).collect::<Vec<_>>()
    };
    let statuses = |replies: &[Reply]| replies.iter().map(|reply| reply.status).collect::<Vec<_>>();
    let allowed = ask_under(OnFailure::Allow);
    assert_eq!(statuses(&allowed), [200, 200, 200]);
    assert!(allowed.iter().all(|reply| reply.header("x-ratelimit-degraded") == Some("allow") && reply.header("ratelimit").is_none()));
    let denied = ask_under(OnFailure::Deny);
    assert_eq!(statuses(&denied), [503, 503, 503]);
    assert!(denied.iter().all(|reply| reply.header("retry-after").is_some() && reply.json()["code"] == "store_unavailable"));
    let local = ask_under(OnFailure::Local);
    assert_eq!(statuses(&local), [200, 200, 429]);
    assert!(local.iter().all(|reply| reply.header("x-ratelimit-degraded") == Some("local")));
}
