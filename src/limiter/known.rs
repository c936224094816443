//! Deciding for a subject that may have something set for it.
//!
//! Where that is known, it is one call of the store. Where it is not, and the store can look for overrides inside a decision, that call
//! carries the inherited policy and where to look: a subject with nothing set costs one call all the same, and one with an override is
//! charged nothing, learnt, and asked for again.

use std::sync::Arc;
use std::time::Duration;

use super::snapshot::{Place, Snapshot};
use super::{Answer, Limiter};
use crate::clock::{elapsed, monotonic};
use crate::config::OnFailure;
use crate::identity::Subject;
use crate::limit::{Policy, Units};
use crate::overrides::{Cache, Known, Look, Looked, Override, Target};
use crate::store::{Ask, Guarded, GuardingStore, Key, Store, StoreError};

/// A request whose place and subject are known.
struct Asked<'a> {
    snapshot: &'a Snapshot,
    place: &'a Place<'a>,
    subject: Subject,
    key: &'a Key,
    cost: Units,
}

/// What came of a decision that looked for overrides first.
enum Tried {
    Answered(Box<Answer>),
    Known(Vec<Arc<Known>>),
}

impl Limiter {
    /// Decides for `subject` on its own limits: what it inherits, and over it what is set for it.
    pub(super) async fn check_own(
        &self,
        snapshot: &Snapshot,
        place: &Place<'_>,
        subject: Subject,
        key: &Key,
        cost: Units,
    ) -> Result<Answer, StoreError> {
        let Some(overrides) = &self.overrides else {
            let policy = Arc::clone(place.policies.inherited(&subject));
            return self.decide(place, subject, key, policy, cost).await;
        };
        let asked = Asked { snapshot, place, subject, key, cost };
        let now = monotonic();
        if place.scope().is_none() {
            match overrides.fresh(key, now) {
                Some(known) => self.decide_known(overrides, asked, &[known]).await,
                None => self.look(overrides, asked, &[key]).await,
            }
        } else {
            let general = Key::new(&asked.subject, None);
            match (overrides.fresh(&general, now), overrides.fresh(key, now)) {
                (Some(general), Some(own)) => self.decide_known(overrides, asked, &[general, own]).await,
                _ => self.look(overrides, asked, &[&general, key]).await,
            }
        }
    }

    /// Decides where too little is known of `keys`: the general one, and the route's if it has one.
    async fn look(&self, overrides: &Cache, asked: Asked<'_>, keys: &[&Key]) -> Result<Answer, StoreError> {
        let guarding = self.store.guarding();
        let known = match overrides.look(keys, monotonic()).await {
            Looked::Known(known) => known,
            Looked::Failed(last, error) if guarding.is_some() => {
                let policy = policy(overrides, &asked, &last);
                let ask = Ask { key: asked.key, policy: &policy, cost: asked.cost, at: None };
                return self.answer(asked.place, asked.subject.clone(), ask, &policy, Err(error), Duration::ZERO);
            }
            Looked::Failed(last, error) => or_inherited(&asked, (last, Some(error)))?,
            Looked::Nobody(look) => match guarding.filter(|_| look.expects_nothing()) {
                Some(store) => match self.decide_guarded(store, &asked, keys, look).await? {
                    Tried::Answered(answer) => return Ok(*answer),
                    Tried::Known(known) => known,
                },
                None => or_inherited(&asked, look.read().await)?,
            },
        };
        self.decide_known(overrides, asked, &known).await
    }

    /// One call that decides on what is inherited, unless something is set.
    async fn decide_guarded(
        &self,
        store: &dyn GuardingStore,
        asked: &Asked<'_>,
        keys: &[&Key],
        look: Look<'_>,
    ) -> Result<Tried, StoreError> {
        let policy = asked.place.policies.inherited(&asked.subject);
        let ask = Ask { key: asked.key, policy, cost: asked.cost, at: None };
        let start = monotonic();
        let in_flight = self.metrics.as_ref().map(|metrics| metrics.store_call());
        let guarded = store.decide_unless_overridden(ask, keys).await;
        drop(in_flight);
        let decided = match guarded {
            Ok(Guarded::Overridden(found)) => {
                return match look.found(&found) {
                    Ok(known) => Ok(Tried::Known(known)),
                    Err(look) => or_inherited(asked, look.read().await).map(Tried::Known),
                };
            }
            Ok(Guarded::Decided(decision)) => {
                look.nothing();
                Ok(decision)
            }
            Err(error) => {
                look.failed();
                Err(error)
            }
        };
        self.answer(asked.place, asked.subject.clone(), ask, policy, decided, elapsed(start))
            .map(|answer| Tried::Answered(Box::new(answer)))
    }

    /// Decides on what is inherited and what is known to be set: in general, and for the route if it has limits of its own.
    async fn decide_known(&self, overrides: &Cache, asked: Asked<'_>, known: &[Arc<Known>]) -> Result<Answer, StoreError> {
        let policy = policy(overrides, &asked, known);
        for (index, one) in known.iter().enumerate() {
            if one.first_to_see_the_end(|| overrides.store().now()) {
                let route = if index + 1 == known.len() { asked.place.scope() } else { None };
                let target = Target { subject: asked.subject.clone(), route: route.map(Into::into) };
                self.end_temporary(overrides, &target, &one.stored.own).await;
            }
        }
        let answer = self.decide(asked.place, asked.subject, asked.key, policy, asked.cost).await;
        if let (Ok(answer), [general, ..]) = (&answer, known)
            && !general.stored.own.is_empty()
            && let Some(tier) = general.stored.own.tier_at(overrides.store().now())
            && let Some(outcomes) = asked.snapshot.tier(tier)
        {
            outcomes.count(&answer.decision);
        }
        answer
    }
}

/// What is known. Of what the store could not say, what is inherited holds if something is to be answered without the store at all; with
/// `deny` it is an error.
fn or_inherited(asked: &Asked<'_>, (known, unknown): (Vec<Arc<Known>>, Option<StoreError>)) -> Result<Vec<Arc<Known>>, StoreError> {
    match unknown {
        Some(error) if asked.place.on_failure == OnFailure::Deny => Err(error),
        _ => Ok(known),
    }
}

/// The policy of a subject of which `known` is set.
fn policy(overrides: &Cache, asked: &Asked<'_>, known: &[Arc<Known>]) -> Arc<Policy> {
    if known.iter().all(|known| known.stored.own.is_empty()) {
        return Arc::clone(asked.place.policies.inherited(&asked.subject));
    }
    let now = overrides.store().now();
    let make = |general: &Override, own: &Override| asked.snapshot.own_policy(asked.place, &asked.subject, general, own, now);
    let generation = asked.snapshot.generation;
    match known {
        [general] => general.policy(generation, None, now, || make(&general.stored.own, &Override::default())),
        [general, own, ..] => own.policy(generation, Some(general), now, || make(&general.stored.own, &own.stored.own)),
        [] => Arc::clone(asked.place.policies.inherited(&asked.subject)),
    }
}
