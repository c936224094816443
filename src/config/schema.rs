//! The file's JSON Schema: editors complete and check with it. What only the whole can show (layers that do not fit together,
//! names that nobody knows) is beyond it; `weir check-config` knows.

use serde_json::{Map, Value, json};

use super::OnFailure;
use super::compile::{MOST_ROUTES, MOST_TIERS};
use super::pattern;
use crate::limit::{Field, Kind, MAX_COST};

/// What a tier and a route may be called.
const NAME: &str = "^[a-z0-9][a-z0-9_-]{0,63}$";

/// The schema of `limit.yaml`, draft 2020-12.
#[must_use]
pub fn schema() -> Value {
    let part = |about: &str| json!({ "$ref": "#/$defs/part", "description": about });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "limit.yaml of Weir",
        "description": "Limits by user, tier, route and address. Weakest first: built-in, defaults, tier, route, the tier's part for the route, overrides.",
        "type": "object",
        "additionalProperties": false,
        "minProperties": 1,
        "properties": {
            "defaults": part("limits of everybody"),
            "tiers": {
                "description": "limits of users of a tier, by the tier's name",
                "type": "object",
                "maxProperties": MOST_TIERS,
                "propertyNames": { "pattern": NAME },
                "additionalProperties": { "$ref": "#/$defs/tier" },
            },
            "routes": {
                "description": "kinds of requests; the first that matches wins",
                "type": "array",
                "maxItems": MOST_ROUTES,
                "items": { "$ref": "#/$defs/route" },
            },
            "anonymous": object("requests without a user", &json!({
                "shared": part("limits of all anonymous traffic together; without it every address is on its own"),
                "per_address": part("limits of each address; its algorithm is sliding_window unless said otherwise"),
            }), &[]),
            "identity": identity(),
            "store": object("what happens without the store", &json!({ "on_failure": on_failure() }), &[]),
        },
        "$defs": { "part": { "type": "object", "additionalProperties": false, "properties": fields() }, "tier": tier(), "route": route() },
    })
}

/// The properties of a layer, from the table of fields.
fn fields() -> Map<String, Value> {
    let property = |field: Field| {
        let (about, default) = field.about();
        let mut property = match field.kind() {
            Kind::Number { min, max } => json!({ "type": "number", "minimum": min, "maximum": max }),
            Kind::Whole { min, max } => json!({ "type": "integer", "minimum": whole(min), "maximum": whole(max) }),
            Kind::Word(words) => json!({ "enum": words }),
        };
        property["description"] = json!(format!("{about} (built-in: {default})"));
        (field.name().to_owned(), property)
    };
    Field::ALL.into_iter().map(property).collect()
}

/// A whole bound without `.0` behind it.
#[expect(clippy::cast_possible_truncation, reason = "bounds of the field table, at most 1e9")]
const fn whole(bound: f64) -> i64 {
    bound as i64
}

fn tier() -> Value {
    let mut properties = fields();
    properties.insert(
        "routes".to_owned(),
        json!({
            "description": "limits of the tier's users on routes with limits of their own, by the route's name",
            "type": "object",
            "maxProperties": MOST_ROUTES,
            "propertyNames": { "pattern": NAME },
            "additionalProperties": { "$ref": "#/$defs/part" },
        }),
    );
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn route() -> Value {
    let matching = json!({
        "path": {
            "description": "exact, or with *, which stands for any characters, / among them",
            "type": "string", "pattern": "^[/*][^?#\\s]*$", "maxLength": pattern::MOST_BYTES,
        },
        "methods": {
            "description": "methods in capitals; without it all",
            "type": "array", "minItems": 1, "maxItems": 16, "uniqueItems": true, "items": { "type": "string", "pattern": "^[A-Z-]{1,32}$" },
        },
    });
    let properties = json!({
        "name": { "description": "stands in answers, metrics and keys", "type": "string", "pattern": NAME },
        "match": object("which requests", &matching, &["path"]),
        "cost": { "description": "units that a request costs which does not say (built-in: 1)", "type": "integer", "minimum": 1, "maximum": MAX_COST },
        "limits": { "$ref": "#/$defs/part", "description": "with it, even if empty, each user has a bucket of its own for this route" },
        "on_store_failure": on_failure(),
    });
    object("a kind of request", &properties, &["name", "match"])
}

fn identity() -> Value {
    let header = |about: &str| json!({ "description": about, "type": "string", "pattern": "^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}$" });
    let networks = |about: &str| json!({ "description": about, "type": "array", "maxItems": 256, "items": { "type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]{1,3}$" } });
    let properties = json!({
        "trusted_peers": networks("networks (CIDR) that may say who the user is (built-in: loopback)"),
        "trusted_proxies": networks("networks (CIDR) that may say what the client's address is (built-in: loopback)"),
        "api_key_header": header("the header with an API key (built-in: X-API-Key)"),
        "user_id_header": header("the header with a user id (built-in: X-User-ID)"),
        "auth_headers": {
            "description": "headers that say who the user is at the forward-auth door (built-in: none, the address decides)",
            "type": "array", "maxItems": 16, "items": header("the name of a header"),
        },
        "ipv6_prefix": { "description": "bits of an IPv6 address that tell clients apart (built-in: 64)", "type": "integer", "minimum": 32, "maximum": 128 },
    });
    object("who may say who is asking", &properties, &[])
}

fn on_failure() -> Value {
    json!({ "description": "what is answered while the store cannot be asked (built-in: local)", "enum": OnFailure::WORDS })
}

fn object(about: &str, properties: &Value, required: &[&str]) -> Value {
    json!({ "description": about, "type": "object", "additionalProperties": false, "properties": properties, "required": required })
}
