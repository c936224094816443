//! JSON lines: an event each, or a whole vector each.

use std::collections::VecDeque;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};

use super::{Event, Item, What};
use crate::config::part_from_json;
use crate::identity::Subject;
use crate::limit::{MAX_COST, Micros, Units};

/// Times stay exact as doubles.
const LATEST: Micros = 1 << 53;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at: Option<Micros>,
    user: Option<String>,
    cost: Option<Value>,
    policy: Option<Map<String, Value>>,
    /// What a vector expects; a replay finds out by itself.
    #[serde(rename = "expect")]
    _expect: Option<IgnoredAny>,
    /// The name of a vector.
    #[serde(rename = "name")]
    _name: Option<IgnoredAny>,
    events: Option<Vec<Line>>,
}

/// Adds what one line says to `items`.
pub(super) fn understand(text: &str, items: &mut VecDeque<Item>) -> Result<(), String> {
    let mut line: Line = serde_json::from_str(text).map_err(|error| format!("not a trace line: {error}"))?;
    let Some(events) = line.events.take() else {
        items.push_back(Item::Event(event(line)?));
        return Ok(());
    };
    let policy = part_from_json(&line.policy.unwrap_or_default())?;
    let events = events.into_iter().enumerate().map(|(index, line)| event(line).map_err(|why| format!("event {index}: {why}"))).collect::<Result<Vec<_>, _>>()?;
    items.push_back(Item::Fresh(policy));
    items.extend(events.into_iter().map(Item::Event));
    Ok(())
}

fn event(line: Line) -> Result<Event, String> {
    let at = line.at.filter(|at| (0..LATEST).contains(at)).ok_or("at: must be whole microseconds from 0 to 2^53")?;
    let user = line.user.ok_or("user: is missing")?;
    Subject::user(&user).map_err(|error| format!("user: {error}"))?;
    let what = match (line.policy, line.cost) {
        (Some(_), Some(_)) => return Err("either cost or policy, not both".to_owned()),
        (Some(policy), None) => What::Policy(part_from_json(&policy)?),
        (None, cost) => What::Request(self::cost(cost.as_ref())?),
    };
    Ok(Event { at, user, what })
}

fn cost(value: Option<&Value>) -> Result<Units, String> {
    let Some(value) = value else { return Ok(1) };
    value.as_u64().filter(|cost| *cost <= MAX_COST).ok_or_else(|| format!("cost: must be a whole number from 0 to {MAX_COST}"))
}
