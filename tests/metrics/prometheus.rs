//! The real Prometheus scrapes the running service, with the rules of `deploy/`.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::deploy::deploy;
use crate::eventually;
use crate::scrape::{get, post};
use crate::support::server::{Process, Raw};

struct Prometheus {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Prometheus {
    /// Starts one on a free port with the configuration of `deploy/`, but for whom and how often it scrapes.
    fn start(targets: &[SocketAddr]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for file in ["rules.yml", "alerts.yml"] {
            fs::copy(deploy("prometheus").join(file), folder.path().join(file)).unwrap();
        }
        let targets = targets.iter().map(|target| format!("\"{target}\"")).collect::<Vec<_>>().join(", ");
        let config = fs::read_to_string(deploy("prometheus/prometheus.yml")).unwrap();
        let config = config.replace(r#""weir-1:8080", "weir-2:8080""#, &targets).replace("_interval: 15s", "_interval: 1s");
        assert!(config.contains(&targets) && config.contains("scrape_interval: 1s"), "{config}");
        fs::write(folder.path().join("prometheus.yml"), config).unwrap();
        for _ in 0..20 {
            if let Some((child, address)) = try_start(folder.path()) {
                return Self { child, address, _folder: folder };
            }
        }
        panic!("prometheus did not start on any of 20 free ports");
    }

    fn api(&self, path: &str) -> Value {
        // Long answers come in chunks.
        let text = ureq::get(format!("http://{}{path}", self.address)).call().unwrap().body_mut().read_to_string().unwrap();
        serde_json::from_str::<Value>(&text).unwrap()["data"].clone()
    }

    /// The values that a query gives.
    fn query(&self, query: &str) -> Vec<f64> {
        let mut raw = Raw::connect(self.address);
        let body = format!("query={}", query.replace('+', "%2B"));
        let head = format!(
            "POST /api/v1/query HTTP/1.1\r\nHost: p\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let reply = raw.send(head).send(body).reply().expect("an answer").json();
        assert_eq!(reply["status"], "success", "{query}: {reply}");
        let samples = reply["data"]["result"].as_array().unwrap();
        samples.iter().map(|sample| sample["value"][1].as_str().unwrap().parse().unwrap()).collect()
    }
}

/// Another process may take the port in between: then it ends at once.
fn try_start(folder: &Path) -> Option<(Child, SocketAddr)> {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut child = Command::new("prometheus")
        .arg(format!("--config.file={}", folder.join("prometheus.yml").display()))
        .arg(format!("--storage.tsdb.path={}", folder.join(format!("data-{}", address.port())).display()))
        .arg(format!("--web.listen-address={address}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs prometheus on the PATH (Debian: apt-get install prometheus): {error}"));
    for _ in 0..3_000 {
        if child.try_wait().unwrap().is_some() {
            return None;
        }
        if std::net::TcpStream::connect(address).is_ok() && get(&mut Raw::connect(address), "/-/ready").status == 200 {
            return Some((child, address));
        }
        std::thread::park_timeout(std::time::Duration::from_millis(10));
    }
    None
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn prometheus_scrapes_two_processes_loads_the_rules_and_returns_the_rates_of_a_known_load() {
    let folder = tempfile::tempdir().unwrap();
    let limits = folder.path().join("limit.yaml");
    fs::write(&limits, "defaults: {bucket_capacity: 60, tokens_per_second: 0.0001}\n").unwrap();
    let processes = [(); 2].map(|()| Process::start(&["--config", limits.to_str().unwrap(), "--workers", "1"]));
    let prometheus = Prometheus::start(&processes.each_ref().map(|process| process.address));
    let all = r#"weir_decisions_total{outcome="admitted",reason="none"}"#;
    // A rate needs to have seen the beginning.
    eventually(|| prometheus.query(&format!("count_over_time({all}[1m]) >= 2")).len() == 2, "both are scraped");

    // Ten users take their 60 and ask 20 times more: of 1 600 requests 1 200 are admitted, half of all at each process.
    for process in &processes {
        let mut raw = Raw::connect(process.address);
        for user in 0..10 {
            let check = format!(r#"{{"user":"u{user}"}}"#);
            let batch = format!(r#"{{"checks":[{}]}}"#, vec![check.as_str(); 80].join(","));
            assert_eq!(post(&mut raw, "/v1/check/batch", "", &batch).status, 200);
        }
    }
    eventually(|| prometheus.query(&format!("sum({all})")) == [1_200.0], "the counters arrive");
    eventually(|| prometheus.query(&format!("count_over_time({all}[1m]) >= 10")).len() == 2, "a minute has some samples in it");
    eventually(|| prometheus.query(r#"weir:refusals:rate1m{reason="bucket"} > 0"#).len() == 1, "rules are evaluated");

    // Prometheus stretches what it saw to the ends of the minute, by at most a scrape or so of the ten that it saw.
    let near = |query: &str, expected: f64| {
        let values = prometheus.query(query);
        assert!(matches!(values[..], [value] if (0.95..1.35).contains(&(value / expected))), "{query}: {values:?}, not {expected}");
    };
    near(&format!("sum(rate({all}[1m])) * 60"), 1_200.0);
    near(r#"weir:decisions:rate1m{job="weir",outcome="admitted"} * 60"#, 1_200.0);
    near(r#"weir:decisions:rate1m{job="weir",outcome="refused"} * 60"#, 400.0);
    near(r#"weir:refusals:rate1m{job="weir",reason="bucket"} * 60"#, 400.0);
    let ratio = prometheus.query(r#"weir:refused:ratio5m{job="weir"}"#);
    assert!(matches!(ratio[..], [ratio] if (ratio - 0.25).abs() < 0.001), "{ratio:?}");
    assert_eq!(prometheus.query("weir:decision_duration_seconds:p99_5m > 0").len(), 1);

    let rules = prometheus.api("/api/v1/rules");
    let rules: Vec<&Value> = rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap()).collect();
    assert!(rules.len() >= 17 && rules.iter().all(|rule| rule["health"] == "ok"), "{rules:#?}");
    let wrongly: Vec<_> = rules.iter().filter(|rule| rule["state"] == "firing").map(|rule| &rule["name"]).collect();
    assert!(wrongly.is_empty(), "{wrongly:?} fire");
    let targets = prometheus.api("/api/v1/targets");
    assert!(targets["activeTargets"].as_array().unwrap().iter().all(|target| target["health"] == "up"), "{targets}");
}
