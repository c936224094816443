//! Several redis-servers that belong together: a cluster of three masters with a replica each, or a master with a replica and a Sentinel.

use std::process::{Child, Command, Stdio};

use super::redis::{RedisServer, free_port, wait_until};

/// Three masters, then the replica of each.
pub struct Cluster {
    pub nodes: Vec<RedisServer>,
}

impl Cluster {
    pub fn start() -> Self {
        let arguments = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no"];
        let nodes: Vec<RedisServer> = (0..6).map(|_| RedisServer::start_with(&arguments)).collect();
        for (index, node) in nodes.iter().enumerate() {
            node.run::<()>(&format!("CLUSTER SET-CONFIG-EPOCH {}", index + 1));
            if index > 0 {
                node.run::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port()));
            }
        }
        for (index, node) in nodes[..3].iter().enumerate() {
            let slots: Vec<String> = (index * 16_384 / 3..(index + 1) * 16_384 / 3).map(|slot| slot.to_string()).collect();
            node.run::<()>(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
        }
        wait_until("all nodes know each other", || nodes.iter().all(|node| info(node, "cluster_known_nodes:6")));
        for index in 0..3 {
            let master: String = nodes[index].run("CLUSTER MYID");
            wait_until("a replica takes its master", || nodes[index + 3].try_run::<()>(&format!("CLUSTER REPLICATE {master}")).is_ok());
        }
        let cluster = Self { nodes };
        cluster.wait_until_whole();
        cluster
    }

    /// Waits until every slot is served, as every node sees it, and every replica follows.
    pub fn wait_until_whole(&self) {
        wait_until("the cluster is whole", || {
            self.nodes.iter().all(|node| info(node, "cluster_state:ok") && info(node, "cluster_slots_ok:16384"))
                && self.nodes.iter().all(|node| {
                    let replication: String = node.run("INFO replication");
                    replication.contains("role:master") || replication.contains("master_link_status:up")
                })
        });
    }

    /// Two of three addresses are enough to find the others.
    pub fn url(&self) -> String {
        format!("redis+cluster://127.0.0.1:{},127.0.0.1:{}", self.nodes[0].port(), self.nodes[4].port())
    }

    /// The masters now.
    pub fn masters(&self) -> Vec<&RedisServer> {
        self.nodes.iter().filter(|node| node.run::<String>("INFO replication").contains("role:master")).collect()
    }
}

fn info(node: &RedisServer, line: &str) -> bool {
    node.try_run::<String>("CLUSTER INFO").is_ok_and(|info| info.lines().any(|found| found == line))
}

/// A master, its replica, and a Sentinel that watches them as `main`.
pub struct Watched {
    pub master: RedisServer,
    pub replica: RedisServer,
    sentinel: Child,
    sentinel_port: u16,
    _dir: tempfile::TempDir,
}

impl Watched {
    pub fn start() -> Self {
        let master = RedisServer::start();
        let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
        let dir = tempfile::tempdir().expect("a temporary folder");
        let (sentinel_port, file) = (free_port(u16::MAX), dir.path().join("sentinel.conf"));
        let config = format!(
            "port {sentinel_port}\nbind 127.0.0.1\nsentinel monitor main 127.0.0.1 {} 1\nsentinel down-after-milliseconds main 500\nsentinel failover-timeout main 3000\n",
            master.port()
        );
        std::fs::write(&file, config).expect("written");
        let sentinel = Command::new("redis-server")
            .arg(&file)
            .args(["--sentinel", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server runs");
        let watched = Self { master, replica, sentinel, sentinel_port, _dir: dir };
        wait_until("the sentinel knows the replica", || {
            watched.ask("SENTINEL", &["master", "main"]).is_some_and(|master| {
                master.chunks(2).any(|pair| pair == ["num-slaves", "1"]) && master.chunks(2).any(|pair| pair == ["flags", "master"])
            })
        });
        watched
    }

    fn ask(&self, command: &str, arguments: &[&str]) -> Option<Vec<String>> {
        let client = redis::Client::open(format!("redis://127.0.0.1:{}", self.sentinel_port)).ok()?;
        redis::cmd(command).arg(arguments).query(&mut client.get_connection().ok()?).ok()
    }

    /// With an address in it at which nobody answers.
    pub fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:1,127.0.0.1:{}/main", self.sentinel_port)
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let _ = self.sentinel.kill();
        let _ = self.sentinel.wait();
    }
}
