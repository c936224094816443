//! YAML text as a tree of values with their places.

use saphyr_parser::{Event, Parser, ScalarStyle, Span, StrInput};

use super::scalar::is_null;
use super::{Mistake, Mistakes};

/// No limit file nests deeper.
const MOST_DEPTH: usize = 16;
/// More values than any limit file has; together with the size of the file this bounds the tree.
const MOST_NODES: usize = 100_000;

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Place {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Place {
    const START: Self = Self { line: 1, column: 1 };

    fn of(span: Span) -> Self {
        Self { line: span.start.line(), column: span.start.col() + 1 }
    }

    pub(in crate::config) fn mistake(self, path: &str, message: impl Into<String>) -> Mistake {
        Mistake { line: self.line, column: self.column, path: path.to_owned(), message: message.into(), hint: None }
    }
}

/// A value and its place.
#[derive(Debug, Clone)]
pub(in crate::config) struct Node {
    pub place: Place,
    pub value: Value,
}

/// What a value is.
#[derive(Debug, Clone)]
pub(in crate::config) enum Value {
    /// A word or number without quotes.
    Plain(String),
    /// Text in quotes, or a block.
    Quoted(String),
    /// Keys and values as written, doubled keys included.
    Map(Vec<Entry>),
    /// A list.
    List(Vec<Node>),
    /// Something whose mistake is noted already.
    Refused,
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(in crate::config) struct Entry {
    pub key: String,
    /// Whether the key stands in quotes.
    pub quoted: bool,
    pub place: Place,
    pub node: Node,
}

/// Reads `text` as one YAML document; what limit files do without (anchors, aliases, tags, a second document) is noted in
/// `mistakes`, and reading goes on.
///
/// # Errors
/// What ends the reading: not YAML, nothing in it, or more of it than can be meant.
pub(in crate::config) fn parse(text: &str, mistakes: &mut Mistakes) -> Result<Node, Mistake> {
    if let Some(at) = text.find('\0') {
        // To the parser it would be the end of the file. A machine that lost its power leaves such files.
        let line = text[..at].matches('\n').count() + 1;
        let column = text[..at].chars().rev().take_while(|one| *one != '\n').count() + 1;
        let mut mistake = Place { line, column }.mistake("", "a NUL byte");
        mistake.hint = Some("the file is damaged: write it again".to_owned());
        return Err(mistake);
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder { events: Parser::new_from_str(text), nodes: 0, mistakes };
    let root = match builder.next()? {
        (Event::DocumentStart(_), _) => {
            let (event, span) = builder.next()?;
            builder.node(event, span, 0)?
        }
        _ => return Err(empty()),
    };
    let says_nothing = match &root.value {
        Value::Map(entries) => entries.is_empty(),
        value => is_null(value),
    };
    if says_nothing && builder.mistakes.count() == 0 {
        return Err(empty());
    }
    while let (event, span) = builder.next()?
        && event != Event::StreamEnd
    {
        if matches!(event, Event::DocumentStart(_)) {
            let mut mistake = Place::of(span).mistake("", "a second document begins here");
            mistake.hint = Some("a limit file is one document: take the --- away, or the rest".to_owned());
            builder.mistakes.push(mistake);
            break;
        }
    }
    Ok(root)
}

fn empty() -> Mistake {
    let mut mistake = Place::START.mistake("", "the file says nothing");
    mistake.hint = Some("for the built-in limits write: defaults: {}".to_owned());
    mistake
}

struct Builder<'a, 'm> {
    events: Parser<'a, StrInput<'a>>,
    nodes: usize,
    mistakes: &'m mut Mistakes,
}

impl<'a> Builder<'a, '_> {
    /// The next event that says something.
    fn next(&mut self) -> Result<(Event<'a>, Span), Mistake> {
        loop {
            match self.events.next() {
                Some(Ok((Event::StreamStart | Event::Nothing, _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    let place = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                    let mut mistake = place.mistake("", format!("not valid YAML: {}", error.info()));
                    mistake.hint = advice(error.info()).map(str::to_owned);
                    return Err(mistake);
                }
                None => return Ok((Event::StreamEnd, Span::default())),
            }
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Mistake> {
        let place = Place::of(span);
        self.nodes += 1;
        if depth > MOST_DEPTH || self.nodes > MOST_NODES {
            return Err(place.mistake("", "nested too deep, or too many values: no limit file needs this"));
        }
        if let Event::Scalar(_, _, anchor, tag) | Event::SequenceStart(anchor, tag) | Event::MappingStart(anchor, tag) = &event {
            if *anchor > 0 {
                self.refuse(place, "an anchor (&name)", "write the value out where it is needed");
            }
            if tag.is_some() {
                self.refuse(place, "a tag (!name)", "take it away: each key knows what it takes");
            }
        }
        let value = match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => Value::Plain(text.into_owned()),
            Event::Scalar(text, ..) => Value::Quoted(text.into_owned()),
            Event::SequenceStart(..) => self.list(depth)?,
            Event::MappingStart(..) => Value::Map(self.map(depth)?),
            Event::Alias(_) => {
                self.refuse(place, "an alias (*name)", "write the value out; text that begins with * needs quotes");
                Value::Refused
            }
            _ => return Err(place.mistake("", "not valid YAML: a value is missing")),
        };
        Ok(Node { place, value })
    }

    fn refuse(&mut self, place: Place, what: &str, hint: &str) {
        let mut mistake = place.mistake("", format!("{what} is not taken in a limit file"));
        mistake.hint = Some(hint.to_owned());
        self.mistakes.push(mistake);
    }

    fn list(&mut self, depth: usize) -> Result<Value, Mistake> {
        let mut nodes = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List(nodes)),
                (event, span) => nodes.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Vec<Entry>, Mistake> {
        let mut entries = Vec::new();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok(entries);
            }
            let key = self.node(event, span, depth + 1)?;
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            let quoted = matches!(key.value, Value::Quoted(_));
            match key.value {
                Value::Plain(name) | Value::Quoted(name) => entries.push(Entry { key: name, quoted, place: key.place, node }),
                Value::Refused => {}
                Value::Map(_) | Value::List(_) => self.mistakes.push(key.place.mistake("", "a key must be a word")),
            }
        }
    }
}

/// What to do about the slips of YAML that people make.
fn advice(info: &str) -> Option<&'static str> {
    let has = |word: &str| info.contains(word);
    if has("alias") || has("anchor") {
        Some("text that begins with * or & needs quotes")
    } else if has("tab") {
        Some("indent with spaces")
    } else {
        None
    }
}
