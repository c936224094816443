//! The two twins behind one face, so that a property is shown on both with the same traces.

use std::collections::HashMap;

use redis::Connection;
use tokio::runtime::Runtime;
use weir::identity::Subject;
use weir::limit::{Decision, Micros, Policy, State, Units, decide};
use weir::store::{Ask, Key, RedisStore, Store};

use super::redis::RedisServer;

pub enum Twin {
    Rust(HashMap<String, State>),
    Lua { _server: RedisServer, connection: Box<Connection>, store: RedisStore, runtime: Runtime },
}

impl Twin {
    pub fn rust() -> Self {
        Self::Rust(HashMap::new())
    }

    pub fn lua() -> Self {
        let server = RedisServer::start();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self::Lua { connection: Box::new(server.connect()), store: server.store(), _server: server, runtime }
    }

    pub fn key(user: &str) -> Key {
        Key::new(&Subject::user(user).expect("a good id"), None)
    }

    pub fn decide(&mut self, user: &str, policy: &Policy, at: Micros, cost: Units) -> Decision {
        match self {
            Self::Rust(states) => decide(policy, states.entry(user.to_owned()).or_default(), at, cost),
            Self::Lua { store, runtime, .. } => {
                runtime.block_on(store.decide(Ask { key: &Self::key(user), policy, cost, at: Some(at) })).expect("redis answers")
            }
        }
    }

    /// Gives `to` the state that `from` has.
    pub fn copy(&mut self, from: &str, to: &str, policy: &Policy) {
        match self {
            Self::Rust(states) => {
                let state = states.get(from).cloned().unwrap_or_default();
                states.insert(to.to_owned(), state);
            }
            Self::Lua { connection, store, .. } => {
                let keys = store.state_keys(&Self::key(from), policy).into_iter().zip(store.state_keys(&Self::key(to), policy));
                for (from, to) in keys {
                    let _: i64 = redis::cmd("DEL").arg(&to).query(connection).expect("DEL");
                    let _: i64 = redis::cmd("COPY").arg(from).arg(to).query(connection).expect("COPY");
                }
            }
        }
    }

    /// Forgets the state of `user`.
    pub fn forget(&mut self, user: &str, policy: &Policy) {
        match self {
            Self::Rust(states) => drop(states.remove(user)),
            Self::Lua { connection, store, .. } => {
                let _: i64 = redis::cmd("DEL").arg(store.state_keys(&Self::key(user), policy)).query(connection).expect("DEL");
            }
        }
    }

    /// How long each state key of `user` is kept from now on, ms: the hash, and the window if there is one.
    pub fn kept_ms(&mut self, user: &str, policy: &Policy) -> Vec<i64> {
        let Self::Lua { connection, store, .. } = self else { return Vec::new() };
        let ttls = store
            .state_keys(&Self::key(user), policy)
            .into_iter()
            .map(|key| redis::cmd("PTTL").arg(key).query::<i64>(connection).expect("PTTL"));
        ttls.filter(|ttl| *ttl != -2).collect()
    }
}
