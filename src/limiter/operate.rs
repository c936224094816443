//! What operators do: look at what is in force for a subject and why, and change it.

use std::sync::Arc;

use super::Limiter;
use super::snapshot::{layer, who};
use crate::config::{Config, Overrides, Source};
use crate::limit::{Decision, Field, Policy, Problem, Value, Warning};
use crate::overrides::{Cache, Change, ChangeError, Entry, News, Override, Record, Stored, Target, Write, WriteError, Written};
use crate::store::{Ask, Store, StoreError};
use crate::top::{Kind, Ranked};

/// How often a change is tried again when another came between reading and writing.
const MOST_TRIES: usize = 20;

/// What is in force for a target, and why.
#[derive(Debug, Clone)]
pub struct Described {
    /// What is set, and what of it could not be read.
    pub stored: Stored,
    /// Every field with its value and where that comes from.
    pub effective: Vec<(Field, Value, Source)>,
    /// The policy that they make.
    pub policy: Arc<Policy>,
    /// What an operator would not expect.
    pub warnings: Vec<Warning>,
}

/// Why a change was not made.
#[derive(Debug, thiserror::Error)]
pub enum OperateError {
    /// This limiter has no overrides.
    #[error("this process keeps no overrides")]
    NoOverrides,
    /// This limiter does not count who is busiest.
    #[error("this process does not count who is busiest")]
    NoTop,
    /// There is no such route, or it has no limits of its own.
    #[error("there is no route with limits of its own of that name")]
    UnknownRoute,
    /// There is no such tier.
    #[error("there is no tier {0:?} in the limits in force")]
    UnknownTier(String),
    /// What would be in force is no policy.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Policy(Vec<Problem>),
    /// The change makes no sense.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// Another version is there than the caller saw.
    #[error("the override was changed meanwhile: it has version {0}")]
    Stale(u64),
    /// The store cannot say.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Who asks for a change, and why.
#[derive(Debug, Clone, Default)]
pub struct Order {
    /// The name of the token.
    pub by: String,
    /// In the operator's words.
    pub reason: Option<String>,
    /// The version that the caller saw; nothing changes whatever is there.
    pub if_match: Option<u64>,
}

impl Limiter {
    /// The overrides that this limiter lays over the file's limits.
    ///
    /// # Errors
    /// When it has none.
    pub fn overrides(&self) -> Result<&Arc<Cache>, OperateError> {
        self.overrides.as_ref().ok_or(OperateError::NoOverrides)
    }

    /// What is in force for `target`, read anew.
    ///
    /// # Errors
    /// When there is no such route, or the store cannot say.
    pub async fn describe(&self, target: &Target) -> Result<Described, OperateError> {
        let stored = self.overrides()?.store().read(target).await?;
        let general = self.general(target, &stored.own).await?;
        self.described(target, stored, &general)
    }

    /// Changes what is set for `target`. The next decision of this process obeys; others hear of it.
    ///
    /// # Errors
    /// When the change makes no sense, would make no policy, is not of the version that the caller saw, or the store cannot say.
    pub async fn change(&self, target: &Target, change: &Change, order: &Order) -> Result<(Described, Written), OperateError> {
        let overrides = self.overrides()?;
        let store = overrides.store();
        for _ in 0..MOST_TRIES {
            let before = store.read(target).await?;
            if order.if_match.is_some_and(|version| version != before.own.version) {
                return Err(OperateError::Stale(before.own.version));
            }
            let (after, expires_in) = change.apply(&before.own, store.now())?;
            let general = self.general(target, &after).await?;
            let described = self.described(target, after.clone().into(), &general)?;
            self.check_tier(&after)?;
            let entry = Entry {
                by: order.by.clone(),
                action: change.name().to_owned(),
                reason: order.reason.clone(),
                from: before.own.to_fields(),
                to: after.to_fields(),
            };
            match store.write(target, Write { expected: before.own.version, own: after, expires_in, not_before: None, entry }).await {
                Ok(written) => {
                    overrides.heed(&News::Changed(target.key().as_str().to_owned()));
                    return Ok((self.written(described, &before.own, target, written), written));
                }
                Err(WriteError::Stale(version)) if order.if_match.is_some() => return Err(OperateError::Stale(version)),
                Err(WriteError::Stale(_) | WriteError::TooEarly) => {}
                Err(WriteError::Store(error)) => return Err(error.into()),
            }
        }
        Err(OperateError::Stale(store.read(target).await?.own.version))
    }

    /// Whether `change` would make a policy, over nothing else that is set.
    ///
    /// # Errors
    /// As [`Self::change`].
    pub fn try_change(&self, target: &Target, change: &Change) -> Result<(), OperateError> {
        let (own, _) = change.apply(&Override::default(), 0)?;
        self.check_tier(&own)?;
        let general = if target.route.is_none() { own.clone() } else { Override::default() };
        self.described(target, own.into(), &general).map(drop)
    }

    /// What is left for `target` now; takes nothing.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn state(&self, target: &Target) -> Result<(Described, Decision), OperateError> {
        let described = self.describe(target).await?;
        let decision = self.store.decide(Ask { key: &target.key(), policy: &described.policy, cost: 0, at: None }).await?;
        Ok((described, decision))
    }

    /// Full bucket, empty window, no load, closed breaker.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn reset(&self, target: &Target) -> Result<(), OperateError> {
        let described = self.describe(target).await?;
        self.store.reset(&target.key(), &described.policy).await?;
        Ok(self.overrides()?.store().announce(target).await?)
    }

    /// The last changes of `target`.
    ///
    /// # Errors
    /// When the store cannot say.
    pub async fn audit(&self, target: &Target, limit: usize) -> Result<Vec<Record>, OperateError> {
        Ok(self.overrides()?.store().audit(target, limit).await?)
    }

    /// The `limit` busiest subjects of the last minutes, over all processes.
    ///
    /// # Errors
    /// When this limiter counts none, or the store cannot say.
    pub async fn top(&self, by: Kind, limit: usize) -> Result<Vec<Ranked>, OperateError> {
        let top = self.top.as_ref().ok_or(OperateError::NoTop)?;
        Ok(top.list(by, limit, self.clock.now()).await?)
    }

    /// The general override of the subject of `target`, for which itself `own` is set.
    async fn general(&self, target: &Target, own: &Override) -> Result<Override, OperateError> {
        match target.route {
            None => Ok(own.clone()),
            Some(_) => Ok(self.overrides()?.store().read(&Target::general(target.subject.clone())).await?.own),
        }
    }

    fn described(&self, target: &Target, stored: Stored, general: &Override) -> Result<Described, OperateError> {
        let snapshot = self.snapshot.load_full();
        let config = &snapshot.config;
        let route = match &target.route {
            None => None,
            Some(name) => Some(config.route_named(name).filter(|route| route.limits.is_some()).ok_or(OperateError::UnknownRoute)?),
        };
        let now = self.overrides()?.store().now();
        let none = Override::default();
        let own = if route.is_some() { &stored.own } else { &none };
        let layers = config.layers(
            who(&target.subject, general.tier_at(now)),
            route,
            Overrides { general: layer(general, now), route: layer(own, now) },
        );
        let policy = layers.policy().map_err(OperateError::Policy)?;
        let effective = layers.merged().completed().iter().map(|(field, value)| (field, value, layers.source(field))).collect();
        let warnings = policy.warnings();
        Ok(Described { stored, effective, policy: Arc::new(policy), warnings })
    }

    fn check_tier(&self, own: &Override) -> Result<(), OperateError> {
        let config: Arc<Config> = self.config();
        let temporary = own.temporary.as_ref().and_then(|temporary| temporary.layer.tier.as_ref());
        match own.standing.tier.iter().chain(temporary).find(|tier| !config.tiers.contains_key(*tier)) {
            Some(tier) => Err(OperateError::UnknownTier(tier.to_string())),
            None => Ok(()),
        }
    }

    /// What was described before the write, with what only the write could tell.
    fn written(&self, mut described: Described, before: &Override, target: &Target, written: Written) -> Described {
        described.stored.own.version = written.version;
        if let (Some(temporary), Some(until)) = (&mut described.stored.own.temporary, written.until) {
            temporary.until = until;
        }
        let old = self.described(target, before.clone().into(), before);
        if target.route.is_none()
            && old.is_ok_and(|old| old.policy.precision() != described.policy.precision() && described.policy.uses_window())
        {
            described.warnings.push(Warning::WindowStartsAnew);
        }
        described
    }

    /// Takes away a temporary part whose time is over: bumps the version and notes the end in the audit. Another process may have
    /// been quicker, which is as well.
    pub(super) async fn end_temporary(&self, overrides: &Cache, target: &Target, before: &Override) {
        let after = Override { temporary: None, ..before.clone() };
        let entry = Entry {
            by: "weir".to_owned(),
            action: "temporary_ended".to_owned(),
            reason: None,
            from: before.to_fields(),
            to: after.to_fields(),
        };
        let not_before = before.temporary.as_ref().map(|temporary| temporary.until);
        let write = Write { expected: before.version, own: after, expires_in: None, not_before, entry };
        let ended = overrides.store().write(target, write).await;
        tracing::debug!(key = target.key().as_str(), done = ended.is_ok(), "a temporary part of an override has ended");
        // Too early: this clock is ahead of the store's, and will try again when it next reads the override.
        if !matches!(ended, Err(WriteError::TooEarly)) {
            overrides.heed(&News::Changed(target.key().as_str().to_owned()));
        }
    }
}
