//! The bodies.

use serde_json::Value;
use utoipa::openapi::schema::{AdditionalProperties, AnyOfBuilder, ArrayBuilder, ObjectBuilder, SchemaType, Type};
use utoipa::openapi::{RefOr, Schema};

use super::super::batch::MOST_CHECKS;
use super::named;
use crate::limit::{Field, Kind, MAX_COST};

/// The longest user id, in characters of one byte.
const LONGEST_ID: usize = 256;

fn typed(kind: impl Into<SchemaType>) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(kind)
}

pub(super) fn text() -> ObjectBuilder {
    typed(Type::String)
}

/// An id of a user: no control characters, which the pattern says in the words of ECMA.
pub(super) fn id() -> ObjectBuilder {
    // Bytes count, and characters are what a schema can say: of those that take several, fewer fit.
    text().min_length(Some(1)).max_length(Some(LONGEST_ID)).pattern(Some("^[^\\u0000-\\u001f\\u007f-\\u009f]+$"))
}

pub(super) fn whole() -> ObjectBuilder {
    typed(Type::Integer).minimum(Some(0_u64))
}

fn number() -> ObjectBuilder {
    typed(Type::Number)
}

fn truth() -> ObjectBuilder {
    typed(Type::Boolean)
}

fn or_null(kind: Type) -> ObjectBuilder {
    typed(SchemaType::from_iter([kind, Type::Null]))
}

fn words(words: &[&str]) -> ObjectBuilder {
    text().enum_values(Some(words.iter().copied()))
}

fn strict() -> ObjectBuilder {
    ObjectBuilder::new().additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)))
}

pub(super) fn all() -> Vec<(&'static str, RefOr<Schema>)> {
    let object = ObjectBuilder::new;
    vec![
        ("Check", check().into()),
        ("Explain", explain().into()),
        ("Admission", admission().into()),
        ("Problem", problem().into()),
        (
            "Batch",
            strict().property("checks", ArrayBuilder::new().items(any_check()).max_items(Some(MOST_CHECKS))).required("checks").into(),
        ),
        ("BatchAnswers", object().property("answers", ArrayBuilder::new().items(either())).required("answers").into()),
        ("Status", object().property("status", text()).required("status").into()),
        ("Override", patch().property("refill", truth().description(Some("also fill the bucket"))).into()),
        (
            "Set",
            object().property("version", whole()).property("override", object()).property("effective", object()).required("version").into(),
        ),
        ("Sets", object().property("overrides", ArrayBuilder::new().items(object())).required("overrides").into()),
        ("State", object().property("allowed", truth()).property("remaining", or_null(Type::Integer)).required("allowed").into()),
        ("Explained", object().property("subject", text()).property("peek", named("State")).required("subject").into()),
        ("Changes", object().property("changes", ArrayBuilder::new().items(object())).required("changes").into()),
        ("Found", AnyOfBuilder::new().item(named("Set")).item(named("Sets")).into()),
        ("Top", object().into()),
        ("Lines", text().into()),
    ]
}

fn either() -> AnyOfBuilder {
    AnyOfBuilder::new().item(named("Admission")).item(named("Problem"))
}

fn check() -> ObjectBuilder {
    let address = AnyOfBuilder::new().item(text().format(Some(known("ipv4")))).item(text().format(Some(known("ipv6"))));
    strict()
        .description(Some("Everything may be left out."))
        .property(
            "user",
            id().schema_type(SchemaType::from_iter([Type::String, Type::Null])).description(Some("only trusted peers may say so")),
        )
        .property(
            "cost",
            whole().maximum(Some(MAX_COST)).description(Some("0 asks without taking; what the route costs, else 1, by default")),
        )
        .property("path", or_null(Type::String).description(Some("what is asked for, to find its route")))
        .property("method", or_null(Type::String))
        .property("address", address.item(typed(Type::Null)))
}

/// A check, and what some other request looked like when it came in.
fn explain() -> ObjectBuilder {
    let lines = AnyOfBuilder::new().item(text()).item(ArrayBuilder::new().items(text()));
    check()
        .property("peer", text().description(Some("the other end of the connection: an address, or unix")))
        .property(
            "headers",
            ObjectBuilder::new()
                .additional_properties(Some(RefOr::T(Schema::from(lines))))
                .description(Some("names, and a line or a list of lines")),
        )
        .property("door", text().enum_values(Some(["check", "auth"])))
}

/// A bad item of a batch is that item's error: to the batch, every item is one.
fn any_check() -> AnyOfBuilder {
    AnyOfBuilder::new().item(named("Check")).item(typed(SchemaType::AnyValue))
}

fn known(format: &str) -> utoipa::openapi::SchemaFormat {
    utoipa::openapi::SchemaFormat::Custom(format.to_owned())
}

fn admission() -> ObjectBuilder {
    let object = ObjectBuilder::new()
        .property("allowed", truth())
        .property("subject", text())
        .property("limit", or_null(Type::Integer).description(Some("size of the limit that binds")))
        .property("remaining", or_null(Type::Integer))
        .property("reset_after", or_null(Type::Number).description(Some("seconds")))
        .property("retry_after", or_null(Type::Number).description(Some("seconds; null: waiting does not help")))
        .property("breaker", words(&["closed", "open"]))
        .property("reason", or_null(Type::String))
        .property("would_refuse", truth().description(Some("shadow mode: enforced, this would be a refusal")))
        .property("route", text())
        .property("degraded", truth().description(Some("the store could not say, and something else decided")));
    ["allowed", "subject", "limit", "remaining", "reset_after", "retry_after", "breaker", "reason"]
        .into_iter()
        .fold(object, ObjectBuilder::required)
}

fn problem() -> ObjectBuilder {
    let object = ObjectBuilder::new()
        .description(Some("RFC 9457; a refusal also says by which limit, and when to come back."))
        .property("type", text())
        .property("title", text())
        .property("status", whole())
        .property("detail", text())
        .property("code", text().description(Some("what it is, for programs: one word")))
        .property("reason", text())
        .property("retry_after", or_null(Type::Number).description(Some("seconds")))
        .property("retry_after_ms", or_null(Type::Integer))
        .property("limit", or_null(Type::Integer))
        .property("remaining", or_null(Type::Integer))
        .property("window", number())
        .property("violated-policies", ArrayBuilder::new().items(text()));
    ["type", "title", "status", "detail", "code"].into_iter().fold(object, ObjectBuilder::required)
}

/// Every field of a policy as the code has it; null gives it back.
fn patch() -> ObjectBuilder {
    let fields = Field::ALL.into_iter().fold(strict(), |object, field| {
        let schema = match field.kind() {
            Kind::Number { min, max } => or_null(Type::Number).minimum(Some(min)).maximum(Some(max)),
            Kind::Whole { min, max } => or_null(Type::Integer).minimum(Some(min)).maximum(Some(max)),
            Kind::Word(words) => {
                let values = words.iter().map(|word| Value::from(*word)).chain([Value::Null]);
                or_null(Type::String).enum_values(Some(values))
            }
        };
        object.property(field.name(), schema.description(Some(field.about().0)))
    });
    let line = || or_null(Type::String).max_length(Some(500));
    fields
        .property("user_id", id())
        .property("subject", text())
        .property("api_key", text())
        .property("tier", line())
        .property("note", line())
        .property("reason", line())
        .property("expires_in_seconds", number().exclusive_minimum(Some(0_u64)).maximum(Some(31_536_000_u64)))
}
