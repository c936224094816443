//! Many at once: what is admitted is bounded, and no request is lost.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use weir::clock::{elapsed, monotonic};
use weir::limit::Field;
use weir::store::{Key, MemoryStore};

use crate::support::redis::RedisServer;
use crate::support::server::{Setup, TestServer, limits};

/// Asks `per_connection` times on each of `connections`, all at once; how often each status came.
fn ask(server: &TestServer, connections: usize, per_connection: usize, body: impl Fn(usize, usize) -> String + Sync) -> Vec<(u16, u64)> {
    let counts: Vec<AtomicU64> = (0..600).map(|_| AtomicU64::new(0)).collect();
    let start = Barrier::new(connections);
    thread::scope(|scope| {
        for connection in 0..connections {
            let (counts, start, body) = (&counts, &start, &body);
            scope.spawn(move || {
                let mut raw = server.connect();
                start.wait();
                for turn in 0..per_connection {
                    let reply = raw.check("", &body(connection, turn)).expect("an answer");
                    counts[usize::from(reply.status)].fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    (0..).zip(&counts).map(|(status, count)| (status, count.load(Ordering::Relaxed))).filter(|(_, count)| *count > 0).collect()
}

#[test]
fn ten_thousand_at_once_from_64_connections_admit_exactly_the_window() {
    let store = std::sync::Arc::new(MemoryStore::new(1_000, std::sync::Arc::new(weir::clock::ManualClock::new(0))));
    let mut setup = Setup::default().config(limits(&[
        (Field::Algorithm, "sliding_window"),
        (Field::WindowLimit, "100"),
        (Field::WindowSeconds, "3600"),
    ]));
    setup.store = store.clone();
    let server = setup.start();
    let answered = ask(&server, 64, 157, |_, _| r#"{"user":"one"}"#.to_owned());
    assert_eq!(answered, [(200, 100), (429, 64 * 157 - 100)]);
    let key = Key::new(&weir::identity::Subject::user("one").unwrap(), None);
    assert_eq!(store.window_entries(&key), 100);
}

/// The same through two processes on one Redis: one limit for all.
#[test]
fn ten_thousand_at_once_through_two_processes_admit_exactly_the_window() {
    let redis = RedisServer::start();
    let limits = [(Field::Algorithm, "sliding_window"), (Field::WindowLimit, "100"), (Field::WindowSeconds, "3600")];
    let servers = [0, 1].map(|_| {
        let mut setup = Setup::default().config(self::limits(&limits));
        setup.store = std::sync::Arc::new(redis.store());
        setup.start()
    });
    let answered = thread::scope(|scope| {
        let halves = servers.each_ref().map(|server| scope.spawn(|| ask(server, 32, 157, |_, _| r#"{"user":"one"}"#.to_owned())));
        halves.map(|half| half.join().expect("no panic"))
    });
    let admitted: u64 = answered.iter().flatten().filter(|(status, _)| *status == 200).map(|(_, count)| count).sum();
    assert_eq!(admitted, 100, "{answered:?}");
    let entries: u64 = redis::cmd("ZCARD").arg("ratelimit:window:{one}").query(&mut redis.connect()).expect("ZCARD");
    assert_eq!(entries, 100);
}

#[test]
fn case_77_the_number_of_workers_does_not_multiply_a_limit() {
    for workers in [1, 4, 16] {
        let fields = [(Field::TokensPerSecond, "0.001"), (Field::BucketCapacity, "20"), (Field::WindowLimit, "20")];
        let server = Setup::default().config(limits(&fields)).workers(workers).start();
        assert_eq!(ask(&server, 64, 7, |_, _| r#"{"user":"one"}"#.to_owned()), [(200, 20), (429, 64 * 7 - 20)], "{workers} workers");
    }
}

#[test]
fn on_memory_a_hundred_users_with_a_thousand_requests_each_stay_within_their_bounds_and_none_is_lost() {
    a_hundred_users_with_a_thousand_requests_each(Setup::default());
}

#[test]
fn on_redis_a_hundred_users_with_a_thousand_requests_each_stay_within_their_bounds_and_none_is_lost() {
    let redis = RedisServer::start();
    a_hundred_users_with_a_thousand_requests_each(Setup { store: std::sync::Arc::new(redis.store()), ..Setup::default() });
}

fn a_hundred_users_with_a_thousand_requests_each(setup: Setup) {
    let (capacity, rate) = (50_u64, 10_u64);
    let fields = [(Field::TokensPerSecond, "10"), (Field::BucketCapacity, "50"), (Field::Algorithm, "token_bucket")];
    let server = setup.config(limits(&fields)).start();
    let begin = monotonic();
    let admitted: Vec<AtomicU64> = (0..100).map(|_| AtomicU64::new(0)).collect();
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for connection in 0..100 {
            let (admitted, refused, server) = (&admitted, &refused, &server);
            scope.spawn(move || {
                let mut raw = server.connect();
                for turn in 0..1_000 {
                    // Every connection asks for every user, so that each user comes over all of them.
                    let user = (connection + turn) % 100;
                    match raw.check("", &format!(r#"{{"user":"user-{user}"}}"#)).expect("an answer").status {
                        200 => admitted[user].fetch_add(1, Ordering::Relaxed),
                        429 => refused.fetch_add(1, Ordering::Relaxed),
                        status => panic!("user-{user} was answered {status}"),
                    };
                }
            });
        }
    });
    let bound = capacity + rate * (elapsed(begin).as_secs() + 1);
    for (user, admitted) in admitted.iter().enumerate() {
        let admitted = admitted.load(Ordering::Relaxed);
        assert!((capacity..=bound).contains(&admitted), "user-{user}: {admitted} admitted, at most {bound}");
    }
    let admitted: u64 = admitted.iter().map(|admitted| admitted.load(Ordering::Relaxed)).sum();
    assert_eq!(admitted + refused.load(Ordering::Relaxed), 100_000);
    assert_eq!(server.decisions(), 100_000.0);
}
