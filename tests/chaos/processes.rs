//! Several processes on one Redis: their shares while it is away, a start without it, a stop in the middle of everything.

use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use weir::clock::{elapsed, monotonic};

use super::outage::{Service, check};
use super::support::proxy::{Line, Proxy};
use super::support::redis::{RedisServer, free_port};
use super::support::rig::{eventually, lasting};

/// On a busy machine an answer of Redis may take longer than a deadline in service, and this is not about that.
const PATIENT: [&str; 2] = ["--redis-deadline-ms", "3000"];
/// Less than a stopping process goes on taking requests.
const NOTICE: Duration = Duration::from_millis(800);
const WINDOW: &str = "defaults: {algorithm: sliding_window, window_limit: 100, window_seconds: 60}\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_76_three_processes_stay_at_the_limit_together_while_redis_is_away() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    let url = proxy.url();
    let services: Vec<Service> = (0..3).map(|_| Service::start(WINDOW, &["--redis-url", &url, PATIENT[0], PATIENT[1]])).collect();
    for service in &services {
        eventually("it knows of the others", Duration::from_secs(2), async || service.metric("weir_processes").await == 3.0).await;
    }
    proxy.set(Line::Cut);
    let (start, mut admitted, mut asked) = (monotonic(), 0, 0);
    while asked < 1_000 || elapsed(start) < lasting(Duration::ZERO).min(Duration::from_secs(50)) {
        let (status, body) = services[asked % 3].check("u").await.expect("an answer");
        assert_eq!(body["degraded"], true, "{body}");
        admitted += u32::from(status == 200);
        asked += 1;
    }
    println!("three processes, local, 100 in 60 s: {admitted} admitted of {asked} in {:?}", elapsed(start));
    // (Should this machine be so slow that the window moves on, more is right.)
    if elapsed(start) < Duration::from_secs(59) {
        assert_eq!(admitted, 99);
    }
    proxy.set(Line::Good);
    for service in &services {
        eventually("it is back", Duration::from_secs(2), async || {
            service.check("other").await.is_ok_and(|(_, body)| body["degraded"] != true)
        })
        .await;
        eventually("nothing of the outage is kept", Duration::from_secs(2), async || service.metric("weir_local_subjects").await == 0.0)
            .await;
    }
    // Nothing of the outage is charged afterwards, and the limit holds for all together again.
    let mut admitted = 0;
    for n in 0..300 {
        admitted += u32::from(services[n % 3].check("u").await.expect("an answer").0 == 200);
    }
    assert_eq!(admitted, 100);
    // One that leaves is missed at once.
    let mut services = services;
    let gone = services.pop().expect("three");
    gone.signal("TERM");
    assert_eq!(gone.wait().0.code(), Some(0));
    eventually("the others know", Duration::from_secs(2), async || services[0].metric("weir_processes").await == 2.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_redis_serves_its_share_says_so_and_recovers() {
    let port = free_port(u16::MAX);
    let proxy = Proxy::before(port);
    let service = Service::start(WINDOW, &["--redis-url", &proxy.url(), "--expected-processes", "4"]);
    let mut admitted = 0;
    for _ in 0..50 {
        let (status, body) = service.check("u").await.expect("an answer");
        assert_eq!(body["degraded"], true);
        admitted += u32::from(status == 200);
    }
    assert_eq!(admitted, 25);
    let (status, body) = service.ready().await;
    assert_eq!((status, &body["status"], &body["store"]["status"]), (200, &"degraded".into(), &"down".into()));
    let server = RedisServer::start();
    proxy.lead_to(server.port());
    eventually("it uses the store", Duration::from_secs(2), async || {
        service.check("v").await.is_ok_and(|(_, body)| body["degraded"] != true)
    })
    .await;
    eventually("it says so", Duration::from_secs(2), async || service.ready().await.1["status"] == "ready").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_redis_under_deny_is_not_ready() {
    let service = Service::start("store: {on_failure: deny}\n", &["--redis-url", "redis://127.0.0.1:1"]);
    let (status, body) = service.check("u").await.expect("an answer");
    assert_eq!(status, 503, "{body}");
    assert_eq!(service.ready().await.0, 503);
}

#[test]
fn require_store_is_an_exit_with_a_hint_and_no_password() {
    let dir = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--bind", "127.0.0.1:0", "--redis-url", "redis://:hidden@127.0.0.1:1", "--require-store", "--data-dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("error: ") && text.contains("hint: ") && text.contains("--require-store") && !text.contains("hidden"), "{text}");
    let output = Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--bind", "127.0.0.1:0", "--redis-url", "redis+sentinel://:hidden@127.0.0.1:1", "--data-dir"])
        .arg(dir.path())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && text.contains("master") && !text.contains("hidden"), "{text}");
}

/// Fifty clients with connections that they keep, and a stop in the middle: nobody is cut off, each answer was charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_110_a_stop_under_load_answers_everybody_and_charges_each_once() {
    let server = RedisServer::start();
    let service = Arc::new(Service::start(
        "defaults: {algorithm: token_bucket, bucket_capacity: 1000000, tokens_per_second: 0.5}\n",
        &["--redis-url", &server.url(), "--require-store", PATIENT[0], PATIENT[1]],
    ));
    let (answered, broken, told) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)), Arc::new(OnceLock::new()));
    let clients: Vec<_> = (0..50)
        .map(|_| {
            let (url, answered, broken, told) = (service.url("/v1/check"), Arc::clone(&answered), Arc::clone(&broken), Arc::clone(&told));
            tokio::spawn(async move {
                let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
                loop {
                    let asked = monotonic();
                    match check(&client, &url, "u").await {
                        Ok((200, body)) if body["degraded"] != true => answered.fetch_add(1, Ordering::Relaxed),
                        Ok(other) => panic!("{other:?}"),
                        // No listener any more, or one that goes while a new connection waits to be accepted: so a stopped service looks to
                        // whoever has not heeded its notice of a second.
                        Err(error) if error.is_connect() || told.get().is_some_and(|told| asked > *told + NOTICE) => return,
                        Err(error) => {
                            println!("{error:?}");
                            broken.fetch_add(1, Ordering::Relaxed);
                            return;
                        }
                    };
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            })
        })
        .collect();
    eventually("all of them ask", Duration::from_secs(2), async || answered.load(Ordering::Relaxed) > 500).await;
    let start = monotonic();
    service.signal("TERM");
    told.set(start).expect("said once");
    for client in clients {
        client.await.expect("no panic");
    }
    let Ok(service) = Arc::try_unwrap(service) else { panic!("all clients are done") };
    let (status, log) = tokio::task::spawn_blocking(|| service.wait()).await.expect("no panic");
    let took = elapsed(start);
    assert_eq!(status.code(), Some(0), "{log:?}");
    assert!(took < Duration::from_secs(10), "{took:?}");
    let tokens: f64 = server.run("HGET ratelimit:token:{u} tokens");
    let answered = answered.load(Ordering::Relaxed);
    let charged = 1_000_000.0 - tokens;
    println!("stopped in {took:?}: {answered} answered, {charged:.1} charged, {} cut off", broken.load(Ordering::Relaxed));
    // (Refilled meanwhile: half a token a second.)
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let difference = answered as f64 - charged;
    assert!((0.0..60.0).contains(&difference), "{difference}");
    assert_eq!(broken.load(Ordering::Relaxed), 0, "cut off after their request was taken");
}

/// However many workers there are, there is one limiter, and a few connections (case 77).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_77_one_limiter_for_all_workers_in_memory_and_on_redis() {
    let yaml = "defaults: {algorithm: token_bucket, bucket_capacity: 20, tokens_per_second: 0.001}\n";
    for workers in ["1", "4", "16"] {
        let server = RedisServer::start();
        for arguments in [vec!["--workers", workers], vec!["--workers", workers, "--redis-url", &server.url(), PATIENT[0], PATIENT[1]]] {
            let service = Arc::new(Service::start_with_workers(yaml, &arguments));
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    let service = Arc::clone(&service);
                    tokio::spawn(async move {
                        let client = reqwest::Client::new();
                        let mut admitted = 0;
                        for _ in 0..7 {
                            let (status, _) = check(&client, &service.url("/v1/check"), "u").await.expect("an answer");
                            admitted += u32::from(status == 200);
                        }
                        admitted
                    })
                })
                .collect();
            let mut admitted = 0;
            for client in clients {
                admitted += client.await.expect("no panic");
            }
            assert_eq!(admitted, 20, "{arguments:?}");
        }
        let clients: String = server.run("INFO clients");
        let connected: u32 =
            clients.lines().find_map(|line| line.strip_prefix("connected_clients:")?.trim().parse().ok()).expect("a number");
        // A lane for each worker, a pool, one to listen on, and this one.
        assert!(connected <= workers.parse::<u32>().expect("a number") + 6, "{connected} connections of {workers} workers");
    }
}
