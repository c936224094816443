//! Typed access to the tree. What does not fit is noted and skipped, so that one run finds every mistake.

use super::scalar::{closest, decimal, describe, is_ambiguous, is_null, shown};
use super::tree::{Entry, Node, Place, Value};
use super::{Mistakes, belongs};
use crate::limit::{Field, Kind, Part};

/// Mistakes found so far.
#[derive(Debug, Default)]
pub(in crate::config) struct Reader {
    pub mistakes: Mistakes,
}

/// The keys of one map, each taken at most once; what is left in the end is unknown.
pub(in crate::config) struct Fields<'a> {
    path: String,
    place: Place,
    entries: Vec<&'a Entry>,
    known: Vec<&'static str>,
}

/// A layer, and where each of its values stands.
#[derive(Debug)]
pub(in crate::config) struct Placed {
    pub part: Part,
    /// Whether all that was written is in `part`. If not, what is worked out from it would only confuse.
    pub sound: bool,
    places: Vec<(Field, Place)>,
    /// Of the map itself.
    pub place: Place,
    pub path: String,
}

impl Placed {
    /// Where `field` stands, or else the map.
    pub(in crate::config) fn place_of(&self, field: Field) -> Place {
        self.places.iter().find(|(placed, _)| *placed == field).map_or(self.place, |(_, place)| *place)
    }
}

impl<'a> Fields<'a> {
    /// The path of a key of this map.
    pub(in crate::config) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Where the map begins.
    pub(in crate::config) const fn place(&self) -> Place {
        self.place
    }

    /// Takes the value of `key`, if it is there.
    pub(in crate::config) fn take(&mut self, key: &'static str) -> Option<&'a Entry> {
        self.known.push(key);
        let index = self.entries.iter().position(|entry| entry.key == key)?;
        Some(self.entries.remove(index))
    }

    /// Takes all that is left: the keys are names of the user's own.
    pub(in crate::config) fn take_all(&mut self) -> Vec<&'a Entry> {
        std::mem::take(&mut self.entries)
    }
}

/// The path of `key` below `path`.
fn join(path: &str, key: &str) -> String {
    let key = shown(key);
    if path.is_empty() { key } else { format!("{path}.{key}") }
}

impl Reader {
    pub(in crate::config) fn note(&mut self, place: Place, path: &str, message: impl Into<String>, hint: Option<String>) {
        let mut mistake = place.mistake(path, message);
        mistake.hint = hint;
        self.mistakes.push(mistake);
    }

    /// The map that `node` is; doubled keys are noted and dropped.
    pub(in crate::config) fn map<'a>(&mut self, node: &'a Node, path: &str) -> Option<Fields<'a>> {
        let Value::Map(entries) = &node.value else {
            self.note_wrong(node, path, "keys and values");
            return None;
        };
        let mut fields = Fields { path: path.to_owned(), place: node.place, entries: Vec::new(), known: Vec::new() };
        let mut seen = std::collections::HashMap::with_capacity(entries.len());
        for entry in entries {
            if let Some(line) = seen.get(entry.key.as_str()) {
                let message = format!("the key stands twice, first in line {line}");
                self.note(entry.place, &fields.path(&entry.key), message, Some("keep one of them".to_owned()));
            } else {
                seen.insert(entry.key.as_str(), entry.place.line);
                fields.entries.push(entry);
            }
        }
        Some(fields)
    }

    /// The list that `node` is, of at most `most` values.
    pub(in crate::config) fn list<'a>(&mut self, node: &'a Node, path: &str, most: usize) -> Option<&'a [Node]> {
        let Value::List(nodes) = &node.value else {
            self.note_wrong(node, path, "a list");
            return None;
        };
        if nodes.len() > most {
            self.note(node.place, path, format!("{} entries, at most {most} are taken", nodes.len()), None);
            return None;
        }
        Some(nodes)
    }

    /// Notes what was not taken.
    pub(in crate::config) fn finish(&mut self, fields: &Fields<'_>) {
        for entry in &fields.entries {
            if self.mistakes.is_full() {
                self.note(entry.place, "", "", None);
                return;
            }
            let slip = || closest(&entry.key, &fields.known).map(|known| format!("did you mean {known}?"));
            let hint = belongs(&entry.key).or_else(slip);
            let hint = hint.unwrap_or_else(|| format!("known here: {}", fields.known.join(", ")));
            self.note(entry.place, &fields.path(&entry.key), "unknown key", Some(hint));
        }
    }

    /// The layer that `fields` is, and nothing else.
    pub(in crate::config) fn part(&mut self, fields: &mut Fields<'_>) -> Placed {
        let before = self.mistakes.count();
        let mut placed = Placed { part: Part::default(), sound: true, places: Vec::new(), place: fields.place, path: fields.path.clone() };
        for field in Field::ALL {
            if let Some(entry) = fields.take(field.name()) {
                placed.places.push((field, entry.node.place));
                self.field(&mut placed.part, field, &entry.node, &fields.path(field.name()));
            }
        }
        self.finish(fields);
        placed.sound = self.mistakes.count() == before;
        placed
    }

    /// The layer at `node`.
    pub(in crate::config) fn part_at(&mut self, node: &Node, path: &str) -> Option<Placed> {
        let mut fields = self.map(node, path)?;
        Some(self.part(&mut fields))
    }

    fn field(&mut self, part: &mut Part, field: Field, node: &Node, path: &str) {
        match field.kind() {
            kind @ Kind::Word(words) => {
                let Some(text) = self.text(node, path, &kind.to_string()) else { return };
                if let Err(problem) = part.set_word(field, text) {
                    let slip = closest(text, words).map(|word| format!("did you mean {word}?"));
                    self.note(node.place, path, format!("{} is not {}", problem.value, problem.expected), problem.hint.or(slip));
                }
            }
            kind @ (Kind::Number { .. } | Kind::Whole { .. }) => {
                let Some(number) = self.number(node, path, &kind.to_string()) else { return };
                if let Err(problem) = part.set_number(field, number) {
                    self.note(node.place, path, format!("{} is not {}", problem.value, problem.expected), problem.hint);
                }
            }
        }
    }

    /// The number that `node` is; in what range it must lie is `expected`, for people.
    fn number(&mut self, node: &Node, path: &str, expected: &str) -> Option<f64> {
        let number = if let Value::Plain(text) = &node.value { decimal(text) } else { None };
        if number.is_none() {
            self.note_wrong(node, path, expected);
        }
        number
    }

    /// The whole number from `min` to `max` that `node` is.
    pub(in crate::config) fn whole(&mut self, node: &Node, path: &str, min: u32, max: u32) -> Option<u32> {
        let kind = Kind::Whole { min: f64::from(min), max: f64::from(max) };
        let number = self.number(node, path, &kind.to_string())?;
        if number.fract() == 0.0 && (f64::from(min)..=f64::from(max)).contains(&number) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just seen to be whole and within the range")]
            return Some(number as u32);
        }
        self.note(node.place, path, format!("{number} is not {kind}"), None);
        None
    }

    /// The text that `node` is, in quotes or without.
    pub(in crate::config) fn text<'a>(&mut self, node: &'a Node, path: &str, expected: &str) -> Option<&'a str> {
        match &node.value {
            Value::Plain(text) | Value::Quoted(text) if !is_null(&node.value) => Some(text),
            _ => {
                self.note_wrong(node, path, expected);
                None
            }
        }
    }

    /// Which of `words` the text at `node` is.
    pub(in crate::config) fn word<'w>(&mut self, node: &Node, path: &str, words: &'w [&'w str]) -> Option<&'w str> {
        let expected = format!("one of {}", words.join(", "));
        let text = self.text(node, path, &expected)?;
        let known = words.iter().find(|word| **word == text).copied();
        if known.is_none() {
            let slip = closest(text, words).map(|word| format!("did you mean {word}?"));
            self.note(node.place, path, format!("{} is not {expected}", describe(&node.value)), slip);
        }
        known
    }

    /// Whether `text` may name a tier or a route: `[a-z0-9][a-z0-9_-]{0,63}`, which may also be a label and a part of a key.
    pub(in crate::config) fn is_name(&mut self, text: &str, quoted: bool, place: Place, path: &str) -> bool {
        let bytes = text.as_bytes();
        let plain = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let fits =
            bytes.len() <= 64 && bytes.first().is_some_and(plain) && bytes.iter().all(|byte| plain(byte) || matches!(byte, b'_' | b'-'));
        if !fits {
            let hint = "a name has 1 to 64 of a-z 0-9 _ -, and begins with a letter or digit".to_owned();
            self.note(place, path, format!("{} is not a name", shown(text)), Some(hint));
        } else if !quoted && is_ambiguous(text) {
            let message = format!("{text} is a number or a truth value to some readers of YAML");
            self.note(place, path, message, Some(format!("write it in quotes: \"{text}\"")));
            return false;
        }
        fits
    }

    /// Notes a value of the wrong type, with the hint that its kind of wrong deserves.
    pub(in crate::config) fn note_wrong(&mut self, node: &Node, path: &str, expected: &str) {
        let hint = match &node.value {
            Value::Refused => return,
            value if is_null(value) => Some("leave the key out to inherit the value".to_owned()),
            Value::Plain(text) if expected == "a list" => Some(format!("write it as a list: [{}]", shown(text))),
            Value::Plain(_) if expected.contains("number") => Some("numbers are plain decimals like 12 or 0.5".to_owned()),
            Value::Quoted(text) if decimal(text).is_some() => Some("take the quotes away".to_owned()),
            _ => None,
        };
        self.note(node.place, path, format!("expected {expected}, found {}", describe(&node.value)), hint);
    }
}
