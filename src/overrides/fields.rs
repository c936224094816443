//! An override as it is stored: a flat map of text, which people also read and edit with `redis-cli`.

use std::collections::BTreeMap;
use std::fmt;

use super::{Layer, Override, Stored, Temporary};
use crate::limit::{Field, Micros, Part};
use crate::store::Found;

const TEMPORARY: &str = "temporary.";
const UNTIL: &str = "temporary_until";
const VERSION: &str = "version";
const NOTE: &str = "note";
const TIER: &str = "tier";

/// Names and values.
pub type Fields = BTreeMap<String, String>;

/// The largest number that every part of this, scripts in Redis too, holds exactly.
const MOST_EXACT: u64 = (1 << 53) - 1;

/// A stored field that could not be read; what is inherited holds for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed {
    /// Its name, cut short.
    pub field: String,
    /// What is wrong.
    pub why: String,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl Override {
    /// What is set at `now`, as it is stored, without the version: what may be set again elsewhere.
    #[must_use]
    pub fn to_lasting_fields(&self, now: Micros) -> Fields {
        let temporary = self.temporary.clone().filter(|temporary| now < temporary.until);
        let until = temporary.as_ref().map(|temporary| (UNTIL.to_owned(), temporary.until.to_string()));
        let mut fields = Self { temporary, ..self.clone() }.to_fields();
        fields.extend(until);
        fields
    }

    /// What is set, as it is stored, without the version and without the end of the temporary part.
    #[must_use]
    pub fn to_fields(&self) -> Fields {
        let mut fields = Fields::new();
        put(&mut fields, "", &self.standing);
        if let Some(temporary) = &self.temporary {
            put(&mut fields, TEMPORARY, &temporary.layer);
        }
        if let Some(note) = &self.note {
            fields.insert(NOTE.to_owned(), note.to_string());
        }
        fields
    }
}

fn put(fields: &mut Fields, before: &str, layer: &Layer) {
    for (field, value) in layer.part.iter() {
        fields.insert(format!("{before}{field}"), value.to_string());
    }
    if let Some(tier) = &layer.tier {
        fields.insert(format!("{before}{TIER}"), tier.to_string());
    }
}

impl Stored {
    /// Reads what was found where an override may be. A key of another type is nothing of ours: named, and worth nothing.
    #[must_use]
    pub fn from_found(found: &Found) -> Self {
        match found {
            Found::Fields(fields) => Self::from_fields(fields.iter().map(|(name, value)| (name.as_str(), value.as_str()))),
            Found::WrongType => {
                let malformed = vec![Malformed { field: "(the key)".to_owned(), why: "is of another type than a hash".to_owned() }];
                Self { malformed, ..Self::default() }
            }
        }
    }

    /// Whether something is set, but not through Weir: it has no version.
    #[must_use]
    pub fn is_made_by_hand(&self) -> bool {
        !self.own.is_empty() && self.own.version == 0
    }

    /// Reads what is stored, field by field: one that cannot be read is named and left out.
    pub fn from_fields<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut stored = Self::default();
        let (mut temporary, mut until) = (Layer::default(), None);
        for (name, text) in fields {
            let read = match name {
                VERSION => whole(text).map(|version| stored.own.version = version),
                UNTIL => whole(text).map(|at| until = Micros::try_from(at).ok()),
                NOTE => {
                    stored.own.note = Some(text.into());
                    Ok(())
                }
                _ => match name.strip_prefix(TEMPORARY) {
                    Some(name) => set(&mut temporary, name, text),
                    None => set(&mut stored.own.standing, name, text),
                },
            };
            if let Err(why) = read {
                let field = name.chars().take(60).collect();
                stored.malformed.push(Malformed { field, why });
            }
        }
        match until {
            Some(until) => stored.own.temporary = Some(Temporary { layer: temporary, until }),
            None if temporary.is_empty() => {}
            None => stored
                .malformed
                .push(Malformed { field: UNTIL.to_owned(), why: "missing: the temporary part counts for nothing".to_owned() }),
        }
        stored
    }
}

fn set(layer: &mut Layer, name: &str, text: &str) -> Result<(), String> {
    if name == TIER {
        layer.tier = Some(text.into());
        return Ok(());
    }
    let field = Field::from_name(name).ok_or("unknown field")?;
    let mut part = Part::default();
    part.set_text(field, text).map_err(|problem| problem.to_string())?;
    layer.part.lay_over(&part);
    Ok(())
}

fn whole(text: &str) -> Result<u64, String> {
    let plain = text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| plain && *number <= MOST_EXACT);
    number.ok_or_else(|| format!("{:?} is not a whole number", text.chars().take(60).collect::<String>()))
}
