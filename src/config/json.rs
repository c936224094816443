//! Policy fields in JSON: a trace's `policy`, a body of the admin API.

use serde_json::{Map, Value};

use super::raw::closest;
use crate::limit::{Field, Part};

/// The fields of `map` as a layer.
///
/// # Errors
/// The first field that is unknown or does not take its value, as a sentence with the field's name.
pub fn part_from_json(map: &Map<String, Value>) -> Result<Part, String> {
    let mut part = Part::default();
    for (name, value) in map {
        let field = Field::from_name(name).ok_or_else(|| unknown(name))?;
        let set = match value {
            Value::String(word) => part.set_word(field, word),
            Value::Number(number) => part.set_number(field, number.as_f64().unwrap_or(f64::NAN)),
            other => {
                let shown: String = other.to_string().chars().take(40).collect();
                return Err(format!("{field}: {shown} is not {}", field.kind()));
            }
        };
        set.map_err(|problem| problem.to_string())?;
    }
    Ok(part)
}

fn unknown(name: &str) -> String {
    let known = Field::ALL.map(Field::name);
    let shown: String = name.chars().take(60).collect();
    match closest(name, &known) {
        Some(likely) => format!("{shown}: unknown field; did you mean {likely}?"),
        None => format!("{shown}: unknown field; known are {}", known.join(", ")),
    }
}
