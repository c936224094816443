//! Typed access to the tree. What does not fit is noted and skipped, so that one run finds every mistake.

use super::Mistake;
use super::tree::{Entry, Node, Place, Value};
use crate::limit::{Field, Kind, Part};

/// Mistakes found so far.
#[derive(Debug, Default)]
pub(in crate::config) struct Reader {
    pub mistakes: Vec<Mistake>,
}

/// The keys of one map, each taken at most once; what is left in the end is unknown.
pub(in crate::config) struct Fields<'a> {
    path: String,
    place: Place,
    entries: Vec<&'a Entry>,
    known: Vec<&'static str>,
}

impl<'a> Fields<'a> {
    /// The path of a key of this map.
    pub(in crate::config) fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// Where the map begins.
    pub(in crate::config) fn place(&self) -> Place {
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

impl Reader {
    pub(in crate::config) fn note(&mut self, place: Place, path: &str, message: impl Into<String>, hint: Option<String>) {
        let mut mistake = place.mistake(path, message);
        mistake.hint = hint;
        self.mistakes.push(mistake);
    }

    /// The map that `node` is; doubled keys are noted and dropped.
    pub(in crate::config) fn map<'a>(&mut self, node: &'a Node, path: &str) -> Option<Fields<'a>> {
        let Value::Map(entries) = &node.value else {
            self.note(node.place, path, format!("expected keys and values, found {}", describe(&node.value)), None);
            return None;
        };
        let mut fields = Fields { path: path.to_owned(), place: node.place, entries: Vec::new(), known: Vec::new() };
        for entry in entries {
            if let Some(first) = fields.entries.iter().find(|first| first.key == entry.key) {
                let message = format!("the key stands twice, first in line {}", first.place.line);
                let path = fields.path(&entry.key);
                self.note(entry.place, &path, message, Some("keep one of them".to_owned()));
            } else {
                fields.entries.push(entry);
            }
        }
        Some(fields)
    }

    /// Notes what was not taken. `elsewhere` tells where a key belongs that is known at another level.
    pub(in crate::config) fn finish(&mut self, fields: &Fields<'_>, elsewhere: impl Fn(&str) -> Option<String>) {
        for entry in &fields.entries {
            let hint = elsewhere(&entry.key).or_else(|| closest(&entry.key, &fields.known).map(|known| format!("did you mean {known}?")));
            let hint = hint.unwrap_or_else(|| format!("known here: {}", fields.known.join(", ")));
            self.note(entry.place, &fields.path(&entry.key), "unknown key", Some(hint));
        }
    }

    /// The policy fields among `fields`.
    pub(in crate::config) fn part(&mut self, fields: &mut Fields<'_>) -> Part {
        let mut part = Part::default();
        for field in Field::ALL {
            if let Some(entry) = fields.take(field.name()) {
                let path = fields.path(field.name());
                self.field(&mut part, field, &entry.node, &path);
            }
        }
        part
    }

    fn field(&mut self, part: &mut Part, field: Field, node: &Node, path: &str) {
        let kind = field.kind();
        let set = match (&node.value, kind) {
            (Value::Plain(text) | Value::Quoted(text), Kind::Word(_)) if !is_null(&node.value) => part.set_word(field, text),
            (Value::Plain(text), Kind::Number { .. } | Kind::Whole { .. }) => match decimal(text) {
                Some(number) => part.set_number(field, number),
                None => return self.note_wrong(node, path, &kind.to_string()),
            },
            _ => return self.note_wrong(node, path, &kind.to_string()),
        };
        if let Err(problem) = set {
            let closest = match kind {
                Kind::Word(words) => closest(problem.value.trim_matches('"'), words).map(|word| format!("did you mean {word}?")),
                Kind::Number { .. } | Kind::Whole { .. } => None,
            };
            self.note(node.place, path, format!("{} is not {}", problem.value, problem.expected), problem.hint.or(closest));
        }
    }

    /// A value of the wrong type, with the hint that its kind of wrong deserves.
    fn note_wrong(&mut self, node: &Node, path: &str, expected: &str) {
        let hint = match &node.value {
            value if is_null(value) => "leave the key out to inherit the value",
            Value::Plain(_) => "numbers are plain decimals like 12 or 0.5",
            Value::Quoted(text) if decimal(text).is_some() => "take the quotes away",
            _ => return self.note(node.place, path, format!("expected {expected}, found {}", describe(&node.value)), None),
        };
        self.note(node.place, path, format!("expected {expected}, found {}", describe(&node.value)), Some(hint.to_owned()));
    }
}

/// A plain decimal: digits, perhaps a sign and a fraction; no exponent, no leading zero, no underscore, no other base.
fn decimal(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').map_or((unsigned, None), |(whole, fraction)| (whole, Some(fraction)));
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let well_formed = digits(whole) && (whole == "0" || !whole.starts_with('0')) && fraction.is_none_or(digits);
    if well_formed { text.parse().ok() } else { None }
}

fn is_null(value: &Value) -> bool {
    matches!(value, Value::Plain(text) if matches!(text.as_str(), "" | "~" | "null" | "Null" | "NULL"))
}

fn describe(value: &Value) -> String {
    match value {
        value if is_null(value) => "nothing".to_owned(),
        Value::Plain(text) => shortened(text),
        Value::Quoted(text) => format!("the text {:?}", shortened(text)),
        Value::Map(_) => "keys and values".to_owned(),
        Value::List => "a list".to_owned(),
    }
}

fn shortened(text: &str) -> String {
    const MOST: usize = 60;
    if text.chars().count() <= MOST { text.to_owned() } else { text.chars().take(MOST).chain(['…']).collect() }
}

/// The known word that `word` is most likely a slip of.
pub(in crate::config) fn closest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word = shortened(word).to_lowercase();
    let (best, likeness) = known.iter().map(|known| (*known, likeness(&word, known))).max_by(|(_, a), (_, b)| a.total_cmp(b))?;
    (likeness > 0.8).then_some(best)
}

/// How alike two words are, 0 … 1; a slip of the last part of a longer name (`capcity` of `bucket_capacity`) is nearly as good.
fn likeness(word: &str, known: &str) -> f64 {
    let last = known.rsplit('_').next().unwrap_or(known);
    strsim::jaro_winkler(word, known).max(0.95 * strsim::jaro_winkler(word, last))
}
