//! What may be written: YAML text, read into a tree in which every value knows its place, so that all mistakes of a file
//! are shown at once, each with line, column and path.
//!
//! Only what a limit file needs is taken. Anchors, aliases and tags are refused (an alias can blow a small file up), and so is
//! everything that YAML would quietly turn into something else: `1e3`, `012`, `1_000`, `.inf`, `~`, `on`.

mod reader;
mod tree;

pub(super) use reader::{Fields, Reader, closest};
pub(super) use tree::parse;

use std::fmt;

/// The largest file that is read, bytes.
pub(super) const MOST_BYTES: usize = 1 << 20;

/// One mistake in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1.
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
