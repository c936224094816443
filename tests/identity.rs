//! Who is asking: public faults of group A, and that no input panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::net::IpAddr;

use weir::identity::{Because, Claims, Door, Identified, IdentityError, KeyHasher, Peer, Settings, Subject, resolve};
use weir::store::Key;

#[path = "identity/fuzz.rs"]
mod fuzz;

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
fn case_2_only_the_two_headers_of_the_contract_can_name_an_address() {
    // Claims has no place for X-Real-IP and its kind, and clippy.toml bans the framework's helper: nothing else reaches the walk.
    let settings = settings(&["10.1.0.0/16"]);
    assert_eq!(client(&settings, "10.1.0.9", &[]), "ip:10.1.0.9");
    assert!(include_str!("../clippy.toml").contains("realip_remote_addr"));
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
fn case_7_and_19_clients_behind_a_proxy_are_told_apart() {
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
    let wide = Settings { ipv6_prefix: 56, ..narrow.clone() };
    let whole = Settings { ipv6_prefix: 128, ..narrow.clone() };
    let networks: std::collections::BTreeSet<_> =
        (0..256).map(|n| client(&wide, "10.1.0.9", &[&format!("2001:db8:aa:1{n:02x}::1")])).collect();
    assert_eq!(networks.into_iter().collect::<Vec<_>>(), ["ip:2001:db8:aa:100::/56"]);
    let networks: std::collections::BTreeSet<_> =
        (0..256).map(|n| client(&narrow, "10.1.0.9", &[&format!("2001:db8:aa:1{n:02x}::1")])).collect();
    assert_eq!(networks.len(), 256, "a /56 is that many clients to a prefix of 64");
    assert_eq!(client(&whole, "10.1.0.9", &["2001:db8:aa::1"]), "ip:2001:db8:aa::1");
    for settings in [&narrow, &wide, &whole] {
        assert_eq!(client(settings, "10.1.0.9", &["203.0.113.5"]), "ip:203.0.113.5", "IPv4 is never cut");
    }
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
    for line in [
        "[::1",
        "\"[::1",
        "_gazonk",
        &long,
        "1.2.3.4.5",
        "203.0.113.5:port",
        "203.0.113.5:",
        "1:2:3:4:5:6:7%a.b::",
        "unknown",
        "[203.0.113.5]",
        "nonsense, ",
    ] {
        assert_eq!(client(&settings, "10.1.0.9", &[line]), "ip:unknown", "{line:?}");
    }
    for zoned in ["fe80::1%eth0", "fe80::1%eth0.100", "[fe80::1%25eth0]:80"] {
        assert_eq!(client(&settings, "10.1.0.9", &[zoned]), "ip:fe80::/64", "{zoned}");
    }
    assert_eq!(found(&settings, peer("10.1.0.9"), &[], &[&[0xd1, 0x82]]).subject.to_string(), "ip:unknown");
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
fn a_quote_that_a_client_leaves_open_does_not_hide_what_the_proxy_appends() {
    let settings = settings(&["10.1.0.0/16"]);
    for appended in ["for=203.0.113.5", "for=\"203.0.113.5:80\"", "for=203.0.113.5;by=\"_p\";host=\"h\""] {
        for n in 0..20 {
            for sent in [format!("for=198.51.100.{n};x=\""), format!("for=198.51.100.{n};x=\"\\"), format!("for=198.51.100.{n};\"")] {
                let line = format!("{sent}, {appended}");
                assert_eq!(found(&settings, peer("10.1.0.9"), &[line.as_bytes()], &[]).subject.to_string(), "ip:unknown", "{line}");
                let lines: [&[u8]; 2] = [sent.as_bytes(), appended.as_bytes()];
                assert_eq!(
                    found(&settings, peer("10.1.0.9"), &lines, &[]).subject.to_string(),
                    "ip:203.0.113.5",
                    "{sent}, then {appended}"
                );
            }
        }
    }
    let doubled = found(&settings, peer("10.1.0.9"), &[b"for=198.51.100.1;for=203.0.113.5"], &[]);
    assert_eq!((doubled.subject.to_string().as_str(), doubled.because), ("ip:unknown", Because::Unreadable));
}

#[test]
fn the_walk_stops_where_it_cannot_read_and_not_before() {
    let settings = settings(&["10.1.0.0/16"]);
    assert_eq!(client(&settings, "10.1.0.9", &["junk, 203.0.113.5"]), "ip:203.0.113.5");
    assert_eq!(client(&settings, "10.1.0.9", &["198.51.100.1, junk, 10.1.0.2"]), "ip:unknown");
    assert_eq!(client(&settings, "10.1.0.9", &["198.51.100.1", "unknown", " , "]), "ip:unknown");
}

#[test]
fn a_list_is_read_for_64_addresses_from_the_right() {
    let settings = settings(&["10.1.0.0/16"]);
    let chain = |proxies: usize| format!("203.0.113.5{}", ", 10.1.0.2".repeat(proxies));
    assert_eq!(client(&settings, "10.1.0.9", &[&chain(63)]), "ip:203.0.113.5");
    assert_eq!(client(&settings, "10.1.0.9", &[&chain(64)]), "ip:10.1.0.2");
    assert_eq!(client(&settings, "10.1.0.9", &[&chain(20_000)]), "ip:10.1.0.2");
}

#[test]
fn the_address_inside_nat64_is_a_clients_and_never_a_proxys() {
    let settings = settings(&["127.0.0.0/8", "10.1.0.0/16"]);
    assert_eq!(client(&settings, "64:ff9b::7f00:1", &["198.51.100.1"]), "ip:127.0.0.1");
    assert_eq!(client(&settings, "10.1.0.9", &["198.51.100.1, 64:ff9b::a01:2"]), "ip:10.1.0.2");
}

#[test]
fn a_unix_socket_is_believed_and_has_no_address_of_its_own() {
    let settings = Settings { trusted_peers: Vec::new(), ..settings(&[]) };
    let named = found(&settings, Peer::Unix, &[], &[b"203.0.113.5"]);
    assert_eq!((named.subject.to_string().as_str(), named.because), ("ip:203.0.113.5", Because::Forwarded));
    let silent = found(&settings, Peer::Unix, &[], &[]);
    assert_eq!((silent.subject.to_string().as_str(), silent.because), ("ip:unknown", Because::NoAddress));
    let user = resolve(&settings, &KeyHasher::default(), &claim(Peer::Unix, Door::Check, Some("alice"), &[], &[])).expect("a user");
    assert_eq!(user.subject, Subject::user("alice").expect("a good id"));
}

#[test]
fn headers_without_an_element_are_no_claim() {
    let settings = settings(&[]);
    for lines in [&[&b""[..]][..], &[b" ,\t,", b","]] {
        assert!(!found(&settings, peer("198.51.100.7"), lines, lines).ignored.address, "{lines:?}");
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

const fn claim<'a>(from: Peer, door: Door, user: Option<&'a str>, api_keys: &'a [&'a [u8]], user_ids: &'a [&'a [u8]]) -> Claims<'a> {
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
fn an_address_in_the_body_is_for_those_who_are_believed() {
    let (settings, hasher) = (settings(&["10.1.0.0/16"]), KeyHasher::default());
    let ask = |from, door, address| {
        let claims = Claims { address: Some(address), x_forwarded_for: &[b"192.0.2.9"], ..claim(peer(from), door, None, &[], &[]) };
        resolve(&settings, &hasher, &claims).map(|found| (found.subject.to_string(), found.because))
    };
    for (from, address, expected) in [
        ("127.0.0.1", "203.0.113.5", Ok("ip:203.0.113.5")),
        ("10.1.0.9", "[2001:db8::1]:443", Ok("ip:2001:db8::/64")),
        ("127.0.0.1", "", Err(IdentityError::InvalidAddress)),
        ("127.0.0.1", "nonsense", Err(IdentityError::InvalidAddress)),
        ("198.51.100.7", "203.0.113.5", Err(IdentityError::UntrustedPeer)),
        ("198.51.100.7", "nonsense", Err(IdentityError::UntrustedPeer)),
    ] {
        let expected = expected.map(|subject| (subject.to_owned(), Because::BodyAddress));
        assert_eq!(ask(from, Door::Check, address), expected, "{address:?} from {from}");
    }
    assert_eq!(ask("198.51.100.7", Door::Proxy, "203.0.113.5"), Ok(("ip:198.51.100.7".to_owned(), Because::PeerAddress)));
}

#[test]
fn an_api_key_is_only_its_hash() {
    let hasher = KeyHasher::default();
    // The first 32 hex digits of SHA-256, and of HMAC-SHA-256 with the secret, as Python's hashlib and hmac give them.
    assert_eq!(hasher.subject(&[b"secret"]).expect("a key").to_string(), "key:2bb80d537b1da3e38bd30361aa855686");
    let with_secret = KeyHasher::with_secret(b"0123456789abcdef");
    assert_eq!(with_secret.subject(&[b"secret"]).expect("a key").to_string(), "key:59fa6a4dccc441a2ceb3d563296276a0");
    assert!(!format!("{with_secret:?}").contains("0123456789abcdef"));
}

#[test]
fn what_is_no_api_key_is_an_error_that_does_not_show_it() {
    let (settings, hasher, here) = (Settings::default(), KeyHasher::default(), peer("127.0.0.1"));
    for bad in
        [&[&b"zzz"[..], b"yyy"][..], &[b""], &[b"zzz yyy"], &[b"zzz,yyy"], &[b"zzz\tyyy"], &[b"zzz\x0b"], &[&[0x7f]], &[&[b'z'; 1_025]]]
    {
        for user in [None, Some("alice")] {
            let error = resolve(&settings, &hasher, &claim(here, Door::Check, user, bad, &[])).expect_err("no key");
            assert!(matches!(error, IdentityError::InvalidApiKey(_)), "{bad:?}: {error:?}");
            assert!(!format!("{error} {error:?}").contains("zz"), "{error}");
        }
    }
    assert!(hasher.subject(&[&[b'z'; 1_024]]).is_ok() && hasher.subject(&[]).is_err());
}

#[test]
fn case_20_and_22_an_id_is_taken_byte_by_byte_or_not_at_all() {
    let (settings, hasher, here) = (Settings::default(), KeyHasher::default(), peer("::1"));
    let longest = "x".repeat(256);
    let good = ["two words", "用户", "e\u{301}", "\u{e9}", "😀", "../x", "*", "те", longest.as_str()];
    let mut keys = std::collections::BTreeSet::new();
    for id in good {
        let by_header = resolve(&settings, &hasher, &claim(here, Door::Check, None, &[], &[id.as_bytes()])).expect("a user").subject;
        let by_body = resolve(&settings, &hasher, &claim(here, Door::Check, Some(id), &[], &[])).expect("a user").subject;
        assert_eq!((by_header.to_string().as_str(), &by_header), (id, &by_body));
        keys.insert(Key::new(&by_header, None).as_str().to_owned());
    }
    assert_eq!(keys.len(), good.len(), "each has a state of its own");
    for bad in [&b""[..], b"a\nb", b"a\0b", b"user-a\r\nSET x 1", "a\u{85}b".as_bytes(), &[0xff, 0xfe], &[0xff], &[b'x'; 257]] {
        for door in [Door::Check, Door::Proxy] {
            let refused = resolve(&settings, &hasher, &claim(here, door, None, &[], &[bad]));
            assert!(matches!(refused, Err(IdentityError::InvalidUserId(_))), "{bad:?}: {refused:?}");
        }
    }
    assert_eq!(resolve(&settings, &hasher, &claim(here, Door::Check, None, &[], &[b"a", b"b"])), Err(IdentityError::TwoUserIds));
}

#[test]
fn no_reserved_subject_that_an_operator_writes_reaches_out_of_its_braces() {
    for good in ["anon:", "ip:unknown", "ip:203.0.113.5", "ip:2001:db8::/64", "key:2bb80d537b1da3e38bd30361aa855686"] {
        assert_eq!(Subject::from_reserved(good).expect(good).to_string(), good);
    }
    for bad in ["alice", "anon:x", "key:}", "ip:1}:route:r", "ip:{", "ip:a b", "ip:1%2e", "key:AB", "ip:1\r\n", "other:x"] {
        assert_eq!(Subject::from_reserved(bad), None, "{bad:?}");
    }
}
