//! The pool of a server for everything that is not a decision.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bb8_redis::bb8;
use redis::{Cmd, FromRedisValue, RedisError};
use tokio::time::timeout;

use super::super::StoreError;
use super::connect::{Connector, Open, To};
use super::error::{Failed, is_broken, store_error};
use super::url::Address;

/// Administration and health: rare, so a few connections are plenty.
const MOST_CONNECTIONS: u32 = 4;

/// Makes connections as decisions have them; `bb8_redis`'s own manager knows neither files nor time limits.
struct Manager {
    connector: Arc<Connector>,
    address: Address,
    refused: Refused,
}

/// Why there was no connection when one was last wanted: the pool itself tries again until time is up, and only says that it is.
type Refused = Arc<ArcSwapOption<RedisError>>;

/// A connection that knows when it is of no more use.
struct Pooled {
    open: Open,
    broken: bool,
}

impl bb8::ManageConnection for Manager {
    type Connection = Pooled;
    type Error = RedisError;

    async fn connect(&self) -> Result<Pooled, RedisError> {
        let opened = self.connector.open(&self.address, To::Server).await;
        self.refused.store(opened.as_ref().err().map(|error| Arc::new(error.clone())));
        Ok(Pooled { open: opened?, broken: false })
    }

    async fn is_valid(&self, pooled: &mut Pooled) -> Result<(), RedisError> {
        redis::cmd("PING").exec_async(&mut pooled.open.connection).await
    }

    fn has_broken(&self, pooled: &mut Pooled) -> bool {
        pooled.broken || pooled.open.is_closed()
    }
}

/// A few connections to one server, made when they are needed.
pub(super) struct Pool {
    connector: Arc<Connector>,
    address: Address,
    deadline: Duration,
    refused: Refused,
    /// Made by the first who needs it: a pool needs a runtime around it.
    made: OnceLock<bb8::Pool<Manager>>,
}

/// One of them, for as long as it is held.
pub(crate) struct Connection<'a> {
    pooled: bb8::PooledConnection<'a, Manager>,
    deadline: Duration,
}

impl Pool {
    pub(super) fn new(connector: Arc<Connector>, address: Address, deadline: Duration) -> Self {
        Self { connector, address, deadline, refused: Refused::default(), made: OnceLock::new() }
    }

    /// A connection of one's own. No PING at checkout: it would double the round trips. One that has ended while it was idle is known to
    /// have, and dropped; another is made.
    pub(super) async fn connection(&self) -> Result<Connection<'_>, Failed> {
        let pool = self.made.get_or_init(|| {
            bb8::Pool::builder()
                .max_size(MOST_CONNECTIONS)
                .min_idle(0)
                .test_on_check_out(false)
                .connection_timeout(self.deadline)
                .build_unchecked(Manager {
                    connector: Arc::clone(&self.connector),
                    address: self.address.clone(),
                    refused: Arc::clone(&self.refused),
                })
        });
        loop {
            let pooled = pool.get().await.map_err(|error| match error {
                bb8::RunError::User(error) => Failed::unsent(error),
                bb8::RunError::TimedOut => match self.refused.load_full() {
                    Some(error) => Failed::unsent(RedisError::clone(&error)),
                    None => Failed::timed_out(false),
                },
            })?;
            if !pooled.open.is_closed() {
                return Ok(Connection { pooled, deadline: self.deadline });
            }
        }
    }
}

impl Connection<'_> {
    /// Runs one command.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        self.try_query(command).await.map_err(|failed| store_error(&failed))
    }

    pub(super) async fn try_query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Failed> {
        let answer = timeout(self.deadline, command.query_async(&mut self.pooled.open.connection)).await;
        let answer = answer.map_or_else(|_| Err(Failed::timed_out(true)), |answer| answer.map_err(Failed::sent));
        self.looked_at(answer)
    }

    /// Runs several commands in one round trip, whatever the answers.
    pub(super) async fn run_all(&mut self, commands: &redis::Pipeline) -> Result<(), StoreError> {
        let answer = timeout(self.deadline, commands.exec_async(&mut self.pooled.open.connection)).await;
        let answer = answer.map_or_else(|_| Err(Failed::timed_out(true)), |answer| answer.map_err(Failed::sent));
        self.looked_at(answer).map_err(|failed| store_error(&failed))
    }

    fn looked_at<T>(&mut self, answer: Result<T, Failed>) -> Result<T, Failed> {
        if answer.as_ref().is_err_and(|failed| is_broken(&failed.error)) {
            self.pooled.broken = true;
        }
        answer
    }
}
