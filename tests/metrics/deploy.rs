//! What is in `deploy/` is right, and asks for nothing that is not there.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use saphyr::{LoadableYamlNode, Yaml};
use weir::config::Config;
use weir::telemetry::Metrics;

use crate::scrape::families;

pub(crate) fn deploy(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(path)
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Runs promtool; what it said.
#[track_caller]
fn promtool(arguments: &[&str]) -> String {
    let output = Command::new("promtool")
        .args(arguments)
        .current_dir(deploy("prometheus"))
        .output()
        .unwrap_or_else(|error| panic!("this test needs promtool on the PATH (Debian: apt-get install prometheus): {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}");
    said
}

/// Every name that may be asked for: what the code exposes, what histograms are made of, and what the rules record.
fn known() -> BTreeSet<String> {
    let metrics = Metrics::new().unwrap();
    metrics.config_in_force("0", 0);
    let (config, _) = Config::from_yaml("tiers:\n  gold:\n    bucket_capacity: 5\n").unwrap();
    let _tally = metrics.tally(&config);
    let text = String::from_utf8(metrics.text().unwrap()).unwrap();
    let mut names = BTreeSet::new();
    for (name, family) in families(&text) {
        if family.kind == "histogram" {
            names.extend(["_bucket", "_count", "_sum"].map(|end| format!("{name}{end}")));
        } else {
            names.insert(name);
        }
    }
    names.extend(read("prometheus/rules.yml").lines().filter_map(|line| line.trim().strip_prefix("- record: ").map(str::to_owned)));
    names
}

/// Every name of ours, or of a process, in a text.
fn asked_for(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .map(|word| word.trim_end_matches(':'))
        .filter(|word| word.starts_with("weir_") || word.starts_with("weir:") || word.starts_with("process_"))
        .map(str::to_owned)
        .collect()
}

fn yaml(text: &str) -> Yaml<'_> {
    Yaml::load_from_str(text).unwrap().remove(0)
}

#[test]
fn rules_and_alerts_are_right_and_their_cases_hold() {
    assert!(promtool(&["check", "rules", "rules.yml", "alerts.yml"]).contains("SUCCESS"));
    assert!(promtool(&["check", "config", "prometheus.yml"]).contains("SUCCESS"));
    assert!(promtool(&["test", "rules", "rules.test.yml"]).contains("SUCCESS"));
}

#[test]
fn every_alert_and_every_recorded_rule_has_a_case_and_every_alert_a_remedy() {
    let (cases, alerts) = (read("prometheus/rules.test.yml"), read("prometheus/alerts.yml"));
    let alerts: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(alerts.len() >= 8, "{alerts:?}");
    let document = fs::read_to_string(deploy("../docs/metrics.md")).unwrap();
    for alert in alerts {
        assert!(cases.contains(&format!("alertname: {alert}")), "{alert} has no case");
        assert!(document.contains(&format!("`{alert}`")), "docs/metrics.md does not say what to do about {alert}");
    }
    for record in read("prometheus/rules.yml").lines().filter_map(|line| line.trim().strip_prefix("- record: ")) {
        assert!(cases.contains(record), "{record} has no case");
    }
}

#[test]
fn rules_alerts_and_the_dashboard_ask_only_for_metrics_that_there_are() {
    let known = known();
    for path in ["prometheus/rules.yml", "prometheus/alerts.yml", "prometheus/rules.test.yml", "grafana/weir.json"] {
        let unknown: Vec<_> = asked_for(&read(path)).into_iter().filter(|name| !known.contains(name)).collect();
        assert!(unknown.is_empty(), "{path} asks for {unknown:?}");
    }
}

#[test]
fn the_dashboard_shows_every_metric_and_its_queries_can_be_parsed() {
    let text = read("grafana/weir.json");
    let asked = asked_for(&text);
    let shown = |name: &String| {
        ["", "_bucket"].iter().any(|end| asked.contains(&format!("{name}{end}")))
            || matches!(name.rsplit_once('_'), Some((family, "sum" | "count")) if asked.contains(&format!("{family}_bucket")))
    };
    let missing: Vec<_> = known().into_iter().filter(|name| name.starts_with("weir_") && !shown(name)).collect();
    assert!(missing.is_empty(), "the dashboard lacks {missing:?}");

    // promtool reads queries as rules.
    let dashboard: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let mut rules = String::from("groups:\n  - name: dashboard\n    rules:\n");
    let mut ids = BTreeSet::new();
    for panel in panels {
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "two panels have one id: {panel}");
        for target in panel["targets"].as_array().into_iter().flatten() {
            let query = target["expr"].as_str().unwrap().replace("$__rate_interval", "1m").replace("$job", "weir");
            let number = rules.len();
            writeln!(rules, "      - record: query:{number}\n        expr: {}", serde_json::Value::from(query)).unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dashboard.yml");
    fs::write(&path, &rules).unwrap();
    assert!(promtool(&["check", "rules", path.to_str().unwrap()]).contains("SUCCESS"), "{rules}");
}

#[test]
fn the_compose_file_has_two_weirs_a_redis_that_forgets_no_override_prometheus_and_grafana() {
    let text = read("compose/compose.yaml");
    let compose = yaml(&text);
    let services = &compose["services"];
    let scraped = read("prometheus/prometheus.yml");
    for name in ["weir-1", "weir-2"] {
        assert_eq!(services[name]["<<"]["environment"]["WEIR_REDIS_URL"].as_str(), Some("redis://redis:6379"));
        assert!(scraped.contains(&format!("{name}:8080")), "{name} is not scraped");
    }
    let list = |name: &str, key: &str| {
        let values = services[name][key].as_vec().unwrap().iter().map(|value| value.as_str().unwrap().to_owned());
        values.collect::<Vec<_>>()
    };
    let redis = list("redis", "command").join(" ");
    assert!(redis.contains("--appendonly yes") && redis.contains("--maxmemory-policy volatile-ttl"), "{redis}");
    // What is mounted is there.
    let here = deploy("compose");
    let weir = services["weir-1"]["<<"]["volumes"].as_vec().unwrap().iter().map(|value| value.as_str().unwrap().to_owned());
    for volume in weir.chain(list("prometheus", "volumes")).chain(list("grafana", "volumes")).filter(|volume| volume.starts_with('.')) {
        let path = here.join(volume.split(':').next().unwrap());
        assert!(path.exists(), "{} is mounted and not there", path.display());
    }
    // Its network is the one that its limits trust.
    let subnet = compose["networks"]["weir"]["ipam"]["config"][0]["subnet"].as_str().unwrap().to_owned();
    let loaded = weir::config::load(&here.join("config/limit.yaml")).unwrap();
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
    assert!(loaded.config.identity.trusted_peers.iter().any(|network| network.to_string() == subnet));
    for path in ["grafana/provisioning/datasources/prometheus.yml", "grafana/provisioning/dashboards/weir.yml"] {
        assert_eq!(yaml(&read(path))["apiVersion"].as_integer(), Some(1), "{path}");
    }
}

#[test]
fn the_systemd_unit_is_hardened_and_starts_what_there_is() {
    let unit = read("systemd/weir.service");
    for line in ["DynamicUser=yes", "ProtectSystem=strict", "CapabilityBoundingSet=\n", "NoNewPrivileges=yes", "StateDirectory=weir"] {
        assert!(unit.contains(line), "the unit lacks {line}");
    }
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let flags = Command::new(env!("CARGO_BIN_EXE_weir")).args(["serve", "--help"]).output().unwrap();
    let help = String::from_utf8(flags.stdout).unwrap();
    for flag in command.split(' ').filter(|word| word.starts_with("--")) {
        assert!(help.contains(flag), "weir serve knows no {flag}");
    }
    // Not every system has systemd; where there is one, it is asked.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("weir.service");
    fs::write(&path, unit.replace("/usr/bin/weir", env!("CARGO_BIN_EXE_weir"))).unwrap();
    let Ok(verified) = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path).output() else { return };
    let said = String::from_utf8_lossy(&verified.stderr).into_owned();
    assert!(verified.status.success() && !said.contains("weir.service:"), "{said}");
    let rated = Command::new("systemd-analyze").args(["security", "--offline=true", "--threshold=20"]).arg(&path).output().unwrap();
    assert!(rated.status.success(), "exposed above 2.0: {}", String::from_utf8_lossy(&rated.stdout));
}
