//! Overrides: what operators set, on Redis and in the local file, through the cache, and what every process makes of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::redis::RedisServer;
use weir::clock::{SystemClock, monotonic, unix_micros};
use weir::config::Config;
use weir::identity::Subject;
use weir::limit::{Field, Reason, US, Value};
use weir::limiter::{Limiter, OperateError, Order, Request};
use weir::overrides::{
    Cache, Change, EmbeddedOverrides, Entry, FRESH, Fields, Override, OverrideStore, RedisOverrides, Set, Target, Write, WriteError,
};
use weir::store::{MemoryStore, RedisStore};

fn target(user: &str) -> Target {
    Target::general(Subject::user(user).expect("a good id"))
}

fn patch(sets: &[(Field, f64)]) -> Change {
    let sets = sets.iter().map(|(field, value)| Set::Policy(*field, Some(Value::Number(*value)))).collect();
    Change::Patch { sets, expires_in: None, note: None }
}

fn word(field: Field, word: &'static str) -> Change {
    Change::Patch { sets: vec![Set::Policy(field, Some(Value::Word(word)))], expires_in: None, note: None }
}

fn order(by: &str) -> Order {
    Order { by: by.to_owned(), ..Order::default() }
}

/// One process: a limiter with a cache and connections of its own.
struct Process {
    limiter: Arc<Limiter>,
    hearing: tokio::task::JoinHandle<()>,
}

impl Process {
    fn on(store: RedisStore, fresh: Duration) -> Self {
        let store = Arc::new(store);
        let overrides = Arc::new(RedisOverrides::beside(&store));
        let cache = Arc::new(Cache::new(overrides.clone(), fresh));
        let heeding = cache.clone();
        let hearing = tokio::spawn(async move { overrides.listen(Arc::new(move |news| heeding.heed(&news))).await });
        Self { limiter: Arc::new(Limiter::new(Config::default(), store).with_overrides(cache)), hearing }
    }

    async fn limit(&self, user: &str) -> u64 {
        let request = Request { subject: Subject::user(user).expect("a good id"), path: None, method: None, cost: Some(0) };
        self.limiter.check(request).await.expect("an answer").decision.quota.map_or(0, |quota| quota.limit)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.hearing.abort();
    }
}

/// Asks until it is so.
async fn eventually<T: PartialEq + std::fmt::Debug>(wanted: T, within: Duration, mut ask: impl AsyncFnMut() -> T) {
    let start = monotonic();
    loop {
        let found = ask().await;
        if found == wanted {
            return;
        }
        assert!(weir::clock::elapsed(start) < within, "still {found:?}, not {wanted:?}, after {within:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_90_a_change_is_in_force_at_once_where_it_was_made_and_soon_everywhere_and_never_goes_back() {
    let server = RedisServer::start();
    let processes = [0, 1, 2].map(|_| Process::on(server.store(), FRESH));
    for process in &processes {
        assert_eq!(process.limit("u").await, 100);
    }
    for n in 1..=200_u32 {
        processes[0]
            .limiter
            .change(&target("u"), &patch(&[(Field::BucketCapacity, f64::from(1_000 + n))]), &order("test"))
            .await
            .expect("changed");
        assert_eq!(processes[0].limit("u").await, u64::from(1_000 + n), "its own next decision");
        if n % 20 == 0 {
            for process in &processes[1..] {
                let mut newest = 0;
                // Ten times the second that is promised: this machine may be busy.
                eventually(u64::from(1_000 + n), Duration::from_secs(10), async || {
                    let limit = process.limit("u").await;
                    assert!(limit >= newest, "an older value after a newer one");
                    newest = limit;
                    limit
                })
                .await;
            }
        }
    }
    processes[0].limiter.change(&target("u"), &Change::Delete, &order("test")).await.expect("deleted");
    for process in &processes {
        eventually(100, Duration::from_secs(10), async || process.limit("u").await).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_made_behind_the_services_back_is_found_when_the_entry_is_read_anew() {
    let server = RedisServer::start();
    let process = Process::on(server.store(), Duration::from_millis(300));
    assert_eq!(process.limit("u").await, 100);
    redis::cmd("HSET").arg("ratelimit:config:{u}").arg("bucket_capacity").arg("7").exec(&mut server.connect()).expect("HSET");
    eventually(7, Duration::from_secs(10), async || process.limit("u").await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_temporary_change_ends_by_itself_everywhere_and_the_audit_shows_both_ends() {
    let server = RedisServer::start();
    let (one, other) = (Process::on(server.store(), FRESH), Process::on(server.store(), FRESH));
    let raise =
        Change::Patch { sets: vec![Set::Policy(Field::BucketCapacity, Some(Value::Number(500.0)))], expires_in: Some(US), note: None };
    let order = Order { by: "alice".to_owned(), reason: Some("bulk tonight".to_owned()), if_match: None };
    one.limiter.change(&target("u"), &raise, &order).await.expect("changed");
    assert_eq!(one.limit("u").await, 500);
    // The process that took it is gone; the end comes all the same.
    let audit = Arc::clone(&one.limiter);
    drop(one);
    eventually(500, Duration::from_secs(10), async || other.limit("u").await).await;
    eventually(100, Duration::from_secs(20), async || other.limit("u").await).await;
    eventually(2, Duration::from_secs(10), async || audit.audit(&target("u"), 10).await.expect("the audit").len()).await;
    let changes = audit.audit(&target("u"), 10).await.expect("the audit");
    assert_eq!((changes[0].entry.action.as_str(), changes[0].entry.by.as_str()), ("temporary_ended", "weir"));
    assert_eq!((changes[1].entry.by.as_str(), changes[1].entry.reason.as_deref()), ("alice", Some("bulk tonight")));
    assert!(changes[0].version > changes[1].version);
}

/// Case 95: two operators patch different fields at once, round after round; no change is lost.
async fn no_update_is_lost(limiters: [Arc<Limiter>; 2], rounds: u32) {
    for round in 0..rounds {
        let user = target(&format!("u{round}"));
        let changes = [patch(&[(Field::BucketCapacity, f64::from(50 + round))]), patch(&[(Field::WindowLimit, f64::from(500 + round))])];
        let (one, two) = (order("one"), order("two"));
        let done = tokio::join!(limiters[0].change(&user, &changes[0], &one), limiters[1].change(&user, &changes[1], &two));
        assert!(done.0.is_ok() && done.1.is_ok(), "{:?} {:?}", done.0.err(), done.1.err());
        let described = limiters[0].describe(&user).await.expect("described");
        assert_eq!(described.policy.bucket_capacity(), u64::from(50 + round));
        assert_eq!(described.policy.window_limit(), u64::from(500 + round));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_95_on_redis_no_update_is_lost() {
    let server = RedisServer::start();
    let processes = [0, 1].map(|_| Process::on(server.store(), FRESH));
    no_update_is_lost(processes.each_ref().map(|process| Arc::clone(&process.limiter)), 500).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_95_in_the_file_no_update_is_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let limiter = embedded(&folder);
    no_update_is_lost([Arc::clone(&limiter), limiter], 50).await;
}

fn embedded(folder: &tempfile::TempDir) -> Arc<Limiter> {
    let overrides = Arc::new(EmbeddedOverrides::open(folder.path(), Arc::new(SystemClock)).expect("the file"));
    let cache = Arc::new(Cache::new(overrides.clone(), FRESH));
    let heeding = cache.clone();
    overrides.tell(Arc::new(move |news| heeding.heed(&news)));
    Arc::new(Limiter::new(Config::default(), Arc::new(MemoryStore::new(1_000, Arc::new(SystemClock)))).with_overrides(cache))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_version_is_refused_and_a_version_survives_a_deletion() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let on_redis = Process::on(server.store(), FRESH);
    for limiter in [Arc::clone(&on_redis.limiter), embedded(&folder)] {
        let user = target("u");
        let (_, first) = limiter.change(&user, &patch(&[(Field::BucketCapacity, 5.0)]), &order("a")).await.expect("changed");
        let (_, second) = limiter.change(&user, &patch(&[(Field::BucketCapacity, 6.0)]), &order("a")).await.expect("changed");
        let stale = Order { if_match: Some(first.version), ..order("b") };
        let refused = limiter.change(&user, &patch(&[(Field::BucketCapacity, 7.0)]), &stale).await;
        assert!(matches!(refused, Err(OperateError::Stale(version)) if version == second.version), "{refused:?}");
        let (_, deleted) = limiter.change(&user, &Change::Delete, &order("a")).await.expect("deleted");
        let (_, again) = limiter.change(&user, &Change::Delete, &order("a")).await.expect("twice is fine");
        assert!(first.version < second.version && second.version < deleted.version && deleted.version < again.version);
        assert!(limiter.describe(&user).await.expect("described").stored.own.is_empty());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_patch_keeps_the_other_fields_and_nothing_gives_one_back() {
    let server = RedisServer::start();
    let process = Process::on(server.store(), FRESH);
    let user = target("u");
    let all =
        patch(&[(Field::BucketCapacity, 50.0), (Field::TokensPerSecond, 5.0), (Field::WindowSeconds, 60.0), (Field::WindowLimit, 300.0)]);
    process.limiter.change(&user, &all, &order("a")).await.expect("changed");
    process.limiter.change(&user, &patch(&[(Field::BucketCapacity, 60.0)]), &order("a")).await.expect("changed");
    let give_back = Change::Patch { sets: vec![Set::Policy(Field::WindowLimit, None)], expires_in: None, note: None };
    let (described, _) = process.limiter.change(&user, &give_back, &order("a")).await.expect("changed");
    let set: Vec<_> = described.stored.own.standing.part.iter().map(|(field, value)| format!("{field}={value}")).collect();
    assert_eq!(set, ["tokens_per_second=5", "bucket_capacity=60", "window_seconds=60"]);
}

/// Case 37, the override: a field that cannot be read falls back to what is inherited, is counted, and is never unlimited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_37_a_malformed_override_is_what_is_inherited() {
    let server = RedisServer::start();
    let mut connection = server.connect();
    for field in ["bucket_capacity", "tokens_per_second", "window_seconds", "window_limit", "algorithm", "temporary.bucket_capacity"] {
        for value in ["nan", "inf", "-1", "", "abc", "1e309", "0x10"] {
            let process = Process::on(server.store(), FRESH);
            redis::cmd("DEL").arg("ratelimit:config:{u}").exec(&mut connection).expect("DEL");
            redis::cmd("HSET").arg("ratelimit:config:{u}").arg(field).arg(value).exec(&mut connection).expect("HSET");
            assert_eq!(process.limit("u").await, 100, "{field}={value:?}");
            assert!(process.limiter.overrides().expect("overrides").malformed() > 0, "{field}={value:?}");
        }
    }
    redis::cmd("DEL").arg("ratelimit:config:{u}").exec(&mut connection).expect("DEL");
    redis::cmd("RPUSH").arg("ratelimit:config:{u}").arg("a list").exec(&mut connection).expect("RPUSH");
    assert_eq!(Process::on(server.store(), FRESH).limit("u").await, 100, "a key of another type");
}

/// Cases 88 and 89 on both stores: what was used is kept, in both directions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cases_88_and_89_changing_a_limit_keeps_what_was_used() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let on_redis = Process::on(server.store(), FRESH);
    for limiter in [Arc::clone(&on_redis.limiter), embedded(&folder)] {
        let take = async |user: &str, n: usize| {
            let mut admitted = 0;
            for _ in 0..n {
                let request = Request { subject: Subject::user(user).expect("a good id"), path: None, method: None, cost: None };
                admitted += usize::from(limiter.check(request).await.expect("an answer").decision.admitted);
            }
            admitted
        };
        limiter
            .change(&target("lowered"), &patch(&[(Field::BucketCapacity, 1_000.0), (Field::TokensPerSecond, 0.005)]), &order("a"))
            .await
            .expect("changed");
        assert_eq!(take("lowered", 1).await, 1);
        limiter.change(&target("lowered"), &patch(&[(Field::BucketCapacity, 10.0)]), &order("a")).await.expect("changed");
        assert_eq!(take("lowered", 50).await, 10);
        limiter
            .change(&target("raised"), &patch(&[(Field::BucketCapacity, 10.0), (Field::TokensPerSecond, 0.001)]), &order("a"))
            .await
            .expect("changed");
        assert_eq!(take("raised", 20).await, 10);
        limiter.change(&target("raised"), &patch(&[(Field::BucketCapacity, 100.0)]), &order("a")).await.expect("changed");
        assert_eq!(take("raised", 5).await, 0, "nobody gets a full bucket as a present");
        limiter.change(&target("blocked"), &word(Field::Mode, "block"), &order("a")).await.expect("changed");
        assert_eq!(take("blocked", 5).await, 0);
    }
}

/// Case 91: an error while reading is never remembered as "no override": a blocked user stays blocked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_91_while_redis_is_away_a_blocked_user_stays_blocked() {
    let server = RedisServer::start();
    let options =
        weir::store::RedisOptions { url: server.url(), deadline: Duration::from_millis(200), ..weir::store::RedisOptions::default() };
    let process = Process::on(RedisStore::new(options).expect("a good url"), Duration::from_millis(200));
    process.limiter.change(&target("blocked"), &word(Field::Mode, "block"), &order("a")).await.expect("changed");
    let reason = async || {
        let request = Request { subject: Subject::user("blocked").expect("a good id"), path: None, method: None, cost: None };
        process.limiter.check(request).await.expect("an answer").decision.reason
    };
    assert_eq!(reason().await, Some(Reason::Blocked));
    drop(server);
    let start = monotonic();
    while weir::clock::elapsed(start) < Duration::from_secs(2) {
        assert_eq!(reason().await, Some(Reason::Blocked), "many times past the age of the entry");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Case 92: entries are read once each, and not again at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_92_ten_thousand_users_are_read_once_in_their_time_and_a_crowd_of_one_user_once() {
    let server = RedisServer::start();
    let store = Arc::new(server.store());
    let cache = Arc::new(Cache::new(Arc::new(RedisOverrides::beside(&store)), FRESH));
    let start = monotonic();
    for n in 0..10_000 {
        cache.get(&target(&format!("u{n}")).key(), start).await.expect("read");
    }
    // All ask once a second for 90 seconds.
    let mut spread = Vec::new();
    for second in 1..=90 {
        let before = cache.reads();
        for n in 0..10_000 {
            cache.get(&target(&format!("u{n}")).key(), start + Duration::from_secs(second)).await.expect("remembered or read");
        }
        spread.push(cache.reads() - before);
    }
    assert_eq!(spread.iter().take(20).sum::<u64>(), 0, "no entry is old yet");
    assert_eq!(spread.iter().take(30).sum::<u64>(), 10_000, "in the first half minute each once more, spread out");
    assert_eq!(spread.iter().skip(30).take(30).sum::<u64>(), 10_000, "from then on once each half minute");
    assert_eq!(spread.iter().skip(60).sum::<u64>(), 10_000);
    assert!(spread.iter().all(|reads| *reads <= 10_000 / 5), "no common spike: {spread:?}");

    let cold = Arc::new(Cache::new(Arc::new(RedisOverrides::beside(&store)), FRESH));
    let crowd: Vec<_> = (0..200)
        .map(|_| {
            let cold = Arc::clone(&cold);
            tokio::spawn(async move { cold.get(&target("hot").key(), start).await.expect("read") })
        })
        .collect();
    for one in crowd {
        one.await.expect("no panic");
    }
    assert_eq!(cold.reads(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overrides_are_listed_by_prefix_and_in_pages() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let on_redis = Process::on(server.store(), FRESH);
    for limiter in [Arc::clone(&on_redis.limiter), embedded(&folder)] {
        for user in ["alice", "albert", "bob", "b/o b", "用户"] {
            limiter.change(&target(user), &patch(&[(Field::BucketCapacity, 5.0)]), &order("a")).await.expect("changed");
        }
        limiter.change(&target("albert"), &Change::Delete, &order("a")).await.expect("deleted");
        let store = limiter.overrides().expect("overrides").store();
        let page = store.list("al", None, 10).await.expect("a page");
        assert_eq!(page.items.iter().map(|(target, _)| target.subject.to_string()).collect::<Vec<_>>(), ["alice"]);
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let page = store.list("", cursor.as_deref(), 2).await.expect("a page");
            seen.extend(page.items.into_iter().map(|(target, _)| target.subject.to_string()));
            match page.next {
                Some(next) => cursor = Some(next),
                None => break,
            }
        }
        seen.sort();
        assert_eq!(seen, ["alice", "b/o b", "bob", "用户"]);
    }
}

#[test]
fn the_file_belongs_to_one_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let _first = EmbeddedOverrides::open(folder.path(), Arc::new(SystemClock)).expect("the file");
    let second = EmbeddedOverrides::open(folder.path(), Arc::new(SystemClock));
    assert!(second.is_err_and(|error| error.to_string().contains("in use by another process")));
}

/// The child of the test below: writes as fast as it can and says what was acknowledged.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "a test's own switch, set by the test that starts it")]
async fn child_that_writes_until_it_is_killed() {
    let Ok(folder) = std::env::var("WEIR_TEST_FOLDER") else { return };
    let first: u64 = std::env::var("WEIR_TEST_FIRST").expect("a number").parse().expect("a number");
    let store = EmbeddedOverrides::open(std::path::Path::new(&folder), Arc::new(SystemClock)).expect("the file");
    for n in first..first + 1_000 {
        let mut own = Override::default();
        own.standing.part.set_number(Field::BucketCapacity, (n + 1) as f64).expect("in range");
        let entry = Entry { by: "child".into(), action: "update".into(), reason: None, from: Fields::new(), to: Fields::new() };
        let written = store.write(&target(&format!("u{n}")), Write { expected: 0, own, expires_in: None, not_before: None, entry }).await;
        assert!(written.is_ok() || matches!(written, Err(WriteError::Stale(_))));
        println!("acknowledged {n}");
    }
}

/// Whatever was acknowledged is there after `kill -9`, however often.
#[tokio::test]
async fn every_acknowledged_write_survives_being_killed() {
    use std::io::{BufRead, BufReader};
    let folder = tempfile::tempdir().expect("a folder");
    let mut acknowledged = Vec::new();
    for kill in 0..20 {
        let mut child = std::process::Command::new(std::env::current_exe().expect("this binary"))
            .args(["child_that_writes_until_it_is_killed", "--exact", "--nocapture"])
            .env("WEIR_TEST_FOLDER", folder.path())
            .env("WEIR_TEST_FIRST", (kill * 1_000).to_string())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("a child");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let wanted = 1 + (kill * 7) % 23;
        let mut seen = 0;
        for line in lines.map_while(Result::ok) {
            if let Some(n) = line.strip_prefix("acknowledged ").and_then(|n| n.parse::<u64>().ok()) {
                acknowledged.push(n);
                seen += 1;
                if seen == wanted {
                    child.kill().expect("killed");
                }
            }
        }
        child.wait().expect("gone");
    }
    assert!(acknowledged.len() >= 200, "{}", acknowledged.len());
    let store = EmbeddedOverrides::open(folder.path(), Arc::new(SystemClock)).expect("the file is whole");
    for n in acknowledged {
        let stored = store.read(&target(&format!("u{n}"))).await.expect("read");
        assert_eq!(stored.own.standing.part.get(Field::BucketCapacity), Some(Value::Number((n + 1) as f64)), "write {n}");
    }
    assert!(store.now() <= unix_micros());
}
