//! What a scenario file may say: a question in its first line, then who asks how, against what, and what is hoped for.
//!
//! Read strictly: what is misspelt, doubled or out of range is refused with its place. Everything is bounded, so that no file can
//! keep a machine busy for ever.

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::Failure;

/// More tasks of one process would measure the client.
const MOST_SINGLE_USERS: u64 = 2_000;
const MOST_USERS: u64 = 10_000_000;
const MOST_CONNECTIONS: u64 = 1_024;
const MOST_SECONDS: f64 = 86_400.0;
const MOST_RATE: f64 = 1e6;
const MOST_ROUNDS: u32 = 50;
const MOST_EVENTS: usize = 1_000;
/// Requests of one group before anything is measured, and on a virtual clock: more take longer than anybody waits.
const MOST_UNTIMED: f64 = 1e8;

/// A question, and the traffic that answers it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// The file's name without its ending.
    #[serde(skip)]
    pub name: String,
    /// The first line of the file, without its `#`.
    #[serde(skip)]
    pub question: String,
    /// How often all variants are run in turn; figures are medians.
    #[serde(default = "one")]
    pub rounds: u32,
    /// Each variant ends at the latest after so long, s.
    pub seconds: f64,
    /// A request counts as a success when it is admitted at the first try, or within this long of it, s.
    #[serde(default = "two")]
    pub success_within_seconds: f64,
    /// Whether a user is an API key, or named in the body.
    #[serde(default)]
    pub identify: Identify,
    /// What is written into the limit file.
    #[serde(default)]
    pub limits: Map<String, Json>,
    /// Who asks, where a variant does not say otherwise.
    pub groups: Vec<Group>,
    /// Against what, in turn.
    pub variants: Vec<Variant>,
    /// What is hoped for.
    #[serde(default)]
    pub expect: Vec<Expect>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Identify {
    #[default]
    User,
    ApiKey,
}

/// Users that are alike.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    pub name: String,
    /// Groups with the same one are the same users; by default the group's name.
    pub subjects: Option<String>,
    /// Groups with the same one are also counted together.
    pub counted_with: Option<String>,
    pub users: u64,
    /// What each user does by itself, one request after the other.
    pub each: Option<Pace>,
    /// What they do together, spread evenly over the users.
    pub together: Option<Pace>,
    /// Connections that a group shares which acts together.
    #[serde(default = "sixty_four")]
    pub connections: u64,
    /// Requests in one call of `/v1/check/batch`; 1 is `/v1/check`.
    #[serde(default = "one")]
    pub batch: u32,
    /// When it begins, s.
    #[serde(default)]
    pub start_seconds: f64,
    /// What a refused user does.
    #[serde(default)]
    pub retry: Retry,
    /// Requests of each user before anything is measured.
    #[serde(default)]
    pub warm_up: u64,
}

/// How fast, and how many.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Pace {
    /// Requests a second, each with an intended start; without it the next one follows the last answer.
    pub rate: Option<f64>,
    /// How many requests; without it until the time is over.
    pub requests: Option<u64>,
    /// They come in bursts, at the same rate on average.
    pub burst: Option<Burst>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Burst {
    pub size: u64,
    #[serde(default)]
    pub within_ms: f64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Retry {
    /// Goes on with its next request.
    #[default]
    Never,
    /// Waits as long as it was told and asks again, until it could no longer be a success.
    Obey,
}

/// One of the things that are compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Variant {
    pub name: String,
    #[serde(default)]
    pub store: Store,
    /// How the service reaches its Redis.
    #[serde(default)]
    pub redis_over: Over,
    /// How long the service waits for Redis, ms; its own default unless said.
    pub redis_deadline_ms: Option<u32>,
    /// Whether it really happens, or is replayed through `simulate`.
    #[serde(default)]
    pub clock: Clock,
    /// Laid over the scenario's limits.
    #[serde(default)]
    pub limits: Map<String, Json>,
    /// In place of the scenario's.
    pub groups: Option<Vec<Group>>,
    /// What happens meanwhile.
    #[serde(default)]
    pub events: Vec<Event>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Store {
    #[default]
    Redis,
    Memory,
    /// No weir at all: the bare handler that it is measured against.
    Bare,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Over {
    #[default]
    Tcp,
    Unix,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Clock {
    #[default]
    Real,
    Virtual,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Event {
    pub at_seconds: f64,
    #[serde(rename = "do")]
    pub what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum What {
    /// Redis answers nothing more (SIGSTOP).
    StopRedis,
    /// Redis goes on (SIGCONT).
    ContinueRedis,
    /// The limit file is saved with another content and the same limits.
    SaveLimits,
}

/// One figure and what it should be, alone or as a ratio.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Expect {
    pub figure: String,
    pub variant: String,
    #[serde(default = "all")]
    pub group: String,
    /// The figure divided by the same one of this variant.
    pub against: Option<String>,
    pub at_most: Option<f64>,
    pub at_least: Option<f64>,
}

fn one() -> u32 {
    1
}
fn two() -> f64 {
    2.0
}
fn sixty_four() -> u64 {
    64
}
fn all() -> String {
    "all".to_owned()
}

impl Group {
    /// The name of one of its users.
    pub(crate) fn user(&self, index: u64) -> String {
        format!("{}-{index}", self.subjects.as_ref().unwrap_or(&self.name))
    }

    pub(crate) fn pace(&self) -> Option<&Pace> {
        self.each.as_ref().or(self.together.as_ref())
    }
}

impl Scenario {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
        let name = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
        Self::parse(&name, &text).map_err(|error| format!("{}: {error}", path.display()).into())
    }

    /// The scenario that `text` describes.
    ///
    /// # Errors
    /// What is wrong with it, with its place.
    pub(crate) fn parse(name: &str, text: &str) -> Result<Self, String> {
        let question = text.lines().next().and_then(|line| line.strip_prefix("# ")).filter(|line| line.trim_end().ends_with('?'));
        let question = question.ok_or("the first line must be a comment that says the question: # Does …?")?.trim().to_owned();
        let mut scenario: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        name.clone_into(&mut scenario.name);
        scenario.question = question;
        scenario.check()?;
        Ok(scenario)
    }

    /// The groups of a variant.
    pub(crate) fn groups<'a>(&'a self, variant: &'a Variant) -> &'a [Group] {
        variant.groups.as_deref().unwrap_or(&self.groups)
    }

    /// The content of a variant's limit file: JSON, which is YAML too.
    pub(crate) fn limits(&self, variant: &Variant) -> Json {
        // A limit file that says nothing at all is taken for a mistake.
        let mut merged = serde_json::json!({"defaults": {}});
        lay_over(&mut merged, &Json::Object(self.limits.clone()));
        lay_over(&mut merged, &Json::Object(variant.limits.clone()));
        merged
    }

    fn check(&self) -> Result<(), String> {
        within("rounds", f64::from(self.rounds), 1.0, f64::from(MOST_ROUNDS))?;
        within("seconds", self.seconds, 0.1, MOST_SECONDS)?;
        within("success_within_seconds", self.success_within_seconds, 0.0, MOST_SECONDS)?;
        if self.variants.is_empty() {
            return Err("variants: there must be at least one".to_owned());
        }
        for variant in &self.variants {
            let place = format!("variants.{}", variant.name);
            if self.variants.iter().filter(|other| other.name == variant.name).count() > 1 {
                return Err(format!("{place}: there are two of that name"));
            }
            self.check_variant(variant).map_err(|problem| format!("{place}: {problem}"))?;
        }
        for expect in &self.expect {
            for name in std::iter::once(&expect.variant).chain(&expect.against) {
                if !self.variants.iter().any(|variant| variant.name == *name) {
                    return Err(format!("expect.{}: there is no variant {name}", expect.figure));
                }
            }
            if expect.at_most.is_none() == expect.at_least.is_none() {
                return Err(format!("expect.{}: say either at_most or at_least", expect.figure));
            }
        }
        Ok(())
    }

    fn check_variant(&self, variant: &Variant) -> Result<(), String> {
        if variant.events.len() > MOST_EVENTS {
            return Err(format!("events: at most {MOST_EVENTS}"));
        }
        for event in &variant.events {
            within("events.at_seconds", event.at_seconds, 0.0, self.seconds)?;
            let on_redis = matches!(event.what, What::StopRedis | What::ContinueRedis);
            if variant.clock == Clock::Virtual || variant.store == Store::Bare || (on_redis && variant.store != Store::Redis) {
                return Err("events: there is nothing that this could happen to".to_owned());
            }
        }
        for group in self.groups(variant) {
            let checked = check_group(group, variant.clock).and_then(|()| self.check_amount(group, variant.clock));
            checked.map_err(|problem| format!("groups.{}: {problem}", group.name))?;
        }
        Ok(())
    }

    /// What no time bounds is bounded by its number.
    fn check_amount(&self, group: &Group, clock: Clock) -> Result<(), String> {
        let users = group.users as f64;
        within("users x warm_up", users * group.warm_up as f64, 0.0, MOST_UNTIMED)?;
        match (clock, group.pace().and_then(|pace| pace.rate)) {
            (Clock::Virtual, Some(rate)) => within("users x rate x seconds", users * rate * self.seconds, 0.0, MOST_UNTIMED),
            _ => Ok(()),
        }
    }
}

fn check_group(group: &Group, clock: Clock) -> Result<(), String> {
    if group.name == "all" {
        return Err("`all` stands for all groups together".to_owned());
    }
    let (pace, most_users) = match (&group.each, &group.together) {
        (Some(pace), None) => (pace, MOST_SINGLE_USERS),
        (None, Some(pace)) => (pace, MOST_USERS),
        _ => return Err("say either `each` or `together`".to_owned()),
    };
    within("users", group.users as f64, 1.0, most_users as f64)?;
    within("connections", group.connections as f64, 1.0, MOST_CONNECTIONS as f64)?;
    within("batch", f64::from(group.batch), 1.0, 1_000.0)?;
    within("start_seconds", group.start_seconds, 0.0, MOST_SECONDS)?;
    within("rate", pace.rate.unwrap_or(1.0), 1e-3, MOST_RATE)?;
    within("requests", pace.requests.unwrap_or(1) as f64, 1.0, 1e9)?;
    within("warm_up", group.warm_up as f64, 0.0, 1e6)?;
    if let Some(burst) = pace.burst {
        within("burst.size", burst.size as f64, 1.0, 1e6)?;
        within("burst.within_ms", burst.within_ms, 0.0, 1e6)?;
        if pace.rate.is_none() {
            return Err("burst: needs a rate, on average".to_owned());
        }
    }
    if group.retry == Retry::Obey && group.each.is_none() {
        return Err("retry: who acts together has nobody who waits; say `each`".to_owned());
    }
    if clock == Clock::Virtual && (group.each.is_none() || pace.rate.is_none() || group.batch > 1 || group.warm_up > 0) {
        return Err("a virtual clock needs `each` with a rate, without batch and warm_up".to_owned());
    }
    Ok(())
}

fn within(what: &str, value: f64, least: f64, most: f64) -> Result<(), String> {
    if (least..=most).contains(&value) { Ok(()) } else { Err(format!("{what}: {value} is not within {least} and {most}")) }
}

/// Lays `over` over `base`, section by section.
fn lay_over(base: &mut Json, over: &Json) {
    match (base, over) {
        (Json::Object(base), Json::Object(over)) => {
            for (key, value) in over {
                lay_over(base.entry(key.clone()).or_insert(Json::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
#[path = "scenario_tests.rs"]
mod tests;
