//! A cluster of three masters with replicas.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::support::cluster::Cluster;
use super::support::redis::wait_until;
use super::support::rig::{Instance, eventually, key, lasting, patient, policy, store, take};
use super::support::vectors::{What, all, check, compile};
use super::{changes_are_heard, everything_works};
use weir::clock::{elapsed, monotonic};
use weir::identity::Subject;
use weir::limit::Policy;
use weir::store::{Ask, Key, RedisFiles, Store};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_on_a_cluster_and_each_master_has_its_share() {
    let cluster = Cluster::start();
    everything_works(&Instance::on(patient(&cluster.url()), "defaults: {}")).await;
    changes_are_heard(&cluster.url(), RedisFiles::default()).await;

    let store = patient(&cluster.url());
    let answers: Vec<_> = stream::iter(0..1_000)
        .map(|n| {
            let store = &store;
            async move { take(store, &format!("user-{n}"), &policy(10 + n)).await.map(|left| (n, left)) }
        })
        .buffer_unordered(50)
        .collect()
        .await;
    for answer in answers {
        let (n, left) = answer.expect("an answer");
        assert_eq!(left, u64::from(9 + n));
    }
    for master in cluster.masters() {
        let keys: u64 = master.run("DBSIZE");
        assert!((200..=500).contains(&keys), "one master has {keys} of 1 000 users");
    }
    store.delete_all().await.expect("removed");
    assert!(cluster.masters().iter().all(|master| master.run::<u64>("DBSIZE") == 0));
}

/// Whatever an id holds, what is kept of it lies together, and ids spread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_71_ids_with_braces_lie_in_one_slot_each_and_spread() {
    let cluster = Cluster::start();
    let instance = Instance::on(patient(&cluster.url()), "defaults: {algorithm: hybrid}");
    for id in ["}", "}{", "{}", "{", "a}b", "{x}", "x{y}z", "ключ", " "] {
        // Hash, window, override and audit, in one script call each.
        instance.set_capacity(id, 5).await;
        let answer = instance.ask(id).await.unwrap_or_else(|error| panic!("{id}: {error}"));
        assert_eq!(answer.decision.quota.expect("a quota").remaining, 4, "{id}");
    }
    let mut per_master: HashMap<usize, u32> = HashMap::new();
    for n in 0..10_000 {
        *per_master.entry(instance.store.part(&key(&format!("{{same}}-{n}")))).or_default() += 1;
    }
    assert_eq!(per_master.len(), 3);
    assert!(per_master.values().all(|share| *share > 2_500), "{per_master:?}");
}

/// Every vector, its users spread over the masters.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_70_every_vector_is_right_on_a_cluster() {
    let cluster = Cluster::start();
    let store = &patient(&cluster.url());
    let vectors = all();
    let checked: usize = stream::iter(vectors.iter().enumerate())
        .map(|(number, vector)| async move {
            let (mut policies, mut checked) = (HashMap::<&str, Policy>::new(), 0);
            for (index, event) in vector.events.iter().enumerate() {
                match &event.what {
                    What::Policy(own) => drop(policies.insert(&event.user, compile(&vector.policy, Some(own)))),
                    What::Request(cost, expected) => {
                        let policy = policies.entry(&event.user).or_insert_with(|| compile(&vector.policy, None));
                        let key = Key::new(&Subject::user(&format!("{number}-{}", event.user)).expect("a good id"), None);
                        let ask = Ask { key: &key, policy, cost: *cost, at: Some(event.at) };
                        check(vector, index, event, expected, &store.decide(ask).await.expect("an answer"));
                        checked += 1;
                    }
                }
            }
            checked
        })
        .buffer_unordered(32)
        .fold(0, async |sum, checked| sum + checked)
        .await;
    assert_eq!(checked, 29_452);
    assert!(cluster.masters().iter().all(|master| master.run::<u64>("DBSIZE") > 0));
}

/// Three failovers that are asked for, and one master that dies, all under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_62_failovers_are_followed_without_a_restart() {
    let mut cluster = Cluster::start();
    let limit = 50;
    let instance = Arc::new(Instance::on(
        store(&cluster.url(), Duration::from_millis(500), RedisFiles::default()),
        "defaults: {bucket_capacity: 50, tokens_per_second: 0.001}\nstore: {on_failure: deny}",
    ));
    let (over, admitted) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let crowd: Vec<_> = (0..60)
        .map(|n| {
            let (instance, over, admitted) = (Arc::clone(&instance), Arc::clone(&over), Arc::clone(&admitted));
            tokio::spawn(async move {
                let mut own = 0_u32;
                while !over.load(Ordering::Relaxed) {
                    if instance.ask(&format!("user-{n}")).await.is_ok_and(|answer| answer.decision.admitted) {
                        own += 1;
                        admitted.fetch_add(1, Ordering::Relaxed);
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                own
            })
        })
        .collect();
    let all_answer = async || {
        for n in 0..60 {
            if instance.ask(&format!("probe-{n}")).await.is_err() {
                return false;
            }
        }
        true
    };
    eventually("the cluster is found", Duration::from_secs(2), all_answer).await;
    for replica in 3..6 {
        cluster.nodes[replica].run::<()>("CLUSTER FAILOVER");
        wait_until("it is the master", || cluster.nodes[replica].run::<String>("INFO replication").contains("role:master"));
        let took = eventually("all subjects are decided again", Duration::from_secs(5), all_answer).await;
        println!("cluster failover: all masters answer {took:?} after it");
        cluster.wait_until_whole();
    }
    cluster.nodes[3].crash();
    let start = monotonic();
    wait_until("its replica takes over", || cluster.nodes[0].run::<String>("INFO replication").contains("role:master"));
    let promoted = elapsed(start);
    let took = eventually("all subjects are decided again", Duration::from_secs(5), all_answer).await;
    println!("cluster, a master killed: promoted after {promoted:?}, all decided {took:?} later");
    tokio::time::sleep(lasting(Duration::ZERO).min(Duration::from_secs(5))).await;
    over.store(true, Ordering::Relaxed);
    for one in crowd {
        // What the failovers themselves lose: what the replica had not been sent, at most a handful of each.
        let own = one.await.expect("no panic");
        assert!(own <= limit + 10, "one user was admitted {own} times of {limit}");
    }
    println!("cluster: {} admitted in all, {} allowed", admitted.load(Ordering::Relaxed), 60 * limit);
}
