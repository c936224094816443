//! The pool for everything that is not a decision.

use std::time::Duration;

use bb8_redis::bb8;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError};

use super::super::{ErrorKind, StoreError};
use super::error::{is_broken, store_error};

/// Administration and health: rare, so a few connections are plenty.
const MOST_CONNECTIONS: u32 = 4;

pub(super) type Pool = bb8::Pool<Manager>;

/// Makes connections with this project's timeouts; `bb8_redis`'s own manager takes none and leaves the library's defaults.
pub(super) struct Manager {
    client: Client,
    config: AsyncConnectionConfig,
}

/// A connection that knows when it is of no more use.
pub(super) struct Pooled {
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

/// A pool that connects when it is first asked. No PING at checkout: it would double the round trips, and a connection
/// that turns out dead is dropped by [`query`].
pub(super) fn open(client: Client, config: AsyncConnectionConfig, deadline: Duration) -> Pool {
    bb8::Pool::builder()
        .max_size(MOST_CONNECTIONS)
        .min_idle(0)
        .test_on_check_out(false)
        .connection_timeout(deadline)
        .build_unchecked(Manager { client, config })
}

/// Runs one command.
pub(super) async fn query<T: FromRedisValue>(pool: &Pool, command: &Cmd) -> Result<T, StoreError> {
    let mut pooled = pool.get().await.map_err(|error| match error {
        bb8::RunError::User(error) => store_error(&error),
        bb8::RunError::TimedOut => StoreError::not_run(ErrorKind::Timeout, "no connection was free in time"),
    })?;
    let answer = command.query_async(&mut pooled.connection).await;
    if let Err(error) = &answer {
        pooled.broken = is_broken(error);
    }
    answer.map_err(|error| store_error(&error))
}
