//! The processes that share a Redis announce themselves in it, so that each knows its share while it is away.

use super::{RedisStore, StoreError};

/// Rare: the script travels with each call.
const ANNOUNCE: &str = include_str!("processes.lua");

impl RedisStore {
    /// Says that this process is alive (to be said every second or two), and how many have said so in the last ten seconds.
    ///
    /// # Errors
    /// When Redis cannot say.
    pub async fn announce(&self) -> Result<u32, StoreError> {
        self.say(false).await
    }

    /// Says that this process goes, so that the others' shares grow at once.
    ///
    /// # Errors
    /// When Redis cannot say.
    pub async fn take_leave(&self) -> Result<u32, StoreError> {
        self.say(true).await
    }

    async fn say(&self, leaving: bool) -> Result<u32, StoreError> {
        let key = format!("{}:processes", self.prefix);
        let mut call = redis::cmd("EVAL");
        call.arg(ANNOUNCE).arg(1).arg(&key).arg(&self.process).arg(u8::from(leaving));
        self.servers.query(&key, &call).await
    }

    /// The servers' policies for full memory, of those that may forget what never expires: overrides, and who is being limited.
    ///
    /// # Errors
    /// When Redis cannot say.
    pub async fn forgetful(&self) -> Result<Vec<String>, StoreError> {
        let mut found = Vec::new();
        for server in self.servers.all().await? {
            let info: String = server.connection().await?.query(redis::cmd("INFO").arg("memory")).await?;
            let policy = info.lines().find_map(|line| line.strip_prefix("maxmemory_policy:")).unwrap_or_default().trim();
            if policy.starts_with("allkeys-") {
                found.push(policy.to_owned());
            }
        }
        Ok(found)
    }
}
