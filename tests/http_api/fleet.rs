//! Three processes on one Redis: what one of them is told, or somebody tells Redis, holds for all.

use std::time::Duration;

use serde_json::json;
use weir::clock::{elapsed, monotonic};

use crate::support::redis::RedisServer;
use crate::support::server::{Process, Raw};

struct Fleet {
    redis: RedisServer,
    processes: Vec<Process>,
}

impl Fleet {
    fn start() -> Self {
        let redis = RedisServer::start();
        let url = redis.url();
        let processes = (0..3).map(|_| Process::start(&["--redis-url", &url, "--redis-deadline-ms", "5000"])).collect();
        Self { redis, processes }
    }

    /// The limit of user `u` in each process that is left.
    fn limits(&self) -> Vec<u64> {
        let limit = |process: &Process| {
            let reply = Raw::connect(process.address).check("", r#"{"user":"u","cost":0}"#).expect("an answer");
            reply.json()["limit"].as_u64().expect("a limit")
        };
        self.processes.iter().map(limit).collect()
    }

    /// Waits until all processes have this limit; how long that took.
    fn until_all_have(&self, limit: u64, within: Duration) -> Duration {
        let start = monotonic();
        loop {
            let found = self.limits();
            if found.iter().all(|found| *found == limit) {
                return elapsed(start);
            }
            assert!(elapsed(start) < within, "still {found:?}, not {limit}, after {within:?}");
            std::thread::park_timeout(Duration::from_millis(50));
        }
    }
}

#[test]
fn what_is_set_in_redis_by_hand_holds_everywhere_within_half_a_minute() {
    let fleet = Fleet::start();
    assert_eq!(fleet.limits(), [100; 3]);
    redis::cmd("HSET").arg("ratelimit:config:{u}").arg("bucket_capacity").arg("7").exec(&mut fleet.redis.connect()).expect("HSET");
    // Thirty seconds are promised; a little more is for this machine.
    fleet.until_all_have(7, Duration::from_secs(33));
}

#[test]
fn a_temporary_change_ends_everywhere_though_the_process_that_took_it_was_killed() {
    let mut fleet = Fleet::start();
    assert_eq!(fleet.limits(), [100; 3]);
    let taker = fleet.processes.remove(0);
    let body = json!({"bucket_capacity": 7, "expires_in_seconds": 3, "reason": "a moment"}).to_string();
    let mut raw = Raw::connect(taker.address);
    raw.send(format!(
        "POST /admin/rate-limit/config?user_id=u HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n{body}",
        taker.token(),
        body.len()
    ));
    assert_eq!(raw.reply().expect("an answer").status, 200);
    fleet.until_all_have(7, Duration::from_secs(10));
    taker.signal("KILL");
    fleet.until_all_have(100, Duration::from_secs(20));
    let fields: Vec<String> = redis::cmd("HKEYS").arg("ratelimit:config:{u}").query(&mut fleet.redis.connect()).expect("HKEYS");
    assert_eq!(fields, ["version"], "the first to notice took it away");
}

/// What Weir says of a Redis with this eviction policy.
fn warnings_of(policy: &str) -> Vec<String> {
    let redis = RedisServer::start();
    let mut connection = redis.connect();
    redis::cmd("CONFIG").arg("SET").arg("maxmemory-policy").arg(policy).exec(&mut connection).expect("CONFIG SET");
    let process = Process::start(&["--redis-url", &redis.url(), "--redis-deadline-ms", "5000"]);
    // It says that it is alive, asks for the policy, and a second later says again that it is alive.
    let mut said = std::collections::BTreeSet::new();
    let start = monotonic();
    while said.len() < 2 {
        let alive: Vec<String> =
            redis::cmd("ZRANGE").arg("ratelimit:processes").arg(0).arg(-1).arg("WITHSCORES").query(&mut connection).expect("ZRANGE");
        said.extend(alive.get(1).cloned());
        assert!(elapsed(start) < crate::support::server::PATIENCE, "it says that it is alive");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    process.signal("TERM");
    process.wait().1.into_iter().filter(|line| line.contains("maxmemory_policy")).collect()
}

#[test]
fn case_73_a_redis_that_may_evict_overrides_is_warned_of() {
    let warnings = warnings_of("allkeys-lru");
    assert!(warnings.len() == 1 && warnings[0].contains("allkeys-lru") && warnings[0].contains("WARN"), "{warnings:?}");
    assert_eq!(warnings_of("volatile-ttl"), [""; 0]);
}
