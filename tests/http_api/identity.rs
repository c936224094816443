//! Who is asking, over real TCP: the connection comes from an address of our choice on the loopback network, so that it is or is not
//! one of the trusted proxies of the file.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use serde_json::json;

use crate::support::server::{Process, Raw};

const FILE: &str = "identity: {trusted_peers: [127.0.0.1/32], trusted_proxies: [127.1.0.0/16], ipv6_prefix: 64}\n\
                    anonymous: {per_address: {window_limit: 5, window_seconds: 3600}}\n";
/// Trusted about addresses, and about nothing else.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 9);
/// Nobody.
const STRANGER: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);

struct Service {
    process: Process,
    _folder: tempfile::TempDir,
}

impl Service {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limit.yaml");
        std::fs::write(&path, FILE).unwrap();
        Self { process: Process::start(&["--config", path.to_str().unwrap()]), _folder: folder }
    }

    fn from(&self, source: Ipv4Addr) -> Raw {
        Raw::connect_from(source, self.process.address)
    }

    /// Who a request from `source` with these header lines is.
    fn who(&self, source: Ipv4Addr, headers: &str) -> String {
        let reply = self.from(source).check(headers, r#"{"cost":0}"#).expect("an answer");
        assert_eq!(reply.status, 200, "{headers:?}: {}", reply.body);
        reply.json()["subject"].as_str().unwrap().to_owned()
    }

    /// How many of requests with these header lines are admitted.
    fn admitted(&self, source: Ipv4Addr, headers: impl IntoIterator<Item = String>) -> usize {
        let mut raw = self.from(source);
        headers.into_iter().filter(|headers| raw.check(headers, "{}").expect("an answer").status == 200).count()
    }
}

fn forwarded_for(address: impl std::fmt::Display) -> String {
    format!("X-Forwarded-For: {address}\r\n")
}

#[test]
fn case_1_and_2_twenty_forged_addresses_of_a_stranger_are_one_subject_whatever_the_header() {
    for header in
        ["X-Forwarded-For: 10.0.0.", "X-Real-IP: 10.0.0.", "Forwarded: for=10.0.0.", "True-Client-IP: 10.0.0.", "CF-Connecting-IP: 10.0.0."]
    {
        let service = Service::start();
        let admitted = service.admitted(STRANGER, (0..20).map(|n| format!("{header}{n}\r\n")));
        assert_eq!(admitted, 5, "{header}");
        let mut raw = service.from(STRANGER);
        assert_eq!(raw.check("", "{}").expect("an answer").json()["code"], "rate_limit_exceeded", "the same subject without the header");
    }
}

#[test]
fn cases_3_to_14_the_table_of_spellings_over_tcp() {
    let service = Service::start();
    let long = forwarded_for("a".repeat(3_000));
    let table = [
        // 3: all lines are one list, and the last word is the proxy's.
        ("X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-For: 203.0.113.5\r\n", "ip:203.0.113.5"),
        // 4: from the right, through trusted proxies.
        ("X-Forwarded-For: 192.0.2.99, 127.1.0.9, 203.0.113.5\r\n", "ip:203.0.113.5"),
        ("X-Forwarded-For: 192.0.2.99, 203.0.113.5, 127.1.0.9\r\n", "ip:203.0.113.5"),
        ("X-Forwarded-For: 127.1.0.2, 127.1.0.9\r\n", "ip:127.1.0.2"),
        // 5: ports and brackets.
        ("X-Forwarded-For: 203.0.113.5:40001\r\n", "ip:203.0.113.5"),
        ("X-Forwarded-For: [2001:db8:1::5]:40001\r\n", "ip:2001:db8:1::/64"),
        ("Forwarded: for=\"[2001:db8:1::5]:40001\"\r\n", "ip:2001:db8:1::/64"),
        // 8: nothing there, or nothing in it.
        ("", "ip:127.1.0.9"),
        ("X-Forwarded-For: \r\n", "ip:127.1.0.9"),
        ("X-Forwarded-For: , ,\r\n", "ip:127.1.0.9"),
        // 12: one client, one spelling.
        ("X-Forwarded-For: ::ffff:203.0.113.5\r\n", "ip:203.0.113.5"),
        ("X-Forwarded-For: ::ffff:cb00:7105\r\n", "ip:203.0.113.5"),
        ("X-Forwarded-For: 2001:db8:1:2::203.0.113.5\r\n", "ip:2001:db8:1:2::/64"),
        // 13: NAT64.
        ("X-Forwarded-For: 64:ff9b::cb00:7106\r\n", "ip:203.0.113.6"),
        // 14: what cannot be read is one identity.
        ("X-Forwarded-For: _gazonk\r\n", "ip:unknown"),
        ("X-Forwarded-For: \"[::1\r\n", "ip:unknown"),
        ("X-Forwarded-For: 1:2:3:4:5:6:7%a.b::\r\n", "ip:unknown"),
        (&long, "ip:unknown"),
        ("Forwarded: for=\"_gazonk\"\r\n", "ip:unknown"),
        ("X-Forwarded-For: fe80::1%eth0.100\r\n", "ip:fe80::/64"),
    ];
    for (headers, expected) in table {
        assert_eq!(service.who(PROXY, headers), expected, "{headers:?}");
    }
    for (headers, _) in table {
        assert_eq!(service.who(STRANGER, headers), "ip:127.9.9.9", "from a stranger: {headers:?}");
    }
    // 22: bytes above ASCII harm nobody.
    let mut raw = service.from(PROXY);
    let reply = raw.check(b"X-Forwarded-For: \xd1\x82, \xff\r\n", r#"{"cost":0}"#).expect("an answer");
    assert_eq!((reply.status, &reply.json()["subject"]), (200, &json!("ip:unknown")));
}

#[test]
fn case_7_the_clients_behind_a_proxy_have_limits_of_their_own_and_a_proxy_that_is_not_trusted_is_warned_of_once() {
    let service = Service::start();
    assert_eq!(service.admitted(PROXY, (0..100).map(|_| forwarded_for("203.0.113.5"))), 5);
    let reply = service.from(PROXY).check(forwarded_for("203.0.113.6"), "{}").expect("an answer");
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(4)));
    for _ in 0..3 {
        service.who(STRANGER, &forwarded_for("203.0.113.5"));
    }
    let mut raw = service.from(STRANGER);
    raw.send("GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n");
    assert!(raw.reply().expect("metrics").body.contains("weir_claims_ignored_total 3"));
    service.process.signal("TERM");
    let (_, log) = service.process.wait();
    let warnings: Vec<_> = log.iter().filter(|line| line.contains("identity.trusted_proxies")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("127.9.9.9"), "{warnings:?}");
}

#[test]
fn case_10_a_rotating_ipv6_host_is_one_subject() {
    let service = Service::start();
    assert_eq!(service.admitted(PROXY, (1..=100).map(|n| forwarded_for(format!("2001:db8:aa:1::{n:x}")))), 5);
    assert_eq!(service.admitted(PROXY, [forwarded_for("2001:db8:aa:2::1")]), 1, "its neighbour");
    let subjects: BTreeSet<_> = (1..=20).map(|n| service.who(PROXY, &forwarded_for(format!("2001:db8:aa:1::{n:x}")))).collect();
    assert_eq!(subjects.into_iter().collect::<Vec<_>>(), ["ip:2001:db8:aa:1::/64"]);
}

#[test]
fn case_16_and_17_nobody_becomes_an_address_and_no_stranger_becomes_a_user() {
    let service = Service::start();
    let mut raw = service.from(Ipv4Addr::LOCALHOST);
    for id in ["203.0.113.5", "ip:203.0.113.5", "unknown", "anon:"] {
        for _ in 0..5 {
            assert_eq!(raw.check("", &json!({"user": id}).to_string()).expect("an answer").status, 200);
        }
    }
    let reply = service.from(PROXY).check(forwarded_for("203.0.113.5"), "{}").expect("an answer");
    assert_eq!((reply.status, &reply.json()["remaining"]), (200, &json!(4)), "an address that no user has touched");
    for n in 0..30 {
        for headers in [format!("X-User-ID: made-up-{n}\r\n"), format!("X-API-Key: made-up-{n}\r\n")] {
            for source in [STRANGER, PROXY] {
                let reply = service.from(source).check(&headers, "{}").expect("an answer");
                assert_eq!((reply.status, &reply.json()["code"]), (403, &json!("untrusted_peer")), "{source} {headers}");
            }
        }
    }
    assert_eq!(service.admitted(STRANGER, (0..10).map(|_| String::new())), 5, "and charged for none of it");
}
