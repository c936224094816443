//! Calls that change something.

use actix_web::HttpResponse;
use actix_web::web::Data;
use serde_json::{Map, Value, json};

use super::super::{Api, Problem};
use super::{ok, problem, show};
use crate::config::part_from_json;
use crate::limit::{Field, Micros, US};
use crate::limiter::Order;
use crate::overrides::{Change, Fields, Set, Stored, Target};

/// The longest that a temporary change may last: a year.
const LONGEST_SECONDS: f64 = 365.0 * 86_400.0;
/// The longest note or reason, in characters.
const LONGEST_TEXT: usize = 500;

/// What a body asks for.
pub(super) struct Asked {
    pub change: Change,
    pub reason: Option<String>,
    pub refill: bool,
}

/// Reads a change. Unknown fields are errors; nothing is written before all of it is understood.
pub(super) fn parse(mut fields: Map<String, Value>, replace: bool) -> Result<Asked, Problem> {
    let invalid = |detail: String| Problem::new(400, "invalid_limits", detail);
    let mut text = |name: &str| match fields.remove(name) {
        None => Ok(None),
        Some(Value::Null) => Ok(Some(None)),
        Some(Value::String(text)) if text.chars().count() <= LONGEST_TEXT && !text.chars().any(char::is_control) => Ok(Some(Some(text))),
        Some(_) => Err(invalid(format!("{name}: must be a text of at most {LONGEST_TEXT} characters on one line"))),
    };
    let (reason, note, tier) = (text("reason")?.flatten(), text("note")?, text("tier")?);
    let refill = match fields.remove("refill") {
        None => false,
        Some(Value::Bool(refill)) => refill,
        Some(_) => return Err(invalid("refill: must be true or false".to_owned())),
    };
    let expires_in = fields.remove("expires_in_seconds").map(|value| expiry(&value)).transpose().map_err(invalid)?;
    if replace && expires_in.is_some() {
        return Err(invalid("expires_in_seconds: a whole override is not temporary; POST lays fields over it for a while".to_owned()));
    }
    let mut sets: Vec<Set> = tier.into_iter().map(|tier| Set::Tier(tier.map(Into::into))).collect();
    let given_back: Vec<String> = fields.iter().filter(|(_, value)| value.is_null()).map(|(name, _)| name.clone()).collect();
    for name in given_back {
        let field = Field::from_name(&name).ok_or_else(|| invalid(format!("{name}: unknown field")))?;
        fields.remove(&name);
        sets.push(Set::Policy(field, None));
    }
    let part = part_from_json(&fields).map_err(invalid)?;
    sets.extend(part.iter().map(|(field, value)| Set::Policy(field, Some(value))));
    let note = note.map(|note| note.map(Into::into));
    let change =
        if replace { Change::Replace { sets, temporary: None, note: note.flatten() } } else { Change::Patch { sets, expires_in, note } };
    Ok(Asked { change, reason, refill })
}

fn expiry(value: &Value) -> Result<Micros, String> {
    let seconds = value.as_f64().filter(|seconds| *seconds > 0.0 && *seconds <= LONGEST_SECONDS);
    let seconds = seconds.ok_or_else(|| format!("expires_in_seconds: must be a number above 0, at most {LONGEST_SECONDS}"))?;
    #[expect(clippy::cast_possible_truncation, reason = "at most a year of microseconds")]
    Ok((seconds * US as f64) as Micros)
}

pub(super) async fn make(api: &Data<Api>, target: &Target, change: &Change, order: &Order, refill: bool) -> Result<HttpResponse, Problem> {
    let (described, written) = api.limiter.change(target, change, order).await.map_err(problem)?;
    if refill {
        api.limiter.reset(target).await.map_err(problem)?;
    }
    api.metrics.admin_write();
    let mut body = show::described(target, &described);
    body["status"] = if *change == Change::Delete { "deleted" } else { "updated" }.into();
    body["durable"] = json!(written.durable);
    Ok(ok(&body))
}

/// All lines are checked before the first is written. Repeatable: a line replaces what is there.
pub(super) async fn import(api: &Data<Api>, bytes: &[u8], order: &Order) -> Result<HttpResponse, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|_| Problem::new(400, "invalid_import", "the body is not UTF-8"))?;
    let mut changes = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let bad = |why: String| Problem::new(400, "invalid_import", format!("line {}: {why}; nothing was changed", index + 1));
        changes.push((index + 1, import_line(line).map_err(bad)?));
    }
    let order = Order { if_match: None, ..order.clone() };
    for (target, change) in changes.iter().map(|(_, change)| change) {
        api.limiter
            .try_change(target, change)
            .map_err(|error| Problem::new(400, "invalid_import", format!("{}: {error}; nothing was changed", target.subject)))?;
    }
    for (done, (line, (target, change))) in changes.iter().enumerate() {
        if let Err(error) = api.limiter.change(target, change, &order).await {
            let detail = format!("line {line}: {error}; the {done} lines before it were written; the import can be repeated");
            return Err(Problem { detail: detail.into(), ..problem(error) });
        }
    }
    api.metrics.admin_write();
    Ok(ok(&json!({"status": "imported", "lines": changes.len()})))
}

/// A line of an export: whose, and the stored fields.
fn import_line(line: &str) -> Result<(Target, Change), String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("not JSON: {error}"))?;
    let target = value["target"].as_str().and_then(Target::from_key).ok_or("no target")?;
    let fields: Fields = serde_json::from_value(value["fields"].clone()).map_err(|error| format!("no fields: {error}"))?;
    let stored = Stored::from_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if let Some(malformed) = stored.malformed.first() {
        return Err(malformed.to_string());
    }
    let own = stored.own;
    let mut sets: Vec<Set> = own.standing.part.iter().map(|(field, value)| Set::Policy(field, Some(value))).collect();
    sets.extend(own.standing.tier.map(|tier| Set::Tier(Some(tier))));
    Ok((target, Change::Replace { sets, temporary: own.temporary.map(Box::new), note: own.note }))
}
