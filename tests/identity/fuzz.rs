//! What holds for any bytes. A failure shows the smallest input that fails.

use proptest::prelude::*;
use weir::identity::{Because, Claims, Door, KeyHasher, Peer, Settings, Subject, canonical, resolve};
use weir::store::Key;

use super::{claim, found, peer, settings};

/// What clients may send: any bytes, or something that looks like what is parsed.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let structured = "(for=|[0-9a-f:.]{1,6}|203\\.0\\.113\\.9|[;,=%\"\\\\ \\[\\]]|x=){0,12}";
    prop_oneof![prop::collection::vec(any::<u8>(), 0..200), structured.prop_map(String::into_bytes)]
}

fn lines() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(line(), 0..5)
}

fn slices(lines: &[Vec<u8>]) -> Vec<&[u8]> {
    lines.iter().map(Vec::as_slice).collect()
}

/// The one fallback, or an address whose canonical form is itself.
fn is_canonical(subject: &Subject) -> bool {
    let Subject::Address(text) = subject else { return false };
    let bare = text.strip_suffix("/64").unwrap_or(text);
    &**text == "unknown" || bare.parse().is_ok_and(|address| canonical(address, 64) == *text)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_header_panics_and_an_anonymous_client_is_an_address_or_the_one_fallback(a in lines(), b in lines()) {
        let trusting = settings(&["10.1.0.0/16", "0.0.0.0/1"]);
        for peer in [peer("10.1.0.9"), Peer::Unix] {
            let found = found(&trusting, peer, &slices(&a), &slices(&b));
            prop_assert!(is_canonical(&found.subject), "{:?}", found);
            prop_assert_eq!(found.is_anonymous(), true);
        }
    }

    #[test]
    fn nothing_that_an_untrusted_peer_sends_changes_who_it_is(user in any::<Option<String>>(), a in lines(), b in lines(), keys in lines(), ids in lines()) {
        let (keys, ids, a, b) = (slices(&keys), slices(&ids), slices(&a), slices(&b));
        let claims = Claims { forwarded: &a, x_forwarded_for: &b, ..claim(peer("198.51.100.7"), Door::Proxy, user.as_deref(), &keys, &ids) };
        let found = resolve(&Settings::default(), &KeyHasher::default(), &claims).expect("its address");
        prop_assert_eq!(&found.subject, &Subject::Address("198.51.100.7".into()));
        prop_assert_eq!(found.because, Because::PeerAddress);
        prop_assert_eq!(found.ignored.user, user.is_some() || !keys.is_empty() || !ids.is_empty());
    }

    #[test]
    fn behind_a_proxy_that_appends_a_client_is_itself_or_the_one_fallback(sent in line(), other in lines(), proxy in 0_usize..4) {
        let trusting = settings(&["10.1.0.0/16"]);
        let mut x_forwarded_for = sent.clone();
        x_forwarded_for.extend(b", 203.0.113.5");
        prop_assert_eq!(found(&trusting, peer("10.1.0.9"), &[], &[&x_forwarded_for]).subject.to_string(), "ip:203.0.113.5");
        let appended = ["for=203.0.113.5", "for=\"203.0.113.5:80\"", "by=_p;for=203.0.113.5;host=\"h\"", "for=203.0.113.5,for=10.1.0.2"][proxy];
        let mut forwarded = sent;
        forwarded.extend(b", ");
        forwarded.extend(appended.as_bytes());
        for (lines, others) in [(vec![&*forwarded], vec![]), (vec![&*forwarded], slices(&other))] {
            let subject = found(&trusting, peer("10.1.0.9"), &lines, &others).subject.to_string();
            prop_assert!(["ip:203.0.113.5", "ip:unknown"].contains(&subject.as_str()), "{}", subject);
        }
    }

    #[test]
    fn every_key_says_its_subject_and_stays_within_its_braces(user in any::<Option<String>>(), keys in lines(), ids in lines(), a in lines()) {
        let (keys, ids, a) = (slices(&keys), slices(&ids), slices(&a));
        let claims = Claims { x_forwarded_for: &a, ..claim(peer("127.0.0.1"), Door::Check, user.as_deref(), &keys, &ids) };
        if let Ok(found) = resolve(&Settings::default(), &KeyHasher::default(), &claims) {
            let key = Key::new(&found.subject, None);
            let inside = key.as_str().strip_prefix('{').and_then(|key| key.strip_suffix('}')).expect("braces around it");
            prop_assert!(!inside.is_empty() && !inside.contains(['{', '}']) && inside.is_ascii(), "{}", inside);
            // An inverse that tells kinds apart: no two subjects have one key.
            prop_assert_eq!(Subject::from_encoded(inside), Some(found.subject));
        }
    }

    #[test]
    fn a_user_id_is_what_its_key_says(id in "\\PC{1,60}") {
        if let Ok(subject) = Subject::user(&id) {
            let key = Key::new(&subject, None);
            let inside = key.as_str().trim_start_matches('{').trim_end_matches('}').to_owned();
            prop_assert_eq!(Subject::from_encoded(&inside), Some(subject));
        }
    }
}
