//! Who is asking: public faults of group A, and that no input panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;

use proptest::prelude::*;
use weir::identity::{Because, Claims, Door, Identified, IdentityError, KeyHasher, Peer, Settings, Subject, resolve};
use weir::store::Key;

fn settings(proxies: &[&str]) -> Settings {
    let proxies = proxies.iter().map(|network| network.parse().expect("a network")).collect();
    Settings { trusted_proxies: proxies, ..Settings::default() }
}

fn peer(address: &str) -> Peer {
    Peer::Tcp(address.parse::<IpAddr>().expect("an address"))
}

/// A request from `from` with these lines of `X-Forwarded-For`.
fn client(settings: &Settings, from: &str, lines: &[&str]) -> String {
    let lines: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    found(settings, peer(from), &[], &lines).subject.to_string()
}

fn found(settings: &Settings, peer: Peer, forwarded: &[&[u8]], x_forwarded_for: &[&[u8]]) -> Identified {
    let claims = Claims { peer, door: Door::Proxy, user: None, address: None, api_keys: &[], user_ids: &[], forwarded, x_forwarded_for };
    resolve(settings, &KeyHasher::default(), &claims).expect("an address is always found")
}

#[test]
fn case_1_forged_addresses_from_an_untrusted_peer_are_one_identity() {
    let settings = settings(&[]);
    for n in 0..20 {
        let forged = format!("10.0.0.{n}");
        assert_eq!(client(&settings, "198.51.100.7", &[&forged]), "ip:198.51.100.7");
        let line = format!("for={forged}");
        let found = found(&settings, peer("198.51.100.7"), &[line.as_bytes()], &[]);
        assert_eq!((found.subject.to_string().as_str(), found.ignored.address), ("ip:198.51.100.7", true));
    }
}

#[test]
fn case_3_all_lines_are_one_list() {
    let settings = settings(&["10.1.0.0/16"]);
    for n in 0..20 {
        assert_eq!(client(&settings, "10.1.0.9", &[&format!("198.51.100.{n}"), "203.0.113.5"]), "ip:203.0.113.5");
    }
}

#[test]
fn case_4_the_walk_goes_from_the_right_through_trusted_proxies() {
    let settings = settings(&["10.1.0.0/16"]);
    assert_eq!(client(&settings, "10.1.0.9", &["192.0.2.99, 10.1.0.9, 203.0.113.5"]), "ip:203.0.113.5");
    assert_eq!(client(&settings, "10.1.0.9", &["192.0.2.99, 203.0.113.5, 10.1.0.9"]), "ip:203.0.113.5");
    assert_eq!(client(&settings, "10.1.0.9", &["10.1.0.2, 10.1.0.9"]), "ip:10.1.0.2");
    assert_eq!(client(&settings, "203.0.113.77", &["192.0.2.99"]), "ip:203.0.113.77");
}

#[test]
fn case_5_ports_and_brackets_go() {
    let settings = settings(&["10.1.0.0/16"]);
    for port in 40_001..40_010 {
        assert_eq!(client(&settings, "10.1.0.9", &[&format!("203.0.113.5:{port}")]), "ip:203.0.113.5");
        assert_eq!(client(&settings, "10.1.0.9", &[&format!("[2001:db8:1::5]:{port}")]), "ip:2001:db8:1::/64");
    }
}

#[test]
fn case_7_clients_behind_a_proxy_are_told_apart() {
    let settings = settings(&["10.1.0.0/16"]);
    assert_ne!(client(&settings, "10.1.0.9", &["203.0.113.5"]), client(&settings, "10.1.0.9", &["203.0.113.6"]));
}

#[test]
fn case_8_without_a_header_or_with_an_empty_one_the_peer_itself_asks() {
    let settings = settings(&["10.1.0.0/16"]);
    for lines in [&[][..], &[""], &[" , ,"], &["", "\t"]] {
        assert_eq!(client(&settings, "10.1.0.9", lines), "ip:10.1.0.9", "{lines:?}");
    }
}

#[test]
fn case_10_and_11_an_ipv6_client_is_as_wide_as_the_prefix() {
    let narrow = settings(&["10.1.0.0/16"]);
    let hosts: std::collections::BTreeSet<_> =
        (1..=100).map(|n| client(&narrow, "10.1.0.9", &[&format!("2001:db8:aa:1::{n:x}")])).collect();
    assert_eq!(hosts.into_iter().collect::<Vec<_>>(), ["ip:2001:db8:aa:1::/64"]);
    assert_eq!(client(&narrow, "10.1.0.9", &["2001:db8:aa:2::1"]), "ip:2001:db8:aa:2::/64");
    let wide = Settings { ipv6_prefix: 56, ..narrow };
    let networks: std::collections::BTreeSet<_> =
        (0..256).map(|n| client(&wide, "10.1.0.9", &[&format!("2001:db8:aa:1{n:02x}::1")])).collect();
    assert_eq!(networks.len(), 1, "{networks:?}");
}

#[test]
fn case_12_one_ipv4_client_has_one_spelling() {
    let settings = settings(&["10.1.0.0/16"]);
    for spelling in ["203.0.113.5", "::ffff:203.0.113.5", "::ffff:cb00:7105"] {
        assert_eq!(client(&settings, "10.1.0.9", &[spelling]), "ip:203.0.113.5");
        assert_eq!(client(&settings, spelling, &[]), "ip:203.0.113.5");
    }
    assert_eq!(client(&settings, "10.1.0.9", &["::ffff:203.0.113.6"]), "ip:203.0.113.6");
    assert_eq!(client(&settings, "10.1.0.9", &["2001:db8:1:2::203.0.113.5"]), "ip:2001:db8:1:2::/64");
    assert_eq!(client(&settings, "::ffff:10.1.0.9", &["203.0.113.5"]), "ip:203.0.113.5", "a trusted proxy on a dual-stack listener");
}

#[test]
fn case_13_behind_nat64_the_client_is_the_ipv4_inside() {
    let settings = settings(&["10.1.0.0/16"]);
    assert_eq!(client(&settings, "64:ff9b::cb00:7105", &[]), "ip:203.0.113.5");
    assert_eq!(client(&settings, "10.1.0.9", &["64:ff9b::cb00:7106"]), "ip:203.0.113.6");
}

#[test]
fn case_14_what_cannot_be_read_is_one_fallback_identity() {
    let settings = settings(&["10.1.0.0/16"]);
    let long = "a".repeat(4_096);
    for line in ["[::1", "\"[::1", "_gazonk", &long, "1.2.3.4.5", "203.0.113.5:port", "nonsense, "] {
        assert_eq!(client(&settings, "10.1.0.9", &[line]), "ip:unknown", "{line:?}");
    }
    assert_eq!(client(&settings, "10.1.0.9", &["fe80::1%eth0"]), "ip:fe80::/64");
    assert_eq!(found(&settings, peer("10.1.0.9"), &[b"for=\"_gazonk\""], &[]).subject.to_string(), "ip:unknown");
}

#[test]
fn forwarded_is_read_with_its_quotes_and_parameters() {
    let settings = settings(&["10.1.0.0/16"]);
    for (line, expected) in [
        ("for=192.0.2.1, for=203.0.113.5", "ip:203.0.113.5"),
        ("For=\"[2001:db8:cafe::17]:4711\"", "ip:2001:db8:cafe::/64"),
        ("proto=https;for=203.0.113.5;by=203.0.113.43", "ip:203.0.113.5"),
        ("for=203.0.113.5;host=\"a,b;for=1.1.1.1\"", "ip:203.0.113.5"),
        ("by=203.0.113.43", "ip:unknown"),
    ] {
        assert_eq!(found(&settings, peer("10.1.0.9"), &[line.as_bytes()], &[]).subject.to_string(), expected, "{line}");
    }
}

#[test]
fn two_families_that_disagree_are_both_not_believed() {
    let settings = settings(&["10.1.0.0/16"]);
    let both =
        |forwarded: &str, other: &str| found(&settings, peer("10.1.0.9"), &[forwarded.as_bytes()], &[other.as_bytes()]).subject.to_string();
    assert_eq!(both("for=203.0.113.5", "203.0.113.5"), "ip:203.0.113.5");
    assert_eq!(both("for=198.51.100.1", "203.0.113.5"), "ip:unknown");
}

#[test]
fn case_16_no_user_id_reaches_the_state_of_an_address_or_a_reserved_subject() {
    let reserved =
        [Subject::Address("203.0.113.5".into()), Subject::Anonymous, Subject::Address("unknown".into()), Subject::ApiKey("00".into())];
    for id in ["203.0.113.5", "ip:203.0.113.5", "unknown", "ip:unknown", "anon:", "key:00", "{anon:}", "}"] {
        let key = Key::new(&Subject::user(id).expect("a good id"), None);
        assert!(reserved.iter().all(|subject| Key::new(subject, None) != key), "{id}");
    }
}

fn claim<'a>(from: Peer, door: Door, user: Option<&'a str>, api_keys: &'a [&'a [u8]], user_ids: &'a [&'a [u8]]) -> Claims<'a> {
    Claims { peer: from, door, user, address: None, api_keys, user_ids, forwarded: &[], x_forwarded_for: &[] }
}

#[test]
fn case_17_made_up_users_from_an_untrusted_peer_are_its_address() {
    let (settings, hasher) = (Settings::default(), KeyHasher::default());
    for n in 0..30 {
        let key = format!("made-up-{n}");
        let lines: [&[u8]; 1] = [key.as_bytes()];
        for (keys, ids) in [(&lines[..], &[][..]), (&[][..], &lines[..])] {
            let found = resolve(&settings, &hasher, &claim(peer("198.51.100.7"), Door::Proxy, None, keys, ids)).expect("its address");
            assert_eq!((found.subject.to_string().as_str(), found.ignored.user), ("ip:198.51.100.7", true));
            let refused = resolve(&settings, &hasher, &claim(peer("198.51.100.7"), Door::Check, None, keys, ids));
            assert_eq!(refused, Err(IdentityError::UntrustedPeer));
        }
        let refused = resolve(&settings, &hasher, &claim(peer("198.51.100.7"), Door::Check, Some(&key), &[], &[]));
        assert_eq!(refused, Err(IdentityError::UntrustedPeer));
    }
}

#[test]
fn the_body_names_the_user_before_an_api_key_and_that_before_a_user_id() {
    let (settings, hasher, here) = (Settings::default(), KeyHasher::default(), peer("127.0.0.1"));
    let (keys, ids): ([&[u8]; 1], [&[u8]; 1]) = ([b"secret"], [b"alice"]);
    let because = |user, keys, ids| resolve(&settings, &hasher, &claim(here, Door::Check, user, keys, ids)).map(|found| found.because);
    assert_eq!(because(Some("bob"), &keys, &ids), Ok(Because::BodyUser));
    assert_eq!(because(None, &keys, &ids), Ok(Because::ApiKey));
    assert_eq!(because(None, &[], &ids), Ok(Because::UserIdHeader));
    assert_eq!(because(None, &[], &[]), Ok(Because::PeerAddress));
}

#[test]
fn an_api_key_is_only_its_hash() {
    let hasher = KeyHasher::default();
    let subject = hasher.subject(&[b"secret"]).expect("a key");
    // The first 32 hex digits of SHA-256("secret").
    assert_eq!(subject.to_string(), "key:2bb80d537b1da3e38bd30361aa855686");
    let with_secret = KeyHasher::with_secret(b"0123456789abcdef");
    assert_ne!(with_secret.subject(&[b"secret"]).expect("a key"), subject);
    assert!(!format!("{with_secret:?}").contains("0123456789abcdef"));
    for bad in [&[&b"a"[..], b"b"][..], &[b""], &[b"a b"], &[b"a,b"], &[b"a\tb"], &[&[0x7f]], &[&[b'x'; 1_025]]] {
        assert!(hasher.subject(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn ids_in_headers_follow_the_rules_for_ids() {
    let (settings, hasher, here) = (Settings::default(), KeyHasher::default(), peer("::1"));
    for bad in [&b""[..], b"a\nb", &[0xff, 0xfe], &[b'x'; 257]] {
        assert!(resolve(&settings, &hasher, &claim(here, Door::Check, None, &[], &[bad])).is_err(), "{bad:?}");
    }
    assert_eq!(resolve(&settings, &hasher, &claim(here, Door::Check, None, &[], &[b"a", b"b"])), Err(IdentityError::TwoUserIds));
    let found = resolve(&settings, &hasher, &claim(Peer::Unix, Door::Check, None, &[], &["用户".as_bytes()])).expect("a user");
    assert_eq!(found.subject.to_string(), "用户");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_header_panics_and_none_from_an_untrusted_peer_matters(lines in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..6), structured in "[0-9a-f:.,\\[\\]\"%;= for]{0,80}") {
        let mut lines: Vec<&[u8]> = lines.iter().map(Vec::as_slice).collect();
        lines.push(structured.as_bytes());
        let trusting = settings(&["10.1.0.0/16"]);
        let _ = found(&trusting, peer("10.1.0.9"), &lines, &[]);
        let _ = found(&trusting, peer("10.1.0.9"), &[], &lines);
        prop_assert_eq!(found(&trusting, peer("198.51.100.7"), &lines, &lines).subject.to_string(), "ip:198.51.100.7");
    }

    #[test]
    fn a_subject_is_what_its_key_says(id in "\\PC{1,60}") {
        if let Ok(subject) = Subject::user(&id) {
            let key = Key::new(&subject, None);
            let inside = key.as_str().trim_start_matches('{').trim_end_matches('}').to_owned();
            prop_assert_eq!(Subject::from_encoded(&inside), Some(subject));
        }
    }
}
