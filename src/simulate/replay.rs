//! The replay itself: event by event through a store, with the time of the event.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Event, What};
use crate::config::Config;
use crate::identity::Subject;
use crate::limit::{Decision, Part, Policy};
use crate::store::{Ask, Key, MemoryStore, StoreError};

/// More users with an override of their own than this, and the trace is refused: what is remembered is bounded.
const MOST_OVERRIDES: usize = 100_000;

/// What decides: a store, asked one question after another.
pub trait Decider {
    /// Decides one request.
    ///
    /// # Errors
    /// When the store cannot say.
    fn decide(&mut self, ask: Ask<'_>) -> Result<Decision, StoreError>;
}

impl Decider for &MemoryStore {
    fn decide(&mut self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        MemoryStore::decide(self, ask)
    }
}

/// What came of an event.
#[derive(Debug)]
pub enum Outcome {
    /// A request was decided.
    Decided(Decision),
    /// An override was taken.
    Changed,
    /// The event makes no sense here.
    Bad(String),
}

/// A replay under way.
pub struct Replay<D> {
    decider: D,
    config: Config,
    /// Lies over the config's defaults: a vector's policy.
    base: Part,
    default_policy: Arc<Policy>,
    overrides: HashMap<String, Arc<Policy>>,
    /// Counts the vectors, so that each has state of its own.
    generation: u64,
}

impl<D: Decider> Replay<D> {
    /// A replay under these limits.
    #[must_use]
    pub fn new(config: Config, decider: D) -> Self {
        let default_policy = Arc::new(config.policy(None, &[]).unwrap_or_default());
        Self { decider, config, base: Part::default(), default_policy, overrides: HashMap::new(), generation: 0 }
    }

    /// Begins anew: no state, no overrides, `base` over the config's defaults.
    ///
    /// # Errors
    /// When that is no policy.
    pub fn begin(&mut self, base: Part) -> Result<(), String> {
        self.default_policy = Arc::new(self.config.policy(None, &[&base]).map_err(|problems| together(&problems))?);
        self.base = base;
        self.overrides.clear();
        self.generation += 1;
        Ok(())
    }

    /// Replays one event.
    ///
    /// # Errors
    /// When the store cannot say.
    pub fn step(&mut self, event: &Event) -> Result<Outcome, StoreError> {
        match &event.what {
            What::Policy(part) => Ok(self.change(&event.user, part)),
            What::Request(cost) => {
                let policy = self.overrides.get(&event.user).unwrap_or(&self.default_policy);
                let subject = if self.generation == 0 { Subject::User(event.user.as_str().into()) } else { Subject::User(format!("{}/{}", self.generation, event.user).into()) };
                let key = Key::new(&subject, None);
                self.decider.decide(Ask { key: &key, policy, cost: *cost, at: Some(event.at) }).map(Outcome::Decided)
            }
        }
    }

    fn change(&mut self, user: &str, part: &Part) -> Outcome {
        if self.overrides.len() >= MOST_OVERRIDES && !self.overrides.contains_key(user) {
            return Outcome::Bad(format!("more than {MOST_OVERRIDES} users with a policy of their own"));
        }
        match self.config.policy(None, &[&self.base, part]) {
            Ok(policy) => {
                self.overrides.insert(user.to_owned(), Arc::new(policy));
                Outcome::Changed
            }
            Err(problems) => Outcome::Bad(together(&problems)),
        }
    }
}

fn together(problems: &[crate::limit::Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
