//! Overrides when something goes wrong: keys deleted or edited by hand, callers that go away, stores that hang, clocks that disagree.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use redis::Commands;
use support::redis::RedisServer;
use weir::clock::{SystemClock, monotonic, unix_micros};
use weir::config::{Config, load};
use weir::identity::Subject;
use weir::limit::{Field, Micros, US, Value};
use weir::limiter::{Answer, Limiter, Order, Request};
use weir::overrides::{
    Cache, Change, Entry, FRESH, Fields, Looked, News, Override, OverrideStore, Page, Record, RedisOverrides, Set, Stored, Target,
    Temporary, Write, WriteError, Written,
};
use weir::store::{ErrorKind, Key, MemoryStore, RedisOptions, StoreError};

fn target(user: &str) -> Target {
    Target::general(Subject::user(user).expect("a good id"))
}

fn key(user: &str) -> Key {
    target(user).key()
}

fn capacity(value: f64) -> Change {
    Change::Patch { sets: vec![Set::Policy(Field::BucketCapacity, Some(Value::Number(value)))], expires_in: None, note: None }
}

fn overridden(capacity: f64) -> Override {
    let mut own = Override::default();
    own.standing.part.set_number(Field::BucketCapacity, capacity).expect("in range");
    own
}

fn write(expected: u64, own: Override) -> Write {
    let entry = Entry { by: "test".into(), action: "update".into(), reason: None, from: Fields::new(), to: Fields::new() };
    Write { expected, own, expires_in: None, not_before: None, entry }
}

/// Overrides in Redis behind switches: reads that hang, reads that fail.
struct Faulty {
    inner: RedisOverrides,
    hangs: AtomicBool,
    fails: AtomicBool,
    reads: AtomicU64,
}

impl Faulty {
    fn on(server: &RedisServer) -> Arc<Self> {
        Arc::new(Self {
            inner: RedisOverrides::beside(&server.store()),
            hangs: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            reads: AtomicU64::new(0),
        })
    }
}

#[async_trait]
impl OverrideStore for Faulty {
    async fn read(&self, target: &Target) -> Result<Stored, StoreError> {
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.hangs.load(Ordering::SeqCst) {
            std::future::pending::<()>().await;
        }
        if self.fails.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Timeout, "a test's"));
        }
        self.inner.read(target).await
    }

    async fn write(&self, target: &Target, write: Write) -> Result<Written, WriteError> {
        self.inner.write(target, write).await
    }

    async fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        self.inner.list(prefix, cursor, limit).await
    }

    async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.inner.audit(target, limit).await
    }

    fn now(&self) -> Micros {
        self.inner.now()
    }
}

async fn set_capacity(cache: &Cache, user: &str, now: Instant) -> Option<Value> {
    cache.get(&key(user), now).await.expect("known").stored.own.standing.part.get(Field::BucketCapacity)
}

/// A store in which user `u` has a capacity of 7, and a cache that remembers it since then.
async fn with_seven_remembered() -> (RedisServer, Arc<Faulty>, Cache, Instant) {
    let server = RedisServer::start();
    let store = Faulty::on(&server);
    let cache = Cache::new(store.clone(), FRESH);
    let start = monotonic();
    store.write(&target("u"), write(0, overridden(7.0))).await.expect("written");
    assert_eq!(set_capacity(&cache, "u", start).await, Some(Value::Number(7.0)));
    (server, store, cache, start)
}

#[tokio::test]
async fn an_override_deleted_by_hand_is_gone_within_its_age() {
    let (server, store, cache, start) = with_seven_remembered().await;
    let _: i64 = server.connect().del("ratelimit:config:{u}").expect("DEL");
    assert_eq!(set_capacity(&cache, "u", start + FRESH).await, None);
    let reads = store.reads.load(Ordering::SeqCst);
    for _ in 0..10 {
        set_capacity(&cache, "u", start + FRESH).await;
    }
    assert_eq!(store.reads.load(Ordering::SeqCst), reads, "and that is remembered");
}

#[tokio::test]
async fn a_slow_read_never_brings_an_older_value_back() {
    let server = RedisServer::start();
    let store = Faulty::on(&server);
    let cache = Cache::new(store.clone(), FRESH);
    let start = monotonic();
    let first = store.write(&target("u"), write(0, overridden(7.0))).await.expect("written");
    let slow = match cache.look(&[&key("u")], start).await {
        Looked::Nobody(look) => {
            let old = store.read(&target("u")).await.expect("read");
            store.write(&target("u"), write(first.version, overridden(9.0))).await.expect("written");
            cache.heed(&News::Changed("{u}".to_owned()));
            look.found(&[found(&old)]).unwrap_or_else(|_| panic!("it has a version"))
        }
        _ => panic!("nothing is known"),
    };
    assert_eq!(slow[0].stored.own.standing.part.get(Field::BucketCapacity), Some(Value::Number(7.0)), "whoever asked before the change");
    assert_eq!(set_capacity(&cache, "u", start).await, Some(Value::Number(9.0)), "whoever asks after it");
}

fn found(stored: &Stored) -> weir::store::Found {
    let mut fields: Vec<_> = stored.own.to_fields().into_iter().collect();
    fields.push(("version".to_owned(), stored.own.version.to_string()));
    weir::store::Found::Fields(fields)
}

#[tokio::test]
async fn a_caller_that_goes_away_while_it_looks_leaves_the_turn_to_the_next() {
    let (server, store, cache, start) = with_seven_remembered().await;
    let _: i64 = server.connect().hset("ratelimit:config:{u}", "bucket_capacity", "8").expect("HSET");
    store.hangs.store(true, Ordering::SeqCst);
    let gone = tokio::time::timeout(Duration::from_millis(20), cache.get(&key("u"), start + FRESH)).await;
    assert!(gone.is_err(), "it hangs, and its caller goes away");
    store.hangs.store(false, Ordering::SeqCst);
    assert_eq!(set_capacity(&cache, "u", start + FRESH).await, Some(Value::Number(7.0)), "for a moment others go on with what there is");
    assert_eq!(set_capacity(&cache, "u", start + FRESH + Duration::from_secs(1)).await, Some(Value::Number(8.0)));
}

#[tokio::test]
async fn a_store_that_is_away_is_left_alone_and_what_was_known_holds() {
    let (server, store, cache, start) = with_seven_remembered().await;
    store.fails.store(true, Ordering::SeqCst);
    let before = store.reads.load(Ordering::SeqCst);
    // A minute away, with a gap told twice a second, and five hundred users never seen.
    for half in 0..120_u32 {
        let now = start + Duration::from_millis(500) * half;
        cache.heed(&News::Gap);
        assert_eq!(set_capacity(&cache, "u", now).await, Some(Value::Number(7.0)));
        for stranger in 0..500 {
            assert!(cache.get(&key(&format!("stranger {stranger}")), now).await.is_err(), "an error is no absence of an override");
        }
    }
    let asked = store.reads.load(Ordering::SeqCst) - before;
    assert!(asked <= 3 + 120, "{asked} reads of a store that is away");
    store.fails.store(false, Ordering::SeqCst);
    let back = start + Duration::from_secs(62);
    assert!(cache.get(&key("stranger 1"), back).await.is_ok());
    let _: i64 = server.connect().hset("ratelimit:config:{u}", "bucket_capacity", "8").expect("HSET");
    cache.heed(&News::Gap);
    assert_eq!(set_capacity(&cache, "u", back).await, Some(Value::Number(8.0)), "and forgotten once it is back");
}

#[tokio::test]
async fn a_version_that_is_none_locks_no_operator_out() {
    let server = RedisServer::start();
    let store = Arc::new(RedisOverrides::beside(&server.store()));
    let limiter = Limiter::new(Config::default(), Arc::new(server.store())).with_overrides(Arc::new(Cache::new(store.clone(), FRESH)));
    for version in ["abc", "", "-1", "1e3", "0x10", "inf", "nan", "5.5", "+5", " 5", "99999999999999999999", "9007199254740993"] {
        let _: i64 = server.connect().del("ratelimit:config:{u}").expect("DEL");
        let _: i64 = server.connect().hset("ratelimit:config:{u}", "version", version).expect("HSET");
        let (_, written) = limiter.change(&target("u"), &capacity(5.0), &Order::default()).await.expect(version);
        let stored = store.read(&target("u")).await.expect("read");
        assert_eq!((stored.own.version, stored.malformed.len()), (written.version, 0), "{version:?} is healed");
    }
    let _: i64 = server.connect().del("ratelimit:config:{u}").expect("DEL");
    let _: i64 = server.connect().rpush("ratelimit:config:{u}", "a list").expect("RPUSH");
    limiter.change(&target("u"), &capacity(5.0), &Order::default()).await.expect("a key of another type is replaced");
}

#[tokio::test]
async fn bytes_that_are_no_text_are_a_malformed_field_and_no_error() {
    let server = RedisServer::start();
    let store = RedisOverrides::beside(&server.store());
    store.write(&target("other"), write(0, overridden(7.0))).await.expect("written");
    let _: i64 = server.connect().hset("ratelimit:config:{u}", "bucket_capacity", b"\xff\xfe".as_slice()).expect("HSET");
    let _: i64 = server.connect().hset("ratelimit:config:{u}", "window_limit", "300").expect("HSET");
    let stored = store.read(&target("u")).await.expect("read");
    assert_eq!(stored.malformed.len(), 1);
    assert_eq!(stored.own.standing.part.get(Field::WindowLimit), Some(Value::Number(300.0)));
    let _: i64 = server.connect().rpush("ratelimit:config:{list}", "x").expect("RPUSH");
    let _: i64 = server.connect().zadd("ratelimit:config-index", "{list}", 0).expect("ZADD");
    let page = store.list("", None, 10).await.expect("one bad key does not hide the others");
    assert_eq!(page.items.iter().map(|(target, _)| target.subject.to_string()).collect::<Vec<_>>(), ["list", "other", "u"]);
}

#[tokio::test]
async fn a_process_whose_clock_is_ahead_ends_nothing_early() {
    let server = RedisServer::start();
    let folder = tempfile::tempdir().expect("a folder");
    let file = weir::overrides::EmbeddedOverrides::open(folder.path(), Arc::new(SystemClock)).expect("the file");
    let stores: [Arc<dyn OverrideStore>; 2] = [Arc::new(RedisOverrides::beside(&server.store())), Arc::new(file)];
    for store in stores {
        let mut own = overridden(7.0);
        own.temporary = Some(Temporary { layer: overridden(500.0).standing, until: 0 });
        let begun = store.write(&target("u"), Write { expires_in: Some(3_600 * US), ..write(0, own) }).await.expect("written");
        let end = Write { not_before: begun.until, ..write(begun.version, overridden(7.0)) };
        assert!(matches!(store.write(&target("u"), end).await, Err(WriteError::TooEarly)));
        assert!(store.read(&target("u")).await.expect("read").own.temporary.is_some());
        let late = Write { not_before: Some(unix_micros() - US), ..write(begun.version, overridden(7.0)) };
        store.write(&target("u"), late).await.expect("it is time");
        assert!(store.read(&target("u")).await.expect("read").own.temporary.is_none());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_lists_while_others_write_hides_nothing() {
    let server = RedisServer::start();
    let store = Arc::new(RedisOverrides::beside(&server.store()));
    let done = Arc::new(AtomicBool::new(false));
    let listing = {
        let (store, done) = (Arc::clone(&store), Arc::clone(&done));
        tokio::spawn(async move {
            while !done.load(Ordering::SeqCst) {
                store.list("", None, 1_000).await.expect("a page");
            }
        })
    };
    for n in 0..300 {
        store.write(&target(&format!("u{n}")), write(0, overridden(7.0))).await.expect("written");
    }
    done.store(true, Ordering::SeqCst);
    listing.await.expect("no panic");
    assert_eq!(store.list("", None, 1_000).await.expect("a page").items.len(), 300);
}

fn limiter(server: &RedisServer, yaml: &str) -> (Arc<Limiter>, Arc<Faulty>) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limit.yaml");
    std::fs::write(&path, yaml).expect("written");
    let config = load(&path).unwrap_or_else(|error| panic!("{error:?}")).config;
    let store = Faulty::on(server);
    let cache = Arc::new(Cache::new(store.clone(), FRESH));
    (Arc::new(Limiter::new(config, Arc::new(server.store())).with_overrides(cache)), store)
}

async fn check(limiter: &Limiter, user: &str, path: &str) -> Answer {
    let request = Request { subject: Subject::user(user).expect("a good id"), path: Some(path.into()), method: None, cost: Some(1) };
    limiter.check(request).await.expect("an answer")
}

fn calls(server: &RedisServer, command: &str) -> u64 {
    let stats: String = redis::cmd("INFO").arg("commandstats").query(&mut server.connect()).expect("INFO");
    let line = stats.lines().find_map(|line| line.strip_prefix(&format!("cmdstat_{command}:calls=")));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0)
}

const ROUTES: &str = "routes:\n  - name: search\n    match: { path: /search }\n    limits: { bucket_capacity: 20 }\n";

#[tokio::test]
async fn a_user_never_seen_costs_one_call_also_on_a_route_with_limits_of_its_own() {
    let server = RedisServer::start();
    let (limiter, store) = limiter(&server, ROUTES);
    for path in ["/", "/search"] {
        check(&limiter, "first", path).await;
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).expect("CONFIG");
        for n in 0..100 {
            let answer = check(&limiter, &format!("{n} on {path}"), path).await;
            let limit = if path == "/" { 100 } else { 20 };
            assert_eq!(answer.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((limit, limit - 1)));
        }
        assert_eq!((calls(&server, "evalsha"), calls(&server, "eval")), (100, 0), "{path}");
        for n in 0..100 {
            check(&limiter, &format!("{n} on {path}"), path).await;
        }
        let looked = if path == "/" { 100 } else { 200 };
        assert_eq!((calls(&server, "evalsha"), calls(&server, "hgetall")), (200, looked), "{path}: what is known is not looked at again");
    }
    assert_eq!(store.reads.load(Ordering::SeqCst), 0, "nobody needed a read of its own");
}

#[tokio::test]
async fn an_override_that_a_cold_process_meets_decides_the_first_request_and_is_charged_once() {
    let server = RedisServer::start();
    let (one, _) = limiter(&server, ROUTES);
    one.change(&target("u"), &capacity(7.0), &Order::default()).await.expect("changed");
    let on_search = Target { route: Some("search".into()), ..target("u") };
    one.change(&on_search, &capacity(3.0), &Order::default()).await.expect("changed");
    let (cold, store) = limiter(&server, ROUTES);
    for left in [6, 5] {
        let answer = check(&cold, "u", "/").await;
        assert_eq!(answer.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((7, left)));
    }
    for left in [2, 1] {
        let answer = check(&cold, "u", "/search").await;
        assert_eq!(answer.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((3, left)));
    }
    assert!(store.reads.load(Ordering::SeqCst) <= 1);
    cold.change(&target("u"), &Change::Delete, &Order::default()).await.expect("deleted");
    assert_eq!(check(&cold, "u", "/").await.decision.quota.map(|quota| quota.limit), Some(100), "what a deletion leaves is no override");
}

#[tokio::test]
async fn whoever_is_blocked_stays_so_on_a_route_of_which_nothing_can_be_read() {
    let server = RedisServer::start();
    let (limiter, store) = limiter(&server, ROUTES);
    let block = Change::Patch { sets: vec![Set::Policy(Field::Mode, Some(Value::Word("block")))], expires_in: None, note: None };
    limiter.change(&target("u"), &block, &Order::default()).await.expect("changed");
    assert!(!check(&limiter, "u", "/").await.decision.admitted);
    store.fails.store(true, Ordering::SeqCst);
    for _ in 0..10 {
        assert!(!check(&limiter, "u", "/search").await.decision.admitted);
    }
}

#[tokio::test]
async fn an_override_made_by_hand_is_obeyed_by_a_cold_process_and_gets_on_the_list() {
    let server = RedisServer::start();
    let (cold, store) = limiter(&server, "defaults: {}\n");
    let _: i64 = server.connect().hset("ratelimit:config:{u}", "bucket_capacity", "7").expect("HSET");
    assert_eq!(check(&cold, "u", "/").await.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((7, 6)));
    assert_eq!(store.list("", None, 10).await.expect("a page").items.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_cold_user_looks_once_and_each_is_charged_once() {
    let server = RedisServer::start();
    let (limiter, _) = limiter(&server, "defaults: {}\n");
    check(&limiter, "first", "/").await;
    redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut server.connect()).expect("CONFIG");
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move { check(&limiter, "hot", "/").await.decision.admitted })
        })
        .collect();
    for one in crowd {
        assert!(one.await.expect("no panic"));
    }
    assert_eq!(calls(&server, "hgetall"), 1);
    let left = check(&limiter, "hot", "/").await.decision.quota.map_or(0, |quota| quota.remaining);
    assert!((49..=52).contains(&left), "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_of_one_cold_user_does_not_queue_for_a_silent_redis() {
    let server = RedisServer::start();
    let deadline = Duration::from_millis(500);
    let redis = weir::store::RedisStore::new(RedisOptions { url: server.url(), deadline, ..RedisOptions::default() }).expect("a url");
    let cache = Arc::new(Cache::new(Arc::new(RedisOverrides::beside(&redis)), FRESH));
    let limiter = Arc::new(Limiter::new(Config::default(), Arc::new(redis)).with_overrides(cache));
    check(&limiter, "first", "/").await;
    redis::cmd("CLIENT").arg("PAUSE").arg(20_000).exec(&mut server.connect()).expect("CLIENT PAUSE");
    let start = monotonic();
    let crowd: Vec<_> = (0..50)
        .map(|_| {
            let limiter = Arc::clone(&limiter);
            tokio::spawn(async move { check(&limiter, "hot", "/").await.degraded.is_some() })
        })
        .collect();
    for one in crowd {
        assert!(one.await.expect("no panic"), "answered without the store");
    }
    // Fifty in a row would take 25 s, and three before the guard closes 1.5 s; ten times one is room for a busy machine.
    assert!(weir::clock::elapsed(start) < deadline * 10, "{:?}", weir::clock::elapsed(start));
}

#[tokio::test]
async fn a_store_without_overrides_of_its_own_goes_by_the_cache() {
    let server = RedisServer::start();
    let store = Faulty::on(&server);
    let cache = Arc::new(Cache::new(store.clone(), FRESH));
    let memory = Arc::new(MemoryStore::new(100, Arc::new(SystemClock)));
    let limiter = Limiter::new(Config::default(), memory).with_overrides(cache);
    limiter.change(&target("u"), &capacity(7.0), &Order::default()).await.expect("changed");
    assert_eq!(check(&limiter, "u", "/").await.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((7, 6)));
    assert_eq!(check(&limiter, "other", "/").await.decision.quota.map(|quota| (quota.limit, quota.remaining)), Some((100, 99)));
}
