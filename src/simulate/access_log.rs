//! Access logs in nginx's combined format.
//!
//! A line is written when its request is done, so lines are nearly but not quite in order, and times are whole seconds. Lines
//! are put in order within [`REORDER_SECONDS`]; what comes later than that is put at the earliest time still open, and counted.
//! The requests of one second are spread evenly within it.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use super::{Event, Item, What};
use crate::identity::Subject;
use crate::limit::{Micros, US};

/// How far lines may be out of order.
const REORDER_SECONDS: i64 = 10;
/// The most lines that wait to be put in order.
const MOST_WAITING: usize = 1_000_000;

/// Who is the subject of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SubjectOf {
    /// The user where one is named, else the address.
    UserOrAddress,
    /// The address, always.
    Address,
}

/// Lines that wait for their second to be complete.
pub(super) struct AccessLog {
    subject_of: SubjectOf,
    waiting: BTreeMap<i64, Vec<String>>,
    waiting_lines: usize,
    /// Seconds before this one are given out.
    open_from: i64,
    newest: i64,
    pub late: u64,
}

impl AccessLog {
    pub(super) fn new(subject_of: SubjectOf) -> Self {
        Self { subject_of, waiting: BTreeMap::new(), waiting_lines: 0, open_from: i64::MIN, newest: i64::MIN, late: 0 }
    }

    /// Takes one line, and gives out what cannot be preceded any more.
    pub(super) fn understand(&mut self, text: &str, items: &mut VecDeque<Item>) -> Result<(), String> {
        let line = parse(text)?;
        let user = match (line.user, self.subject_of) {
            ("-", _) | (_, SubjectOf::Address) => line.address,
            (user, SubjectOf::UserOrAddress) => user,
        };
        Subject::user(user).map_err(|error| format!("user: {error}"))?;
        let mut second = line.second;
        if second < self.open_from {
            self.late += 1;
            second = self.open_from;
        }
        self.newest = self.newest.max(second);
        self.waiting.entry(second).or_default().push(user.to_owned());
        self.waiting_lines += 1;
        while let Some((&oldest, _)) = self.waiting.first_key_value()
            && (oldest + REORDER_SECONDS < self.newest || self.waiting_lines > MOST_WAITING)
        {
            self.give_out(oldest, items);
        }
        Ok(())
    }

    /// Gives out all that waits.
    pub(super) fn flush(&mut self, items: &mut VecDeque<Item>) {
        while let Some((&oldest, _)) = self.waiting.first_key_value() {
            self.give_out(oldest, items);
        }
    }

    fn give_out(&mut self, second: i64, items: &mut VecDeque<Item>) {
        let users = self.waiting.remove(&second).unwrap_or_default();
        self.waiting_lines -= users.len();
        // A second given out because too many lines waited stays open: later lines of it follow.
        self.open_from = if second + REORDER_SECONDS < self.newest { second + 1 } else { second };
        let step = US / Micros::try_from(users.len()).unwrap_or(US).max(1);
        let mut at = second * US;
        for user in users {
            items.push_back(Item::Event(Event { at, user, what: What::Request(1) }));
            at += step;
        }
    }
}

struct Line<'a> {
    address: &'a str,
    user: &'a str,
    second: i64,
}

/// `address - user [day/month/year:hour:minute:second zone] "request" status bytes "referer" "agent"`.
fn parse(text: &str) -> Result<Line<'_>, String> {
    let (address, rest) = text.split_once(' ').ok_or("no address")?;
    address.parse::<IpAddr>().map_err(|_| "does not begin with an address".to_owned())?;
    let (_ident, rest) = rest.split_once(' ').ok_or("no user")?;
    let (user, rest) = rest.split_once(" [").ok_or("no time in brackets")?;
    let (time, rest) = rest.split_once("] ").ok_or("no time in brackets")?;
    let second = jiff::fmt::strtime::parse("%d/%b/%Y:%H:%M:%S %z", time)
        .and_then(|parsed| parsed.to_timestamp())
        .map_err(|error| format!("not a time: {error}"))?
        .as_second();
    if !(0..1 << 33).contains(&second) {
        return Err("a time before 1970 or after 2242".to_owned());
    }
    let rest = after_quoted(rest).ok_or("no request in quotes")?;
    let mut numbers = rest.split_ascii_whitespace();
    let is_number = |word: Option<&str>| word.is_some_and(|word| word == "-" || word.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_number(numbers.next()) || !is_number(numbers.next()) {
        return Err("no status and size behind the request".to_owned());
    }
    Ok(Line { address, user, second })
}

/// What stands behind a quoted field, whose quotes may be escaped.
fn after_quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?;
    let mut escaped = false;
    for (index, byte) in inner.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(&inner[index + 1..]),
            _ => {}
        }
    }
    None
}
