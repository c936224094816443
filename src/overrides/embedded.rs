//! Overrides in a local database file: for one process without Redis. Every acknowledged change survives `kill -9`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Fields, Listener, News, OverrideStore, Page, Record, Stored, Target, Write, WriteError, Written};
use crate::clock::Clock;
use crate::limit::Micros;
use crate::store::{ErrorKind, StoreError};

/// The file's name in the data directory.
const FILE: &str = "weir.redb";
/// How many changes of a target are kept.
const AUDIT_KEPT: usize = 1_000;

/// Key → stored fields, JSON.
const CONFIG: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("config");
/// Key and version → record, JSON.
const AUDIT: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("audit");

/// Overrides in a file, one process at a time.
pub struct EmbeddedOverrides {
    database: Arc<Database>,
    clock: Arc<dyn Clock>,
    listener: OnceLock<Listener>,
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("{0} is in use by another process")]
    InUse(String),
    /// Something else.
    #[error("cannot open {0}: {1}")]
    Other(String, String),
}

impl EmbeddedOverrides {
    /// The overrides in `directory`, which must exist; the file is made when it is not there.
    ///
    /// # Errors
    /// When another process has the file, or it cannot be read or made.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>) -> Result<Self, OpenError> {
        let path = directory.join(FILE);
        let shown = path.display().to_string();
        let other = |error: String| OpenError::Other(shown.clone(), error);
        let database = Database::create(&path).map_err(|error| match error {
            redb::DatabaseError::DatabaseAlreadyOpen => OpenError::InUse(shown.clone()),
            error => other(error.to_string()),
        })?;
        let begun = database.begin_write().map_err(|error| other(error.to_string()))?;
        begun.open_table(CONFIG).map_err(|error| other(error.to_string()))?;
        begun.open_table(AUDIT).map_err(|error| other(error.to_string()))?;
        begun.commit().map_err(|error| other(error.to_string()))?;
        Ok(Self { database: Arc::new(database), clock, listener: OnceLock::new() })
    }

    /// Tells `listener` of every change from here on. The first listener stays.
    pub fn tell(&self, listener: Listener) {
        let _ = self.listener.set(listener);
    }

    /// Runs `what` where it may block.
    async fn blocking<T: Send + 'static>(
        &self,
        what: impl FnOnce(&Database) -> Result<T, redb::Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let database = Arc::clone(&self.database);
        match tokio::task::spawn_blocking(move || what(&database)).await {
            Ok(done) => done.map_err(|error| StoreError::new(ErrorKind::Unavailable, error)),
            Err(error) => Err(StoreError::new(ErrorKind::Unexpected, error)),
        }
    }
}

fn stored(json: &[u8]) -> Stored {
    let fields: Fields = serde_json::from_slice(json).unwrap_or_default();
    Stored::from_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())))
}

#[async_trait]
impl OverrideStore for EmbeddedOverrides {
    async fn read(&self, target: &Target) -> Result<Stored, StoreError> {
        let key = target.key();
        self.blocking(move |database| {
            let table = database.begin_read()?.open_table(CONFIG)?;
            Ok(table.get(key.as_str())?.map(|json| stored(json.value())).unwrap_or_default())
        })
        .await
    }

    async fn write(&self, target: &Target, write: Write) -> Result<Written, WriteError> {
        let (key, now) = (target.key(), self.clock.now());
        let told = key.as_str().to_owned();
        let written = self.blocking(move |database| put(database, key.as_str(), now, write)).await?;
        if let (Ok(_), Some(listener)) = (&written, self.listener.get()) {
            listener(News::Changed(told));
        }
        written
    }

    async fn list(&self, prefix: &str, cursor: Option<&str>, limit: usize) -> Result<Page, StoreError> {
        let (start, prefix) = (cursor.map_or_else(|| format!("{{{prefix}"), |cursor| format!("{cursor}\0")), format!("{{{prefix}"));
        self.blocking(move |database| {
            let table = database.begin_read()?.open_table(CONFIG)?;
            let mut page = Page::default();
            for entry in table.range(start.as_str()..)? {
                let (key, json) = entry?;
                if !key.value().starts_with(&prefix) {
                    break;
                }
                if page.items.len() == limit {
                    page.next = page.items.last().map(|(target, _): &(Target, Stored)| target.key().as_str().to_owned());
                    break;
                }
                let stored = stored(json.value());
                if let (Some(target), false) = (Target::from_key(key.value()), stored.own.is_empty()) {
                    page.items.push((target, stored));
                }
            }
            Ok(page)
        })
        .await
    }

    async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, StoreError> {
        let key = target.key();
        self.blocking(move |database| {
            let table = database.begin_read()?.open_table(AUDIT)?;
            let mut records = Vec::new();
            for entry in table.range((key.as_str(), 0)..=(key.as_str(), u64::MAX))?.rev().take(limit) {
                records.extend(serde_json::from_slice::<Record>(entry?.1.value()));
            }
            Ok(records)
        })
        .await
    }

    fn now(&self) -> Micros {
        self.clock.now()
    }
}

/// One transaction: compare, write, append, cut the audit.
fn put(database: &Database, key: &str, now: Micros, write: Write) -> Result<Result<Written, WriteError>, redb::Error> {
    let Write { expected, own, expires_in, not_before, entry } = write;
    let begun = database.begin_write()?;
    let written = {
        let mut config = begun.open_table(CONFIG)?;
        let before = config.get(key)?.map(|json| stored(json.value()).own.version).unwrap_or_default();
        if before != expected {
            return Ok(Err(WriteError::Stale(before)));
        }
        if not_before.is_some_and(|at| now < at) {
            return Ok(Err(WriteError::TooEarly));
        }
        let version = (before + 1).max(u64::try_from(now).unwrap_or_default());
        let until = own.temporary.as_ref().map(|temporary| expires_in.map_or(temporary.until, |span| now + span));
        let mut fields = own.to_fields();
        fields.insert("version".to_owned(), version.to_string());
        fields.extend(until.map(|until| ("temporary_until".to_owned(), until.to_string())));
        config.insert(key, serde_json::to_vec(&fields).unwrap_or_default().as_slice())?;
        let mut audit = begun.open_table(AUDIT)?;
        let record = Record { at: now, version, entry };
        audit.insert((key, version), serde_json::to_vec(&record).unwrap_or_default().as_slice())?;
        let versions =
            audit.range((key, 0)..=(key, u64::MAX))?.map(|entry| entry.map(|(key, _)| key.value().1)).collect::<Result<Vec<_>, _>>()?;
        for version in versions.iter().rev().skip(AUDIT_KEPT) {
            audit.remove((key, *version))?;
        }
        Written { version, until, durable: Some(true) }
    };
    begun.commit()?;
    Ok(Ok(written))
}
