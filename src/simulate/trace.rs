//! JSON lines: events, and vectors of events.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value as Json};

use super::Step;
use crate::config::part_from_json;
use crate::identity::Subject;
use crate::limit::{MAX_COST, Micros, Part};

/// The last time that a double still tells from its neighbours, µs: 2⁵³.
const MAX_AT: Micros = 1 << 53;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawEvent<'a> {
    at: Json,
    #[serde(borrow)]
    user: Cow<'a, str>,
    cost: Option<Json>,
    policy: Option<Map<String, Json>>,
    /// The right answers, in vector files: not this command's business.
    #[serde(rename = "expect")]
    _expect: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawVector<'a> {
    #[serde(rename = "name")]
    _name: IgnoredAny,
    policy: Map<String, Json>,
    #[serde(borrow)]
    events: Vec<RawEvent<'a>>,
}

/// The steps of one line.
///
/// # Errors
/// What is wrong with it. A vector with one bad event is bad as a whole.
pub(super) fn steps(line: &str) -> Result<Vec<Step>, String> {
    if let Ok(event) = serde_json::from_str::<RawEvent<'_>>(line) {
        return Ok(vec![step(event)?]);
    }
    // The word may also stand in an event's user id; then the event's own error is the better one.
    if line.contains("\"events\"") {
        let vector: RawVector<'_> = serde_json::from_str(line).map_err(|error| readable(&error))?;
        let mut steps = vec![Step::Begin(part(&vector.policy)?)];
        for (index, event) in vector.events.into_iter().enumerate() {
            steps.push(step(event).map_err(|problem| format!("event {}: {problem}", index + 1))?);
        }
        return Ok(steps);
    }
    serde_json::from_str::<RawEvent<'_>>(line).map_err(|error| readable(&error)).and_then(step).map(|step| vec![step])
}

fn step(event: RawEvent<'_>) -> Result<Step, String> {
    let at = event.at.as_i64().filter(|at| (0..=MAX_AT).contains(at));
    let at = at.ok_or_else(|| format!("at: {} is not a whole number of microseconds from 0 to {MAX_AT}", shown(&event.at)))?;
    let subject = Subject::user(&event.user).map_err(|error| format!("user: {error}"))?;
    match (event.policy, event.cost) {
        (Some(_), Some(_)) => Err("an event has a cost or a policy, not both".to_owned()),
        (Some(policy), None) => Ok(Step::Override { subject, part: part(&policy)? }),
        (None, cost) => {
            let cost = cost.unwrap_or(Json::from(1));
            let units = cost.as_u64().filter(|units| *units <= MAX_COST);
            let units = units.ok_or_else(|| format!("cost: {} is not a whole number from 0 to {MAX_COST}", shown(&cost)))?;
            Ok(Step::Request { at, subject, cost: units })
        }
    }
}

fn part(policy: &Map<String, Json>) -> Result<Part, String> {
    part_from_json(policy).map_err(|problem| format!("policy: {problem}"))
}

/// serde's words; the line it names is always 1 here, so only the column is kept.
fn readable(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let cause = text.split(" at line ").next().unwrap_or(&text);
    if error.column() == 0 { cause.to_owned() } else { format!("{cause} at column {}", error.column()) }
}

fn shown(value: &Json) -> String {
    value.to_string().chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn bad(line: &str, problem: &str) {
        let error = steps(line).expect_err("a bad line");
        assert!(error.contains(problem), "{error:?} does not say {problem:?}");
    }

    #[test]
    fn a_cost_is_one_unless_it_is_given() {
        for (line, expected) in
            [(r#"{"at":1,"user":"a"}"#, 1), (r#"{"at":1,"user":"a","cost":0}"#, 0), (r#"{"at":1,"user":"a","cost":7,"expect":{}}"#, 7)]
        {
            let steps = steps(line).expect("a good line");
            assert!(matches!(steps[..], [Step::Request { at: 1, cost, .. }] if cost == expected), "{line}: {steps:?}");
        }
    }

    #[test]
    fn every_mistake_is_named() {
        bad(r#"{"at":1,"user":"a","cost":-1}"#, "cost: -1 is not a whole number from 0 to 1000000000");
        bad(r#"{"at":1,"user":"a","cost":1.5}"#, "cost: 1.5 is not");
        bad(r#"{"at":1,"user":"a","cost":1000000001}"#, "cost: 1000000001 is not");
        bad(r#"{"at":-1,"user":"a"}"#, "at: -1 is not");
        bad(r#"{"at":1.5,"user":"a"}"#, "at: 1.5 is not");
        bad(r#"{"at":1,"user":""}"#, "must not be empty");
        bad(r#"{"at":1,"user":"a","csot":1}"#, "unknown field `csot`");
        bad(r#"{"user":"a"}"#, "missing field `at`");
        bad(r#"{"at":1,"user":"a","policy":{"window_limt":5}}"#, "did you mean window_limit?");
        bad(r#"{"at":1,"user":"a","policy":{"tokens_per_second":0}}"#, "tokens_per_second: 0 is not");
        bad(r#"{"at":1,"user":"a","policy":{"mode":true}}"#, "mode: true is not one of");
        bad(r#"{"at":1,"user":"a","policy":{},"cost":1}"#, "not both");
        bad(r#"{"name":"v","policy":{},"events":[{"at":1,"user":"a"},{"at":1,"user":"a","cost":-2}]}"#, "event 2: cost: -2");
        bad("[1,2]", "");
        bad(r#"{"at":1,"#, "EOF");
    }
}
