//! Behind Sentinels.

use std::time::Duration;

use super::support::cluster::Watched;
use super::support::redis::{RedisServer, wait_until};
use super::support::rig::{Instance, eventually, patient, policy, store, take};
use super::{changes_are_heard, everything_works};
use weir::store::RedisFiles;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_name_the_master_and_a_failover_is_followed() {
    let mut watched = Watched::start();
    everything_works(&Instance::on(patient(&watched.url()), "defaults: {}")).await;
    changes_are_heard(&watched.url(), RedisFiles::default()).await;

    let store = store(&watched.url(), Duration::from_millis(500), RedisFiles::default());
    let (five, mut left) = (policy(500), 500);
    for _ in 0..10 {
        left = take(&store, "u", &five).await.expect("an answer");
    }
    assert_eq!(left, 490);
    let replica = &watched.replica;
    wait_until("the replica has it", || replica.run::<u64>("EXISTS ratelimit:token:{u}") == 1);
    watched.master.crash();
    let took = eventually("the new master is found", Duration::from_secs(5), async || take(&store, "u", &five).await.is_ok()).await;
    println!("sentinel failover: decisions again {took:?} after the master was killed");
    let left = take(&store, "u", &five).await.expect("an answer");
    assert!((470..=488).contains(&left), "the state went over to the new master: {left}");
    assert_eq!(watched.replica.run::<Vec<redis::Value>>("ROLE").first(), Some(&redis::Value::BulkString(b"master".to_vec())));
}

/// The name leads to a new master, and the connections to the old one stay open (case 61).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_61_a_master_that_was_demoted_is_left_for_the_new_one() {
    use super::support::proxy::Proxy;
    let (old, new) = (RedisServer::start(), RedisServer::start());
    let proxy = Proxy::before(old.port());
    let store = store(&proxy.url(), Duration::from_millis(500), RedisFiles::default());
    assert_eq!(take(&store, "u", &policy(100)).await.expect("an answer"), 99);
    old.run::<()>(&format!("REPLICAOF 127.0.0.1 {}", new.port()));
    proxy.lead_to(new.port());
    let took = eventually("the new master is used", Duration::from_secs(2), async || take(&store, "u", &policy(100)).await.is_ok()).await;
    println!("a demoted master was left after {took:?}");
    for _ in 0..100 {
        take(&store, "v", &policy(1_000)).await.expect("no more errors");
    }
    assert_eq!(new.run::<u64>("EXISTS ratelimit:token:{v}"), 1);
}
