//! YAML text as a tree of values with their places.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::Mistake;

/// No limit file nests deeper.
const MOST_DEPTH: usize = 16;
/// More values than any limit file has; together with the size of the file this bounds the tree.
const MOST_NODES: usize = 100_000;

/// Where something stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::config) struct Place {
    pub line: usize,
    pub column: usize,
}

impl Place {
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
    /// A list; nothing in a limit file is one yet, so what is in it does not matter.
    List,
}

/// A key and its value.
#[derive(Debug, Clone)]
pub(in crate::config) struct Entry {
    pub key: String,
    pub place: Place,
    pub node: Node,
}

/// Reads `text` as one YAML document.
///
/// # Errors
/// What is not YAML, or is of the YAML that limit files do without.
pub(in crate::config) fn parse(text: &str) -> Result<Node, Mistake> {
    let mut builder = Builder { events: Parser::new_from_str(text), nodes: 0 };
    let root = match builder.next()? {
        (Event::DocumentStart(_), _) => {
            let (event, span) = builder.next()?;
            builder.node(event, span, 0)?
        }
        (_, span) => return Err(Place::of(span).mistake("", "the file is empty")),
    };
    match builder.next()? {
        (Event::DocumentEnd, _) => {}
        (_, span) => return Err(Place::of(span).mistake("", "unexpected content after the document")),
    }
    match builder.next()? {
        (Event::DocumentStart(_), span) => Err(Place::of(span).mistake("", "a second document begins here; a limit file has one")),
        _ => Ok(root),
    }
}

struct Builder<'a> {
    events: Parser<'a, saphyr_parser::StrInput<'a>>,
    nodes: usize,
}

impl<'a> Builder<'a> {
    /// The next event that says something.
    fn next(&mut self) -> Result<(Event<'a>, Span), Mistake> {
        loop {
            match self.events.next() {
                Some(Ok((Event::StreamStart | Event::Nothing, _))) => {}
                Some(Ok(event)) => return Ok(event),
                Some(Err(error)) => {
                    let place = Place { line: error.marker().line(), column: error.marker().col() + 1 };
                    return Err(place.mistake("", format!("not valid YAML: {}", error.info())));
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
        let value = match event {
            Event::Scalar(text, style, 0, None) => {
                if style == ScalarStyle::Plain {
                    Value::Plain(text.into_owned())
                } else {
                    Value::Quoted(text.into_owned())
                }
            }
            Event::SequenceStart(0, None) => self.list(depth)?,
            Event::MappingStart(0, None) => Value::Map(self.map(depth)?),
            Event::Alias(_) => return Err(refused(place, "an alias (*name)")),
            Event::Scalar(_, _, 0, _) | Event::SequenceStart(0, _) | Event::MappingStart(0, _) => {
                return Err(refused(place, "a tag (!name)"));
            }
            Event::Scalar(..) | Event::SequenceStart(..) | Event::MappingStart(..) => return Err(refused(place, "an anchor (&name)")),
            _ => return Err(place.mistake("", "the file is empty")),
        };
        Ok(Node { place, value })
    }

    fn list(&mut self, depth: usize) -> Result<Value, Mistake> {
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::List),
                (event, span) => drop(self.node(event, span, depth + 1)?),
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
            let (Value::Plain(name) | Value::Quoted(name)) = key.value else {
                return Err(key.place.mistake("", "a key must be a plain word"));
            };
            let (event, span) = self.next()?;
            entries.push(Entry { key: name, place: key.place, node: self.node(event, span, depth + 1)? });
        }
    }
}

fn refused(place: Place, what: &str) -> Mistake {
    let mut mistake = place.mistake("", format!("{what} is not taken in a limit file"));
    mistake.hint = Some("write the value out where it is needed".to_owned());
    mistake
}
