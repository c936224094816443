//! The connection that a worker thread's decisions share.
//!
//! It is made inside the thread's own runtime, so that a decision never crosses threads, and it is multiplexed: requests
//! are written as they come and answered in order. A caller that goes away leaves its reply to the connection, which reads
//! and drops it; it can never reach the next caller.

use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};
use std::sync::Arc;
use tokio::sync::Mutex;

use super::error::is_broken;

/// At most one connection, made when it is needed.
#[derive(Default)]
pub(super) struct Lane {
    connection: ArcSwapOption<MultiplexedConnection>,
    /// Held while connecting, so that a crowd makes one connection.
    connecting: Mutex<()>,
}

impl Lane {
    /// Sends one command and waits for its answer, both within `deadline`. A connection that broke or fell silent is
    /// dropped; the next call makes another.
    pub(super) async fn send(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
        deadline: Duration,
        command: &Cmd,
    ) -> Result<Value, RedisError> {
        let shared = match self.connection.load_full() {
            Some(shared) => shared,
            None => self.connect(client, config, deadline).await?,
        };
        let mut connection = MultiplexedConnection::clone(&shared);
        let answer = connection.send_packed_command(command).await;
        if let Err(error) = &answer
            && is_broken(error)
        {
            self.forget(&shared);
        }
        answer.and_then(Value::extract_error)
    }

    async fn connect(
        &self,
        client: &Client,
        config: &AsyncConnectionConfig,
        deadline: Duration,
    ) -> Result<Arc<MultiplexedConnection>, RedisError> {
        let connect = async {
            let _alone = self.connecting.lock().await;
            if let Some(shared) = self.connection.load_full() {
                return Ok(shared);
            }
            let shared = Arc::new(client.get_multiplexed_async_connection_with_config(config).await?);
            self.connection.store(Some(Arc::clone(&shared)));
            Ok(shared)
        };
        tokio::time::timeout(deadline, connect).await.unwrap_or_else(|_| Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()))
    }

    /// Drops the connection, unless another has taken its place.
    fn forget(&self, broken: &Arc<MultiplexedConnection>) {
        self.connection.compare_and_swap(broken, None);
    }
}
