//! Policies in one line.

use weir::limit::{Field, Part, Policy};

/// The policy of `name=value` words over the built-in one.
pub fn policy(words: &str) -> Policy {
    Policy::compile(&part(words)).unwrap_or_else(|problems| panic!("{words}: {problems:?}"))
}

pub fn part(words: &str) -> Part {
    let mut part = Part::default();
    for word in words.split_whitespace() {
        let (name, value) = word.split_once('=').expect("name=value");
        part.set_text(Field::from_name(name).expect("a field"), value).expect("a value of it");
    }
    part
}
