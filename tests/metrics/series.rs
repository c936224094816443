//! Which series there are, what bounds their number, and that documents name them.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use weir::config::Config;
use weir::limit::Field;
use weir::telemetry::Metrics;

use crate::scrape::{families, get, post, scrape, series, value};
use crate::support::redis::RedisServer;
use crate::support::server::{Process, Setup, limits};

/// The most routes, and the most tiers, that a file may have; the longest name of one.
const MOST: usize = 256;
const LONGEST: usize = 64;

/// A file with so many routes and tiers, their names as long as they may be.
fn config(many: usize) -> Config {
    let mut yaml = String::from("defaults: {}\n");
    let name = |index: usize| format!("{index:a<LONGEST$}");
    if many > 0 {
        yaml.push_str("tiers:\n");
        (0..many).for_each(|index| writeln!(yaml, "  {}:\n    bucket_capacity: 5", name(index)).unwrap());
        yaml.push_str("routes:\n");
        (0..many).for_each(|index| writeln!(yaml, "  - name: {}\n    match:\n      path: /{index}", name(index)).unwrap());
    }
    Config::from_yaml(&yaml).unwrap_or_else(|mistakes| panic!("{mistakes:?}")).0
}

fn text(metrics: &Metrics) -> String {
    String::from_utf8(metrics.text().unwrap()).unwrap()
}

fn promtool_check_metrics(text: &str) {
    let mut child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs promtool on the PATH (Debian: apt-get install prometheus): {error}"));
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn the_table_in_the_documents_has_every_metric_as_the_code_has_it() {
    let metrics = Metrics::new().unwrap();
    metrics.config_in_force("0", 0);
    let _tally = metrics.tally(&config(1));
    let mut table = String::from("| metric | type | labels | means |\n| --- | --- | --- | --- |\n");
    for (name, family) in families(&text(&metrics)) {
        let labels = family.labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        writeln!(table, "| `{name}` | {} | {labels} | {} |", family.kind, family.help).unwrap();
    }
    let document = fs::read_to_string(format!("{}/docs/metrics.md", env!("CARGO_MANIFEST_DIR"))).unwrap_or_default();
    assert!(document.contains(&table), "docs/metrics.md is behind; this is the table:\n{table}");
}

#[test]
fn the_number_of_series_is_bounded_by_the_routes_and_tiers_of_the_file() {
    let count = |many| {
        let metrics = Metrics::new().unwrap();
        metrics.config_in_force(&"f".repeat(64), 1);
        let _tally = metrics.tally(&config(many));
        let text = text(&metrics);
        (series(&text).len(), text.len())
    };
    let (fixed, _) = count(0);
    for many in [1, 3, MOST] {
        assert_eq!(count(many).0, fixed + 3 * many + 3 * many, "with {many} routes and {many} tiers");
    }
    assert!(fixed < 250, "{fixed} series without any");
    let (_, bytes) = count(MOST);
    assert!(bytes < 256 * 1024, "{bytes} bytes with everything that a file may hold");
}

#[test]
fn case_116_a_hundred_thousand_users_and_addresses_leave_the_series_as_they_were() {
    let process = Process::start(&["--workers", "2"]);
    let mut raw = crate::support::server::Raw::connect(process.address);
    let before = series(&scrape(&mut raw));
    for kind in ["user", "address"] {
        for thousand in 0..100 {
            let mut body = String::from(r#"{"checks":["#);
            for index in 0..1_000 {
                let who = if kind == "user" {
                    format!("someone-{thousand}-{index}")
                } else {
                    format!("10.{thousand}.{}.{}", index / 250, index % 250)
                };
                write!(body, r#"{}{{"{kind}":"{who}"}}"#, if index == 0 { "" } else { "," }).unwrap();
            }
            body.push_str("]}");
            let reply = post(&mut raw, "/v1/check/batch", "", &body);
            assert_eq!((reply.status, reply.body.matches(r#""allowed":true"#).count()), (200, 1_000));
        }
    }
    let took = (0..5).map(|_| {
        let start = now();
        get(&mut raw, "/metrics");
        start.elapsed()
    });
    let best = took.min().unwrap();
    let text = scrape(&mut raw);
    assert_eq!(series(&text), before, "the series changed");
    assert!(!text.contains("someone") && !text.contains("10.99") && !text.contains("127.0.0.1"));
    assert_eq!(value(&text, r#"weir_decisions_total{outcome="admitted",reason="none"}"#), 200_000.0);
    assert!(text.len() < 256 * 1024, "{} bytes", text.len());
    // 50 ms is the aim; ten times that is for a busy machine.
    assert!(best < Duration::from_millis(500), "{best:?}");
    println!("{} series, {} bytes, scraped in {best:?}", before.len(), text.len());
    promtool_check_metrics(&text);
}

#[expect(clippy::disallowed_methods, reason = "it measures how long a real scrape takes")]
fn now() -> Instant {
    Instant::now()
}

#[test]
fn case_118_counters_keep_their_values_over_a_hundred_reloads() {
    let server = Setup::default().config(config(2)).workers(16).start();
    let mut raw = server.connect();
    let on_route = |path: &str| format!(r#"{{"user":"a","path":"{path}"}}"#);
    let counted = |name: &str| server.metric(&format!(r#"weir_route_decisions_total{{outcome="admitted",route="{name:a<LONGEST$}"}}"#));
    for reload in 0..100 {
        assert_eq!(raw.check("", &on_route("/0")).unwrap().status, 200);
        server.limiter.reload(config(if reload % 2 == 0 { 1 } else { 2 }));
    }
    assert_eq!(counted("0"), 100.0);
    assert_eq!(server.metric(r#"weir_decisions_total{outcome="admitted",reason="none"}"#), 100.0);
    // A route that left the file left the metrics, and is counted anew when it is back.
    server.limiter.reload(config(1));
    assert!(!text(&server.metrics).contains(&format!("{:a<LONGEST$}", "1")));
    server.limiter.reload(config(2));
    raw.check("", r#"{"user":"b","path":"/1"}"#).unwrap();
    assert_eq!((counted("0"), counted("1")), (100.0, 1.0));
}

#[test]
fn case_119_no_name_reaches_a_label_that_the_text_format_does_not_allow() {
    for name in [r#"'a"b'"#, r"'a\b'", r#""a\nb""#, "é", &"x".repeat(300), "''", "'-'", "A"] {
        let route = format!("routes:\n  - name: {name}\n    match:\n      path: /x\n");
        let tier = format!("tiers:\n  {name}:\n    bucket_capacity: 5\n");
        for yaml in [route, tier] {
            assert!(Config::from_yaml(&yaml).is_err(), "{yaml}");
        }
    }
    let mut thousand = String::from("routes:\n");
    (0..1_000).for_each(|index| writeln!(thousand, "  - name: r{index}\n    match:\n      path: /{index}").unwrap());
    let mistakes = Config::from_yaml(&thousand).unwrap_err();
    assert!(mistakes.iter().any(|mistake| mistake.message.contains("1000 entries, at most 256")), "{mistakes:?}");
    let metrics = Metrics::new().unwrap();
    metrics.config_in_force("a\"b\\c\nd", 1);
    let _tally = metrics.tally(&config(MOST));
    promtool_check_metrics(&text(&metrics));
}

#[test]
fn case_109_probes_write_nothing_to_redis_and_take_nothing_from_anybody() {
    let redis = RedisServer::start();
    let mut setup = Setup::default().config(limits(&[(Field::WindowLimit, "5"), (Field::WindowSeconds, "3600")]));
    setup.store = std::sync::Arc::new(redis.store());
    let server = setup.start();
    let mut raw = server.connect();
    for _ in 0..1_000 {
        for path in ["/health/live", "/health/ready", "/metrics"] {
            assert_eq!(get(&mut raw, path).status, 200);
        }
    }
    for path in ["/health/live", "/health/ready", "/metrics"] {
        let mut head = server.connect();
        head.send(format!("HEAD {path} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n"));
        assert!(head.reply().is_none() && head.is_closed());
    }
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    assert!(keys.is_empty(), "{keys:?}");
    for _ in 0..5 {
        assert_eq!(raw.check("", "{}").unwrap().status, 200);
    }
    assert_eq!(raw.check("", "{}").unwrap().status, 429);
}
