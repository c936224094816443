//! Lines of bounded length, and the memory of bad ones.

use std::io::{self, BufRead};

use serde::Serialize;

/// The longest line of a trace or log, in bytes.
const MAX_LINE_BYTES: usize = 64 * 1024;
/// The longest vector: all its events stand in one line.
const MAX_VECTOR_BYTES: usize = 16 * 1024 * 1024;
/// What tells a vector from an event; it must stand within the first [`MAX_LINE_BYTES`].
const VECTOR_MARK: &[u8] = b"\"events\"";
/// How many bad lines are named; the rest is counted.
const MAX_NAMED: usize = 20;

/// One line after the other into one buffer.
pub(super) struct Lines<R> {
    input: R,
    buffer: Vec<u8>,
    number: u64,
}

/// What stands in a line: its text without the line end, or why it cannot be used.
pub(super) type Line<'a> = Result<&'a str, String>;

impl<R: BufRead> Lines<R> {
    pub(super) const fn new(input: R) -> Self {
        Self { input, buffer: Vec::new(), number: 0 }
    }

    /// The next line and its number, from 1. What is longer than it may be is read over, not kept.
    ///
    /// # Errors
    /// When the input cannot be read, or is no intact gzip.
    pub(super) fn next(&mut self) -> io::Result<Option<(u64, Line<'_>)>> {
        self.buffer.clear();
        let mut most = MAX_LINE_BYTES;
        let mut bytes = 0;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let mut part = &chunk[..end.unwrap_or(chunk.len())];
            let consumed = end.map_or(chunk.len(), |end| end + 1);
            bytes += consumed;
            let room = most.saturating_sub(self.buffer.len());
            if part.len() > room {
                self.buffer.extend_from_slice(&part[..room]);
                part = &part[room..];
                if most == MAX_LINE_BYTES && self.buffer.windows(VECTOR_MARK.len()).any(|window| window == VECTOR_MARK) {
                    most = MAX_VECTOR_BYTES;
                } else {
                    // Nothing more is kept of it, and its length tells that it is too long.
                    most = 0;
                }
            }
            if most > 0 {
                self.buffer.extend_from_slice(part);
            }
            let at_end = chunk.is_empty();
            self.input.consume(consumed);
            if end.is_some() || at_end {
                break;
            }
        }
        if bytes == 0 {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some((self.number, self.text(most == 0))))
    }

    fn text(&self, too_long: bool) -> Line<'_> {
        if too_long {
            return Err(format!("longer than {MAX_LINE_BYTES} bytes"));
        }
        let line = self.buffer.strip_suffix(b"\r").unwrap_or(&self.buffer);
        std::str::from_utf8(line).map_err(|error| format!("byte {} is not UTF-8", error.valid_up_to() + 1))
    }
}

/// Lines that could not be used: all counted, the first 20 named.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct BadLines {
    /// How many.
    pub count: u64,
    /// The first of them.
    pub first: Vec<BadLine>,
}

/// A line that could not be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its number, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub problem: String,
}

impl BadLines {
    pub(super) fn add(&mut self, line: u64, problem: String) {
        self.count += 1;
        if self.first.len() < MAX_NAMED {
            self.first.push(BadLine { line, problem });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(input: &[u8]) -> Vec<(u64, Result<String, String>)> {
        // A buffer of seven bytes: no line end and no line falls on its edges by luck.
        let mut lines = Lines::new(io::BufReader::with_capacity(7, input));
        let mut all = Vec::new();
        while let Some((number, line)) = lines.next().expect("a slice can be read") {
            all.push((number, line.map(str::to_owned)));
        }
        all
    }

    #[test]
    fn line_ends_of_both_kinds_and_none_at_the_end() {
        let lines = all(b"one\r\n\ntwo and more\nlast");
        let texts: Vec<_> = lines.into_iter().map(|(number, line)| (number, line.expect("good"))).collect();
        assert_eq!(texts, [(1, "one".into()), (2, String::new()), (3, "two and more".into()), (4, "last".into())]);
    }

    #[test]
    fn a_line_that_is_too_long_is_not_kept_and_the_next_one_is_read() {
        let mut input = vec![b'x'; 3 * MAX_LINE_BYTES];
        input.extend_from_slice(b"\nnext\n");
        let mut lines = Lines::new(io::BufReader::new(input.as_slice()));
        assert!(lines.next().expect("readable").expect("a line").1.is_err());
        assert!(lines.buffer.capacity() <= 2 * MAX_LINE_BYTES, "it holds {}", lines.buffer.capacity());
        assert_eq!(lines.next().expect("readable").expect("a line"), (2, Ok("next")));
    }

    #[test]
    fn exactly_the_longest_line_is_taken() {
        let mut input = vec![b'x'; MAX_LINE_BYTES];
        assert!(all(&input)[0].1.is_ok());
        input.push(b'x');
        assert!(all(&input)[0].1.is_err());
    }

    #[test]
    fn a_vector_may_be_longer() {
        let text = format!("{{\"events\":[{}", " ".repeat(2 * MAX_LINE_BYTES));
        assert_eq!(all(text.as_bytes()), [(1, Ok(text))]);
    }

    #[test]
    fn invalid_utf8_is_named_by_its_byte() {
        assert_eq!(all(b"ab\xff\nok"), [(1, Err("byte 3 is not UTF-8".into())), (2, Ok("ok".into()))]);
    }
}
