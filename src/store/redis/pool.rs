//! The pool for everything that is not a decision.

use std::sync::OnceLock;
use std::time::Duration;

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};

use super::super::{ErrorKind, StoreError};
use super::error::{is_broken, store_error};

/// Administration and health: rare, so a few connections are plenty.
const MOST_CONNECTIONS: u32 = 4;

/// Makes connections with this project's timeouts; `bb8_redis`'s own manager takes none and leaves the library's defaults.
struct Manager {
    client: Client,
    config: AsyncConnectionConfig,
}

/// A connection that knows when it is of no more use.
struct Pooled {
    connection: MultiplexedConnection,
    broken: bool,
}

impl bb8::ManageConnection for Manager {
    type Connection = Pooled;
    type Error = RedisError;

    async fn connect(&self) -> Result<Pooled, RedisError> {
        let connection = self.client.get_multiplexed_async_connection_with_config(&self.config).await?;
        Ok(Pooled { connection, broken: false })
    }

    async fn is_valid(&self, pooled: &mut Pooled) -> Result<(), RedisError> {
        redis::cmd("PING").exec_async(&mut pooled.connection).await
    }

    fn has_broken(&self, pooled: &mut Pooled) -> bool {
        pooled.broken
    }
}

/// A few connections, made when they are needed.
pub(crate) struct RedisPool {
    client: Client,
    config: AsyncConnectionConfig,
    deadline: Duration,
    /// Made by the first who needs it: a pool needs a runtime around it.
    pool: OnceLock<bb8::Pool<Manager>>,
}

/// One of them, for as long as it is held.
pub(crate) struct Connection<'a>(bb8::PooledConnection<'a, Manager>);

impl RedisPool {
    pub(crate) const fn new(client: Client, config: AsyncConnectionConfig, deadline: Duration) -> Self {
        Self { client, config, deadline, pool: OnceLock::new() }
    }

    /// A connection of one's own. No PING at checkout: it would double the round trips, and a connection that turns out dead is
    /// dropped by whoever finds out.
    pub(crate) async fn connection(&self) -> Result<Connection<'_>, StoreError> {
        let pool = self.pool.get_or_init(|| {
            bb8::Pool::builder()
                .max_size(MOST_CONNECTIONS)
                .min_idle(0)
                .test_on_check_out(false)
                .connection_timeout(self.deadline)
                .build_unchecked(Manager { client: self.client.clone(), config: self.config.clone() })
        });
        pool.get().await.map(Connection).map_err(|error| match error {
            bb8::RunError::User(error) => store_error(&error),
            bb8::RunError::TimedOut => StoreError::not_run(ErrorKind::Timeout, "no connection was free in time"),
        })
    }

    /// Runs one command.
    pub(crate) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreError> {
        self.connection().await?.query(command).await
    }
}

impl Connection<'_> {
    /// Runs one command.
    pub(crate) async fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, StoreError> {
        let answer = command.query_async(&mut self.0.connection).await;
        self.looked_at(answer)
    }

    /// Runs several commands in one round trip.
    pub(crate) async fn pipeline<T: FromRedisValue>(&mut self, commands: &redis::Pipeline) -> Result<T, StoreError> {
        let answer = commands.query_async(&mut self.0.connection).await;
        self.looked_at(answer)
    }

    fn looked_at<T>(&mut self, answer: Result<T, RedisError>) -> Result<T, StoreError> {
        answer.map_err(|error| {
            self.0.broken = is_broken(&error);
            store_error(&error)
        })
    }
}
