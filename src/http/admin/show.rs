//! Calls that look.

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use actix_web::web::Data;
use serde_json::{Map, Value, json};

use super::super::{Api, NO_STORE, Problem, builder};
use super::{About, MOST_ITEMS, SOME_ITEMS, ok, problem};
use crate::identity::Subject;
use crate::limit::{Decision, US, Value as Setting};
use crate::limiter::Described;
use crate::overrides::{Layer, Override, Stored, Target};
use crate::store::Key;
use crate::top::{Kind, MINUTES};

/// How many of the busiest are shown when it is not said.
const SOME_RANKED: usize = 20;

pub(super) async fn one(api: &Data<Api>, target: &Target) -> Result<HttpResponse, Problem> {
    let known = api.limiter.describe(target).await.map_err(problem)?;
    Ok(ok(&described(target, &known)))
}

/// Everything that is set and in force for a target.
pub(super) fn described(target: &Target, described: &Described) -> Value {
    let Described { stored, effective, policy: _, warnings } = described;
    let effective: Map<String, Value> = effective
        .iter()
        .map(|(field, value, source)| (field.to_string(), json!({"value": setting(*value), "source": source.name()})))
        .collect();
    let mut body = stored_body(target, stored);
    body["effective"] = effective.into();
    body["warnings"] = warnings.iter().map(|warning| Value::from(warning.to_string())).collect();
    body
}

fn stored_body(target: &Target, stored: &Stored) -> Value {
    let Override { standing, temporary, note, version } = &stored.own;
    json!({
        "user_id": target.subject.to_string(),
        "route": target.route,
        "version": version,
        "override": layer(standing),
        "temporary": temporary.as_ref().map(|temporary| json!({"fields": layer(&temporary.layer), "until": temporary.until as f64 / US as f64})),
        "note": note,
        "malformed": stored.malformed.iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn layer(layer: &Layer) -> Value {
    let mut fields: Map<String, Value> = layer.part.iter().map(|(field, value)| (field.to_string(), setting(value))).collect();
    fields.extend(layer.tier.as_ref().map(|tier| ("tier".to_owned(), Value::from(&**tier))));
    fields.into()
}

/// Whole numbers without a fraction.
fn setting(value: Setting) -> Value {
    match value {
        Setting::Word(word) => word.into(),
        #[expect(clippy::cast_possible_truncation, reason = "checked to be whole; every field is far below 2^53")]
        Setting::Number(number) if number.fract() == 0.0 => (number as i64).into(),
        Setting::Number(number) => number.into(),
    }
}

pub(super) async fn list(api: &Data<Api>, about: &About) -> Result<HttpResponse, Problem> {
    let limit = about.limit.unwrap_or(SOME_ITEMS).clamp(1, MOST_ITEMS);
    let prefix = match about.prefix.as_deref().unwrap_or("") {
        "" => String::new(),
        reserved if Subject::from_reserved(reserved).is_some() => reserved.to_owned(),
        id => {
            let subject = Subject::user(id).map_err(|error| Problem::new(400, "invalid_prefix", error.to_string()))?;
            Key::new(&subject, None).as_str().trim_start_matches('{').trim_end_matches('}').to_owned()
        }
    };
    let store = api.limiter.overrides().map_err(problem)?.store();
    let page = store.list(&prefix, about.cursor.as_deref(), limit).await.map_err(|error| problem(error.into()))?;
    let items: Vec<Value> = page.items.iter().map(|(target, stored)| stored_body(target, stored)).collect();
    Ok(ok(&json!({"overrides": items, "next_cursor": page.next})))
}

pub(super) async fn state(api: &Data<Api>, target: &Target) -> Result<HttpResponse, Problem> {
    let (known, decision) = api.limiter.state(target).await.map_err(problem)?;
    let mut body = decision_body(&decision);
    body["user_id"] = target.subject.to_string().into();
    body["version"] = known.stored.own.version.into();
    Ok(ok(&body))
}

pub(super) fn decision_body(decision: &Decision) -> Value {
    let quota = decision.quota;
    json!({
        "allowed": decision.admitted,
        "reason": decision.reason.map(crate::limit::Reason::name),
        "binding": quota.map(|quota| quota.binding.name()),
        "limit": quota.map(|quota| quota.limit),
        "remaining": quota.map(|quota| quota.remaining),
        "reset_after": quota.map(|quota| quota.reset_after as f64 / US as f64),
        "breaker": if decision.breaker_open { "open" } else { "closed" },
    })
}

pub(super) async fn audit(api: &Data<Api>, target: &Target, limit: usize) -> Result<HttpResponse, Problem> {
    let records = api.limiter.audit(target, limit).await.map_err(problem)?;
    Ok(ok(&json!({"user_id": target.subject.to_string(), "changes": records})))
}

/// The busiest subjects of the last minutes.
pub(super) async fn top(api: &Data<Api>, about: &About) -> Result<HttpResponse, Problem> {
    let word = about.by.as_deref().unwrap_or("refused");
    let by = Kind::ALL.into_iter().find(|kind| kind.name() == word);
    let by = by.ok_or_else(|| Problem::new(400, "invalid_query", format!("by: must be refused or admitted, not {word:?}")))?;
    let limit = about.limit.unwrap_or(SOME_RANKED).clamp(1, MOST_ITEMS);
    let ranked = api.limiter.top(by, limit).await.map_err(problem)?;
    let subjects: Vec<Value> =
        ranked.iter().map(|one| json!({"user_id": one.subject.to_string(), "refused": one.refused, "admitted": one.admitted})).collect();
    Ok(ok(&json!({"by": word, "minutes": MINUTES, "subjects": subjects})))
}

/// JSON lines: the stored fields of every override, temporary parts with the time at which they end.
pub(super) async fn export(api: &Data<Api>) -> Result<HttpResponse, Problem> {
    let store = api.limiter.overrides().map_err(problem)?.store();
    let (mut lines, mut cursor) = (String::new(), None);
    loop {
        let page = store.list("", cursor.as_deref(), MOST_ITEMS).await.map_err(|error| problem(error.into()))?;
        for (target, stored) in &page.items {
            let fields = stored.own.to_lasting_fields(store.now());
            if !fields.is_empty() {
                lines.push_str(&json!({"target": target.key().as_str(), "fields": fields}).to_string());
                lines.push('\n');
            }
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    let jsonl = HeaderValue::from_static("application/jsonl");
    Ok(builder(200).insert_header((CONTENT_TYPE, jsonl)).insert_header((CACHE_CONTROL, NO_STORE)).body(lines))
}
