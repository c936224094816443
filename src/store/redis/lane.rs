//! The connection to a server that a worker thread's decisions share.
//!
//! It is made inside the thread's own runtime, so that a decision never crosses threads, and it is multiplexed: requests
//! are written as they come and answered in order. A caller that goes away leaves its reply to the connection, which reads
//! and drops it; it can never reach the next caller.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use redis::{Cmd, RedisError, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::connect::{Connector, Open, To};
use super::error::{Failed, is_broken};
use super::url::Address;

/// At most one connection, made when it is needed.
#[derive(Default)]
pub(super) struct Lane {
    connection: ArcSwapOption<Open>,
    /// Held while connecting, so that a crowd makes one connection.
    connecting: Arc<Mutex<()>>,
}

impl Lane {
    /// Sends one command to the server at `address` and waits for its answer, connecting included, until then. `asking`: a slot that is
    /// moving to that server is asked for before it is all there. A connection that broke or fell silent is dropped; the next call makes
    /// another.
    pub(super) async fn send(
        self: &Arc<Self>,
        connector: &Arc<Connector>,
        address: &Address,
        command: &Cmd,
        asking: bool,
        until: Instant,
    ) -> Result<Value, Failed> {
        let open = timeout_at(until, self.open(connector, address)).await.unwrap_or_else(|_| Err(Failed::timed_out(false)))?;
        let mut connection = open.connection.clone();
        let answer = timeout_at(until, async {
            if !asking {
                return connection.send_packed_command(command).await.and_then(own_error);
            }
            let mut both = redis::pipe();
            both.cmd("ASKING").ignore().add_command(command.clone());
            both.query_async::<(Value,)>(&mut connection).await.map(|(answer,)| answer)
        });
        let answer = answer.await.map_or_else(|_| Err(Failed::timed_out(true)), |answer| answer.map_err(Failed::sent));
        if answer.as_ref().is_err_and(|failed| is_broken(&failed.error)) {
            self.forget(&open);
        }
        answer
    }

    async fn open(self: &Arc<Self>, connector: &Arc<Connector>, address: &Address) -> Result<Arc<Open>, Failed> {
        if let Some(open) = self.current() {
            return Ok(open);
        }
        let alone = Arc::clone(&self.connecting).lock_owned().await;
        if let Some(open) = self.current() {
            return Ok(open);
        }
        // In the background: whoever asked may go away meanwhile, and the next has use for it.
        let (lane, connector, address) = (Arc::clone(self), Arc::clone(connector), address.clone());
        let connecting = tokio::spawn(async move {
            let _alone = alone;
            let open = Arc::new(connector.open(&address, To::Server).await.map_err(Failed::unsent)?);
            lane.connection.store(Some(Arc::clone(&open)));
            Ok(open)
        });
        connecting.await.unwrap_or_else(|_| Err(Failed::timed_out(false)))
    }

    fn current(&self) -> Option<Arc<Open>> {
        self.connection.load_full().filter(|open| !open.is_closed())
    }

    /// Drops the connection, unless another has taken its place.
    fn forget(&self, broken: &Arc<Open>) {
        self.connection.compare_and_swap(broken, None);
    }
}

/// An answer that is an error as one. (One inside of an answer is its part's own.)
fn own_error(answer: Value) -> Result<Value, RedisError> {
    match answer {
        Value::ServerError(error) => Err(error.into()),
        answer => Ok(answer),
    }
}
