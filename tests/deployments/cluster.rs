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

/// A slot moves to another master while its users ask: ASK, TRYAGAIN and MOVED on the way, and each request counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_is_followed_and_each_request_counted_once() {
    let cluster = Cluster::start();
    let store = patient(&cluster.url());
    let limit = policy(5_000);
    assert_eq!(take(&store, "u", &limit).await.expect("an answer"), 4_999);
    let names = store.state_keys(&key("u"), &limit);
    let from = (0..3).find(|index| cluster.nodes[*index].try_run::<u64>(&format!("EXISTS {}", names[0])).is_ok_and(|there| there == 1));
    let from = from.expect("one of them has it");
    let to = (from + 1) % 3;
    let slot: u16 = cluster.nodes[0].run(&format!("CLUSTER KEYSLOT {}", names[0]));
    let ids: Vec<String> = cluster.nodes.iter().map(|node| node.run("CLUSTER MYID")).collect();
    cluster.nodes[to].run::<()>(&format!("CLUSTER SETSLOT {slot} IMPORTING {}", ids[from]));
    cluster.nodes[from].run::<()>(&format!("CLUSTER SETSLOT {slot} MIGRATING {}", ids[to]));
    assert_eq!(take(&store, "u", &limit).await.expect("still all there"), 4_998);
    // One of its keys is here and one there: nobody can decide, until the other has followed.
    let migrate = |name: &str| format!("MIGRATE 127.0.0.1 {} {name} 0 5000", cluster.nodes[to].port());
    cluster.nodes[from].run::<redis::Value>(&migrate(&names[0]));
    let waiting = async { take(&store, "u", &limit).await.expect("after a while") };
    let moving = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        cluster.nodes[from].run::<redis::Value>(&migrate(&names[1]));
    };
    assert_eq!(tokio::join!(waiting, moving).0, 4_997);
    assert_eq!(take(&store, "u", &limit).await.expect("asking there"), 4_996);
    for node in [to, from] {
        cluster.nodes[node].run::<()>(&format!("CLUSTER SETSLOT {slot} NODE {}", ids[to]));
    }
    for left in (4_900..4_996).rev() {
        assert_eq!(take(&store, "u", &limit).await.expect("an answer"), left);
    }
    store.reset(&key("u"), &limit).await.expect("also from the pool");
}

/// One of three masters falls silent: its users are decided locally, and hold their limit; the others notice nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_is_away_concerns_its_own_users_only_and_a_lost_reply_is_charged_once() {
    let cluster = Cluster::start();
    for replica in &cluster.nodes[3..] {
        replica.run::<()>("CONFIG SET cluster-replica-no-failover yes");
    }
    let yaml = "defaults: {algorithm: token_bucket, bucket_capacity: 10, tokens_per_second: 0.001}";
    let instance = Instance::on(store(&cluster.url(), Duration::from_millis(300), RedisFiles::default()), yaml);
    eventually("it is found", Duration::from_secs(2), async || instance.ask("first").await.is_ok_and(|answer| answer.degraded.is_none()))
        .await;
    let silent = (0..3).find(|index| cluster.nodes[*index].try_run::<u64>("EXISTS ratelimit:token:{first}").is_ok_and(|there| there == 1));
    let silent = &cluster.nodes[silent.expect("one of them has it")];
    let (concerned, others): (Vec<String>, Vec<String>) =
        (0..60).map(|n| format!("user-{n}")).partition(|user| instance.store.part(&key(user)) == instance.store.part(&key("first")));
    // So short a silence that nobody else notices: a reply is lost, what was asked runs when the server wakes up, once.
    take(&instance.store, "first", &policy(10)).await.expect("an answer, and the server knows the script");
    silent.signal("STOP");
    let lost = take(&instance.store, "first", &policy(10)).await.expect_err("silence");
    silent.signal("CONT");
    assert!(!lost.did_not_run, "{lost}");
    let left: f64 = silent.run("HGET ratelimit:token:{first} tokens");
    assert!((7.0..7.1).contains(&left), "charged {} times in all, not three", 10.0 - left);

    silent.signal("STOP");
    let mut admitted = HashMap::<&str, u32>::new();
    for _ in 0..15 {
        for user in &concerned {
            let answer = instance.ask(user).await.expect("an answer");
            assert!(answer.degraded.is_some());
            *admitted.entry(user).or_default() += u32::from(answer.decision.admitted);
        }
        for user in &others {
            assert!(instance.ask(user).await.expect("an answer").degraded.is_none(), "{user} is on another master");
        }
    }
    assert!(concerned.len() > 5 && concerned.iter().all(|user| admitted[user.as_str()] == 10), "{admitted:?}");
    assert!(instance.limiter.failing() == 1 && instance.limiter.local_subjects() >= concerned.len());
    silent.signal("CONT");
    eventually("it is back", Duration::from_secs(2), async || instance.ask("first").await.is_ok_and(|answer| answer.degraded.is_none()))
        .await;
    eventually("what was counted meanwhile is dropped", Duration::from_secs(2), async || {
        let _ = instance.ask("later").await;
        instance.limiter.local_subjects() == 0
    })
    .await;
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
