//! The service through an outage of Redis, at a thousand requests a second: how long answers take, what they are, how much memory it
//! takes, how soon all is as before.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value as Json;
use weir::clock::{elapsed, monotonic};

use super::support::proxy::{Line, Proxy};
use super::support::redis::RedisServer;
use super::support::rig::{eventually, lasting, percentile};
use super::support::server::Process;

/// Clients, each of which asks every 20 ms.
const CLIENTS: usize = 20;
const EVERY: Duration = Duration::from_millis(20);
const DEADLINE: Duration = Duration::from_millis(100);

/// One answer: when it was asked for, how long it took, and what it was.
struct Answered {
    asked: Duration,
    took: Duration,
    status: u16,
    degraded: bool,
}

pub(super) struct Service {
    process: Process,
    client: reqwest::Client,
    _dir: tempfile::TempDir,
}

impl Service {
    pub(super) fn start(yaml: &str, arguments: &[&str]) -> Self {
        let mut all = vec!["--workers", "2"];
        all.extend(arguments);
        Self::start_with_workers(yaml, &all)
    }

    pub(super) fn start_with_workers(yaml: &str, arguments: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let config = dir.path().join("limit.yaml");
        std::fs::write(&config, yaml).unwrap();
        let mut all = vec!["--config", config.to_str().unwrap()];
        all.extend(arguments);
        let process = Process::start(&all);
        let client = reqwest::Client::builder().timeout(Duration::from_secs(20)).build().unwrap();
        Self { process, client, _dir: dir }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.process.address)
    }

    pub(super) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    pub(super) fn wait(self) -> (std::process::ExitStatus, Vec<String>) {
        self.process.wait()
    }

    pub(super) async fn check(&self, user: &str) -> reqwest::Result<(u16, Json)> {
        check(&self.client, &self.url("/v1/check"), user).await
    }

    /// The value of a series in `/metrics`; 0 when it is not there.
    pub(super) async fn metric(&self, series: &str) -> f64 {
        let text = self.client.get(self.url("/metrics")).send().await.unwrap().text().await.unwrap();
        text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok()).unwrap_or(0.0)
    }

    pub(super) async fn ready(&self) -> (u16, Json) {
        let reply = self.client.get(self.url("/health/ready")).send().await.unwrap();
        (reply.status().as_u16(), serde_json::from_str(&reply.text().await.unwrap()).unwrap())
    }
}

pub(super) async fn check(client: &reqwest::Client, url: &str, user: &str) -> reqwest::Result<(u16, Json)> {
    let reply = client.post(url).json(&serde_json::json!({ "user": user })).send().await?;
    let status = reply.status().as_u16();
    Ok((status, serde_json::from_str(&reply.text().await?).unwrap_or_default()))
}

/// A crowd that asks for `span`; what it was answered.
async fn crowd(service: &Arc<Service>, span: Duration) -> Vec<Answered> {
    let start = monotonic();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let service = Arc::clone(service);
            tokio::spawn(async move {
                let (mut answers, mut round) = (Vec::new(), 0);
                let mut ticks = tokio::time::interval(EVERY);
                while elapsed(start) < span {
                    ticks.tick().await;
                    let asked = monotonic();
                    let (status, body) = service.check(&format!("user-{}", (n + CLIENTS * round) % 1_000)).await.expect("an answer");
                    round += 1;
                    let degraded = body["degraded"] == true;
                    answers.push(Answered { asked: asked - start, took: elapsed(asked), status, degraded });
                }
                answers
            })
        })
        .collect();
    let mut all = Vec::new();
    for client in clients {
        all.extend(client.await.expect("no panic"));
    }
    all
}

fn p99<'a>(answers: impl Iterator<Item = &'a Answered>) -> Duration {
    let mut took: Vec<Duration> = answers.map(|answer| answer.took).collect();
    took.sort();
    percentile(&took, 99)
}

/// One outage: `begin` and `end` make it.
async fn outage(name: &str, on_failure: &str, url: &str, begin: impl FnOnce(), end: impl FnOnce()) {
    let service = Arc::new(Service::start(&format!("store: {{on_failure: {on_failure}}}\n"), &["--redis-url", url, "--require-store"]));
    // Connections, code and caches are warm; and this is what this machine can do now.
    let before = crowd(&service, Duration::from_secs(1)).await;
    let before = p99(before.iter().filter(|answer| answer.asked >= Duration::from_millis(300)));
    let memory = service.metric("process_resident_memory_bytes").await;
    begin();
    let span = lasting(Duration::from_secs(3));
    let answers = crowd(&service, span).await;
    let grown = (service.metric("process_resident_memory_bytes").await - memory) / 1_048_576.0;
    let counted = service.metric(&format!("weir_degraded_decisions_total{{policy=\"{on_failure}\"}}")).await;
    let failing = service.metric("weir_store_failing_parts").await;
    end();
    let back = eventually("it is as before", Duration::from_secs(2), async || {
        service.check("user-1").await.is_ok_and(|(status, body)| [200, 429].contains(&status) && body["degraded"] != true)
    })
    .await;
    let first_second = p99(answers.iter().filter(|answer| answer.asked < Duration::from_secs(1)));
    let after = p99(answers.iter().filter(|answer| answer.asked >= Duration::from_secs(1)));
    println!(
        "{name}, {on_failure}, {} requests in {span:?}: p99 {first_second:?} in the first second, {after:?} after it ({before:?} before the outage); {grown:.1} MiB more; normal {back:?} after its return",
        answers.len()
    );
    let degraded = answers.iter().filter(|answer| answer.degraded || answer.status == 503).count();
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let degraded = degraded as f64;
    assert_eq!(counted, degraded, "each is counted");
    let fine = |answer: &Answered| match on_failure {
        // The first few were on their way when it began.
        "deny" => matches!(answer.status, 200 | 429 | 503),
        "allow" => answer.status == 200,
        _ => matches!(answer.status, 200 | 429),
    };
    assert!(answers.iter().all(fine), "{:?}", answers.iter().find(|answer| !fine(answer)).map(|answer| answer.status));
    let later = answers.iter().filter(|answer| answer.asked >= Duration::from_secs(1));
    if on_failure != "deny" {
        assert!(later.clone().all(|answer| answer.degraded), "each answer says so");
    }
    assert!(later.count() > 0 && failing > 0.0);
    // Ten times slack, and beyond it only that hardly anybody waits for the deadline: this machine may be busy with other things.
    assert!(first_second < (DEADLINE + Duration::from_millis(50)) * 10, "{first_second:?}");
    let waited = answers.iter().filter(|answer| answer.asked >= Duration::from_secs(1) && answer.took >= DEADLINE).count();
    assert!(waited < answers.len() / 10, "{waited} of {} waited for the deadline", answers.len());
    assert!(grown < 20.0 * 2.0, "{grown} MiB more");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_64_a_redis_that_is_stopped_slows_nobody_down() {
    let server = RedisServer::start();
    outage("redis stopped", "local", &server.url(), || server.signal("STOP"), || server.signal("CONT")).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_64_a_redis_that_is_killed_slows_nobody_down() {
    let server = std::cell::RefCell::new(RedisServer::start());
    let url = server.borrow().url();
    outage("redis killed", "allow", &url, || server.borrow_mut().crash(), || server.borrow_mut().restart()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_64_a_line_that_swallows_everything_slows_nobody_down() {
    let server = RedisServer::start();
    let proxy = Proxy::before(server.port());
    outage("packets swallowed", "deny", &proxy.url(), || proxy.set(Line::Swallows), || proxy.set(Line::Good)).await;
}
