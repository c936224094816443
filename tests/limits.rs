//! limit.yaml at work: routes, anonymous traffic, a store that is away. Through the limiter, on a clock that stands still until told.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use weir::clock::{Clock, ManualClock};
use weir::config::{Config, OnFailure};
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Policy, Reason, US};
use weir::limiter::{Answer, Limiter, Request};
use weir::store::{Ask, ErrorKind, Key, MemoryStore, Store, StoreError};

const T: Micros = 1_767_225_600_000_000;

struct Rig {
    clock: Arc<ManualClock>,
    limiter: Limiter,
    store: Arc<Faulty>,
}

/// A memory store that can be away, and counts who asks about whom.
struct Faulty {
    inner: MemoryStore,
    away: AtomicBool,
    asked: AtomicU64,
    asked_shared: AtomicU64,
}

#[async_trait]
impl Store for Faulty {
    async fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.asked_shared.fetch_add(u64::from(ask.key.as_str().starts_with("{anon:}")), Ordering::Relaxed);
        if self.away.load(Ordering::Relaxed) {
            return Err(StoreError::new(ErrorKind::Connection, "away"));
        }
        self.inner.decide(ask)
    }

    async fn reset(&self, key: &Key, policy: &Policy) -> Result<(), StoreError> {
        self.inner.reset(key, policy).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

fn rig(yaml: &str) -> Rig {
    let (config, _) = Config::from_yaml(yaml).expect("a good file");
    let clock = Arc::new(ManualClock::new(T));
    let inner = MemoryStore::new(100_000, Arc::clone(&clock) as Arc<dyn Clock>);
    let store = Arc::new(Faulty { inner, away: AtomicBool::new(false), asked: AtomicU64::new(0), asked_shared: AtomicU64::new(0) });
    let limiter = Limiter::new(config, Arc::clone(&store) as Arc<dyn Store>).with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    Rig { clock, limiter, store }
}

impl Rig {
    async fn ask(&self, subject: Subject, path: &str, method: &str) -> Answer {
        let request = Request { subject, path: Some(path.into()), method: Some(method.into()), cost: None };
        self.limiter.check(request).await.expect("an answer")
    }

    async fn user(&self, id: &str, path: &str) -> Answer {
        self.ask(Subject::user(id).expect("a good id"), path, "GET").await
    }

    async fn address(&self, address: &str) -> Answer {
        self.ask(Subject::Address(address.into()), "/", "GET").await
    }
}

fn remaining(answer: &Answer) -> u64 {
    answer.decision.quota.expect("a quota").remaining
}

const ROUTES: &str = "
defaults: {bucket_capacity: 10, tokens_per_second: 1}
routes:
  - name: search
    match: {path: /search*, methods: [GET]}
    cost: 3
    limits: {bucket_capacity: 7}
  - name: upload
    match: {path: /upload}
    cost: 5
";

#[tokio::test]
async fn a_route_with_limits_has_a_bucket_of_its_own_and_a_route_without_shares_the_general_one() {
    let rig = rig(ROUTES);
    let search = rig.user("u", "/search/crates?q=x").await;
    assert_eq!((search.route.as_deref(), remaining(&search)), (Some("search"), 4));
    let upload = rig.user("u", "/upload").await;
    assert_eq!((upload.route.as_deref(), remaining(&upload)), (Some("upload"), 5));
    let other = rig.user("u", "/other").await;
    assert_eq!((other.route.as_deref(), remaining(&other)), (None, 4));
    assert_eq!(rig.ask(Subject::user("u").expect("a good id"), "/search", "POST").await.route, None, "another method is another matter");
}

#[tokio::test]
async fn a_cost_that_is_said_wins_over_the_routes() {
    let rig = rig(ROUTES);
    let request = Request { subject: Subject::user("u").expect("a good id"), path: Some("/upload".into()), method: None, cost: Some(1) };
    assert_eq!(remaining(&rig.limiter.check(request).await.expect("an answer")), 9);
}

#[tokio::test]
async fn a_reload_changes_limits_and_refills_no_bucket() {
    let rig = rig("defaults: {bucket_capacity: 10, tokens_per_second: 0.001}");
    for _ in 0..10 {
        assert!(rig.user("u", "/").await.decision.admitted);
    }
    let (config, _) = Config::from_yaml("defaults: {bucket_capacity: 100, tokens_per_second: 0.001}").expect("a good file");
    rig.limiter.reload(config);
    let refused = rig.user("u", "/").await;
    assert_eq!((refused.decision.admitted, refused.decision.quota.expect("a quota").limit), (false, 100));
}

#[tokio::test]
async fn case_19_without_a_shared_policy_every_address_is_on_its_own() {
    let rig = rig("anonymous: {per_address: {window_limit: 600}}");
    for n in 0..700 {
        assert_eq!(rig.address("203.0.113.5").await.decision.admitted, n < 600);
    }
    assert_eq!(remaining(&rig.address("203.0.113.6").await), 599);
}

const SHARED: &str = "
anonymous:
  shared: {tokens_per_second: 10, bucket_capacity: 20}
  per_address: {window_limit: 300, window_seconds: 60}
";

/// A flood from one address: its own window holds it, another's single requests all pass, and the store is spared.
#[tokio::test]
async fn a_flood_from_one_address_shuts_no_other_out_and_is_not_asked_about_each_time() {
    let rig = rig(SHARED);
    let (mut flood_admitted, mut other_admitted) = (0, 0);
    for n in 0..50_000_u64 {
        flood_admitted += u64::from(rig.address("203.0.113.5").await.decision.admitted);
        if n % 250 == 0 {
            other_admitted += u64::from(rig.address("198.51.100.7").await.decision.admitted);
        }
        rig.clock.advance(200);
    }
    assert_eq!(other_admitted, 200);
    assert!(flood_admitted <= 300 + 20 + 10 * 10 + 1, "its own window, and what the shared bucket had: {flood_admitted}");
    let asked_shared = rig.store.asked_shared.load(Ordering::Relaxed);
    assert!(asked_shared < 200, "the shared subject was asked about {asked_shared} times in 50 000 requests");
}

/// A steady taker, below every storm: another's single requests stay admitted, all of them.
#[tokio::test]
async fn a_steady_taker_shuts_no_other_out() {
    let rig = rig("
anonymous:
  shared: {tokens_per_second: 2, bucket_capacity: 20}
  per_address: {window_limit: 60, window_seconds: 60}
");
    let mut other_admitted = 0;
    for n in 0..1_800_u64 {
        let _ = rig.address("203.0.113.5").await;
        if n % 9 == 0 {
            other_admitted += u64::from(rig.address("198.51.100.7").await.decision.admitted);
        }
        rig.clock.advance(US / 3);
    }
    assert_eq!(other_admitted, 200);
}

/// When the storm is over the shared subject takes part again.
#[tokio::test]
async fn the_shared_breaker_closes_in_time() {
    let rig = rig(SHARED);
    for _ in 0..500 {
        let _ = rig.address("203.0.113.5").await;
    }
    rig.clock.advance(20 * US);
    let _ = rig.address("198.51.100.7").await;
    rig.clock.advance(2 * US);
    let answer = rig.address("198.51.100.8").await;
    assert_eq!(answer.subject, Subject::Anonymous, "the shared subject admits again");
}

async fn degraded(on_failure: &str, requests: usize) -> (Rig, Vec<Result<Answer, StoreError>>) {
    let rig = rig(&format!("defaults: {{bucket_capacity: 5, tokens_per_second: 0.001}}\nstore: {{on_failure: {on_failure}}}"));
    rig.store.away.store(true, Ordering::Relaxed);
    let mut answers = Vec::new();
    for _ in 0..requests {
        let request = Request { subject: Subject::user("u").expect("a good id"), path: None, method: None, cost: None };
        answers.push(rig.limiter.check(request).await);
    }
    (rig, answers)
}

#[tokio::test]
async fn while_the_store_is_away_allow_admits_and_says_so() {
    let (_, answers) = degraded("allow", 20).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.as_ref().is_ok_and(|answer| answer.decision.admitted && answer.degraded == Some(OnFailure::Allow)))
    );
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|answer| answer.decision.quota.is_none())));
}

#[tokio::test]
async fn while_the_store_is_away_deny_is_an_error() {
    let (_, answers) = degraded("deny", 20).await;
    assert!(answers.iter().all(Result::is_err));
}

#[tokio::test]
async fn while_the_store_is_away_local_decides_and_forgets_when_it_is_back() {
    let (rig, answers) = degraded("local", 20).await;
    let reasons: Vec<_> = answers.into_iter().map(|answer| answer.expect("decided").decision.reason).collect();
    assert_eq!(reasons.iter().filter(|reason| reason.is_none()).count(), 5);
    assert!(reasons[5..].iter().all(|reason| *reason == Some(Reason::Bucket)));
    rig.store.away.store(false, Ordering::Relaxed);
    let back = loop {
        let answer = rig.user("u", "/").await;
        if answer.degraded.is_none() {
            break answer;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    assert_eq!(remaining(&back), 4, "the store knows nothing of the outage");
}

/// Who is let through or blocked without a look at the store says nothing about the store.
#[tokio::test]
async fn whoever_needs_no_store_neither_ends_an_outage_nor_suffers_from_it() {
    let rig = rig("
defaults: {bucket_capacity: 5, tokens_per_second: 0.001}
routes:
  - {name: free, match: {path: /free}, limits: {mode: bypass}}
  - {name: shut, match: {path: /shut}, limits: {mode: block}, on_store_failure: deny}
");
    rig.store.away.store(true, Ordering::Relaxed);
    let mut admitted = 0;
    for _ in 0..100 {
        admitted += u32::from(rig.user("u", "/").await.decision.admitted);
        assert!(rig.user("u", "/free").await.degraded.is_none());
        assert_eq!(rig.user("u", "/shut").await.decision.reason, Some(Reason::Blocked));
    }
    assert_eq!(admitted, 5, "what was counted in the outage stays");
    assert!(rig.store.asked.load(Ordering::Relaxed) < 20, "the store is left alone");
}

#[tokio::test]
async fn a_store_that_fails_is_left_alone() {
    let (rig, _) = degraded("allow", 1_000).await;
    let asked = rig.store.asked.load(Ordering::Relaxed);
    assert!(asked < 100, "asked {asked} times of 1 000");
}

#[test]
fn a_share_of_a_policy_is_rounded_down_and_never_nothing() {
    let (config, _) = Config::from_yaml("defaults: {bucket_capacity: 100, tokens_per_second: 9, window_limit: 100}").expect("a good file");
    let share = config.policy(None, &[]).expect("a policy").divided(3);
    assert_eq!((share.bucket_capacity(), share.window_limit(), share.tokens_per_second(), share.trip_point()), (33, 33, 3.0, 9.0));
    assert_eq!(share.divided(1_000).bucket_capacity(), 1);
}
