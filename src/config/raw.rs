//! What may be written: YAML text, read into a tree in which every value knows its place, so that all mistakes of a file
//! are shown at once, each with line, column and path.
//!
//! Only what a limit file needs is taken. Anchors, aliases and tags are refused (an alias can blow a small file up), and so is
//! everything that YAML, or another reader of it, would quietly turn into something else: `1e3`, `012`, `1_000`, `.inf`, `~`,
//! `on`. A number is a plain decimal like `12` or `0.5`. After a mistake of YAML itself nothing more can be said about a file.

mod keys;
mod reader;
mod scalar;
mod tree;

pub(super) use keys::belongs;
pub(super) use reader::{Fields, Placed, Reader};
pub(super) use scalar::closest;
pub(super) use tree::{Entry, Node, Place, Value, parse};

use std::fmt;

/// The largest file that is read, bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;
/// More mistakes than anybody reads at once; those behind are counted out.
const MOST_MISTAKES: usize = 100;

/// One mistake in a file, or one thing in it that is worth a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Where it is in the structure: `tiers.gold.bucket_capacity`; empty for the file itself.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: ", self.line, self.column)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// The mistakes of one file, of which the first hundred are kept.
#[derive(Debug, Default)]
pub(super) struct Mistakes {
    found: Vec<Mistake>,
    more: bool,
}

impl Mistakes {
    pub(super) fn push(&mut self, mistake: Mistake) {
        if self.found.len() < MOST_MISTAKES {
            self.found.push(mistake);
        } else {
            self.more = true;
        }
    }

    /// How many were found so far.
    pub(super) const fn count(&self) -> usize {
        self.found.len()
    }

    /// Whether what is noted now is only counted out.
    pub(super) const fn is_full(&self) -> bool {
        self.found.len() >= MOST_MISTAKES
    }

    /// In the order of the file.
    pub(super) fn into_sorted(mut self) -> Vec<Mistake> {
        self.found.sort_by_key(|mistake| (mistake.line, mistake.column));
        if let (true, Some(last)) = (self.more, self.found.last()) {
            let (line, column) = (last.line, last.column);
            let message = format!("there are more mistakes: these are the first {MOST_MISTAKES}");
            self.found.push(Mistake { line, column, path: String::new(), message, hint: None });
        }
        self.found
    }
}
