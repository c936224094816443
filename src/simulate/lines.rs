//! Input as lines, and lines as what they say, whatever their format.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read};

use flate2::read::MultiGzDecoder;

use super::access_log::{AccessLog, SubjectOf};
use super::{Item, trace};

/// The longest line that is read whole. A line of a vector file holds a whole trace.
const LONGEST_LINE: usize = 16 << 20;

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// Reading failed.
    #[error("cannot read the trace: {0}")]
    Io(#[from] io::Error),
}

enum Format {
    Json,
    AccessLog(AccessLog),
}

/// Reads a trace, plain or gzip, JSON lines or an access log: its content says which.
pub struct Source<'a> {
    input: Box<dyn BufRead + 'a>,
    format: Option<Format>,
    subject_of: SubjectOf,
    line: u64,
    buffer: Vec<u8>,
    ready: VecDeque<Item>,
    ended: bool,
}

impl<'a> Source<'a> {
    /// A source that reads from `input`; `subject_of` says who is the subject of a line of an access log.
    ///
    /// # Errors
    /// When the first bytes cannot be read.
    pub fn new(input: impl Read + 'a, subject_of: SubjectOf) -> Result<Self, InputError> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let is_gzip = input.fill_buf()?.starts_with(&[0x1f, 0x8b]);
        let input: Box<dyn BufRead + 'a> = if is_gzip { Box::new(BufReader::with_capacity(1 << 16, MultiGzDecoder::new(input))) } else { Box::new(input) };
        Ok(Self { input, format: None, subject_of, line: 0, buffer: Vec::new(), ready: VecDeque::new(), ended: false })
    }

    /// The next thing that the input says; nothing at its end.
    ///
    /// # Errors
    /// When reading fails. (A line that cannot be understood is no error: [`Item::Bad`].)
    pub fn next_item(&mut self) -> Result<Option<Item>, InputError> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Ok(Some(item));
            }
            if self.ended {
                return Ok(None);
            }
            match self.read_line()? {
                None => {
                    self.ended = true;
                    if let Some(Format::AccessLog(log)) = &mut self.format {
                        log.flush(&mut self.ready);
                    }
                }
                Some(true) => self.understand(),
                Some(false) => self.ready.push_back(Item::Bad { line: self.line, why: format!("longer than {LONGEST_LINE} bytes") }),
            }
        }
    }

    /// The number of the line that was read last, from 1.
    #[must_use]
    pub const fn line(&self) -> u64 {
        self.line
    }

    /// How many lines of an access log came too late to be put in order.
    #[must_use]
    pub fn late_lines(&self) -> u64 {
        if let Some(Format::AccessLog(log)) = &self.format { log.late } else { 0 }
    }

    /// Whether times were whole seconds and were spread within them.
    #[must_use]
    pub fn times_were_spread(&self) -> bool {
        matches!(self.format, Some(Format::AccessLog(_)))
    }

    /// Reads the next line into the buffer: whole, too long (skipped), or none.
    fn read_line(&mut self) -> Result<Option<bool>, InputError> {
        self.buffer.clear();
        let mut fits = true;
        let mut any = false;
        loop {
            let chunk = self.input.fill_buf()?;
            if chunk.is_empty() {
                break;
            }
            any = true;
            let (taken, done) = match chunk.iter().position(|byte| *byte == b'\n') {
                Some(end) => (end + 1, true),
                None => (chunk.len(), false),
            };
            fits = fits && self.buffer.len() + taken <= LONGEST_LINE;
            if fits {
                self.buffer.extend_from_slice(&chunk[..taken]);
            }
            self.input.consume(taken);
            if done {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        self.line += 1;
        Ok(Some(fits))
    }

    fn understand(&mut self) {
        let bad = |line, why: String| Item::Bad { line, why };
        let Ok(text) = std::str::from_utf8(&self.buffer) else {
            self.ready.push_back(bad(self.line, "not valid UTF-8".to_owned()));
            return;
        };
        let text = text.trim();
        if text.is_empty() {
            return;
        }
        let subject_of = self.subject_of;
        let format = self.format.get_or_insert_with(|| if text.starts_with('{') { Format::Json } else { Format::AccessLog(AccessLog::new(subject_of)) });
        let understood = match format {
            Format::Json => trace::understand(text, &mut self.ready),
            Format::AccessLog(log) => log.understand(text, &mut self.ready),
        };
        if let Err(why) = understood {
            self.ready.push_back(bad(self.line, why));
        }
    }
}
