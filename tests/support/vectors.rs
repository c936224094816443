//! The vectors in `tests/vectors/`: traces with the right answers.

use serde_json::{Map, Value as Json};
use weir::limit::{Decision, Field, Micros, Part, Policy, Units};

pub struct Vector {
    pub name: String,
    pub policy: Part,
    pub events: Vec<Event>,
}

pub struct Event {
    pub at: Micros,
    pub user: String,
    pub what: What,
}

pub enum What {
    /// A request of this cost, and what it must answer.
    Request(Units, Map<String, Json>),
    /// The user's override from now on.
    Policy(Part),
}

/// All vectors, read from the repository.
pub fn all() -> Vec<Vector> {
    ["named.jsonl", "random.jsonl"]
        .iter()
        .flat_map(|file| {
            let path = format!("{}/tests/vectors/{file}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
            text.lines().map(|line| vector(&serde_json::from_str(line).expect("a vector is JSON"))).collect::<Vec<_>>()
        })
        .collect()
}

/// What `decision` says, as the fields of `expect`.
pub fn answer(decision: &Decision) -> Map<String, Json> {
    let quota = decision.quota;
    let json = serde_json::json!({
        "allowed": decision.admitted,
        "reason": decision.reason.map(weir::limit::Reason::name),
        "retry_after_us": decision.retry_after.micros(),
        "limit": quota.map(|quota| quota.limit),
        "remaining": quota.map(|quota| quota.remaining),
        "reset_after_us": quota.map(|quota| quota.reset_after),
        "breaker_open": decision.breaker_open,
    });
    json.as_object().expect("an object").clone()
}

/// Every expected field equals the answer's.
#[track_caller]
pub fn check(vector: &Vector, index: usize, event: &Event, expected: &Map<String, Json>, decision: &Decision) {
    let answer = answer(decision);
    for (field, value) in expected {
        assert_eq!(
            &answer[field], value,
            "{:?}, event {index} at {} of {}: {field}; all of it: {answer:?}, expected {expected:?}",
            vector.name, event.at, event.user
        );
    }
}

/// The policy of a user: the vector's, and over it the user's own.
pub fn compile(base: &Part, own: Option<&Part>) -> Policy {
    let mut merged = base.clone();
    if let Some(own) = own {
        merged.lay_over(own);
    }
    Policy::compile(&merged).expect("vectors hold valid policies")
}

fn vector(json: &Json) -> Vector {
    Vector {
        name: json["name"].as_str().expect("a name").to_owned(),
        policy: part(&json["policy"]),
        events: json["events"].as_array().expect("events").iter().map(event).collect(),
    }
}

fn event(json: &Json) -> Event {
    let what = match json.get("policy") {
        Some(policy) => What::Policy(part(policy)),
        None => What::Request(json["cost"].as_u64().expect("a cost"), json["expect"].as_object().expect("expect").clone()),
    };
    Event { at: json["at"].as_i64().expect("at"), user: json["user"].as_str().expect("user").to_owned(), what }
}

fn part(json: &Json) -> Part {
    let mut part = Part::default();
    for (name, value) in json.as_object().expect("a policy is an object") {
        let field = Field::from_name(name).unwrap_or_else(|| panic!("unknown field {name}"));
        match value {
            Json::String(word) => part.set_word(field, word),
            value => part.set_number(field, value.as_f64().expect("a number")),
        }
        .expect("vectors hold valid policies");
    }
    part
}
