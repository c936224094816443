//! One loop for every trace and every store.

use std::collections::HashMap;
use std::io::{self, BufRead};

use super::lines::Lines;
use super::order::Order;
use super::{Report, Step, SubjectFrom, access_log, trace};
use crate::config::Config;
use crate::identity::Subject;
use crate::limit::{Decision, Micros, Part, Policy, Problem};
use crate::store::{Ask, ErrorKind, Key, MemoryStore, Store, StoreError};

/// How many users' overrides a trace may hold.
const MAX_OVERRIDES: usize = 100_000;

/// Where a replay keeps state.
pub enum Backend<'a> {
    /// This process's memory, asked without a runtime in between: a million requests take seconds.
    Memory(&'a MemoryStore),
    /// Any other store, one request after the other: their order is what is replayed.
    Other(&'a dyn Store, &'a tokio::runtime::Runtime),
}

impl Backend<'_> {
    fn decide(&self, ask: Ask<'_>) -> Result<Decision, StoreError> {
        match self {
            Self::Memory(store) => store.decide(ask),
            Self::Other(store, runtime) => runtime.block_on(store.decide(ask)),
        }
    }
}

/// How to replay.
#[derive(Debug)]
pub struct Options<'a> {
    /// The limits.
    pub config: &'a Config,
    /// Who a line of an access log is about.
    pub subject_from: SubjectFrom,
}

/// Why a replay ended early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace cannot be read on.
    #[error("the trace cannot be read: {0}")]
    Read(#[source] io::Error),
    /// A decision could not be handed on.
    #[error("the decisions cannot be written: {0}")]
    Write(#[source] io::Error),
    /// The limits do not fit together.
    #[error("the configured limits do not fit together: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Policy(Vec<Problem>),
    /// The store failed.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// Takes each decision: who, when, what.
pub type OnDecision<'a> = dyn FnMut(&Subject, Micros, &Decision) -> io::Result<()> + 'a;

/// Replays all of `input`; every decision also goes to `on_decision`. Lines that cannot be used are in the report.
///
/// # Errors
/// When the trace cannot be read on, the store fails in any other way than having no room, or `on_decision` does.
pub fn replay(
    input: impl BufRead,
    options: &Options<'_>,
    backend: &Backend<'_>,
    on_decision: &mut OnDecision<'_>,
) -> Result<Report, Error> {
    let mut run = Run::new(options, backend, on_decision)?;
    let mut lines = Lines::new(input);
    let mut log = access_log::Reader::new(options.subject_from);
    let mut order = Order::default();
    while let Some((number, line)) = lines.next().map_err(Error::Read)? {
        run.report.lines = number;
        let done = match line {
            Err(problem) => Err(problem),
            Ok(text) if text.trim().is_empty() => Ok(()),
            Ok(text) if text.trim_start().starts_with('{') => match trace::steps(text) {
                Ok(steps) => run.steps(steps)?,
                Err(problem) => Err(problem),
            },
            Ok(text) => log.read(text).map(|(second, subject)| order.add(second, subject)),
        };
        if let Err(problem) = done {
            run.report.bad_lines.add(number, problem);
        }
        if order.is_full() {
            run.second(&mut order)?;
        }
    }
    while run.second(&mut order)? {}
    run.report.late_lines = order.late();
    Ok(run.report)
}

struct Run<'a, 'b> {
    options: &'a Options<'a>,
    backend: &'a Backend<'a>,
    on_decision: &'a mut OnDecision<'b>,
    report: Report,
    /// What a vector lays over the configured limits.
    base: Part,
    policy: Policy,
    overrides: HashMap<Subject, Policy>,
    /// Vectors begun: on a store that cannot be emptied each keeps its state under a name of its own.
    begun: u64,
    scope: Option<String>,
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(options: &'a Options<'a>, backend: &'a Backend<'a>, on_decision: &'a mut OnDecision<'b>) -> Result<Self, Error> {
        let policy = options.config.policy(None, &[]).map_err(Error::Policy)?;
        Ok(Self {
            options,
            backend,
            on_decision,
            report: Report::default(),
            base: Part::default(),
            policy,
            overrides: HashMap::new(),
            begun: 0,
            scope: None,
        })
    }

    /// The outer error ends the replay, the inner one is the line's.
    fn steps(&mut self, steps: Vec<Step>) -> Result<Result<(), String>, Error> {
        for step in steps {
            match step {
                Step::Request { at, subject, cost } => self.request(at, &subject, cost)?,
                Step::Override { subject, part } => {
                    if let Err(problem) = self.set_override(subject, &part) {
                        return Ok(Err(problem));
                    }
                }
                Step::Begin(part) => {
                    if let Err(problem) = self.begin(part) {
                        return Ok(Err(problem));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn set_override(&mut self, subject: Subject, part: &Part) -> Result<(), String> {
        let policy = self.options.config.policy(None, &[&self.base, part]).map_err(|problems| said(&problems))?;
        if self.overrides.len() >= MAX_OVERRIDES && !self.overrides.contains_key(&subject) {
            return Err(format!("more than {MAX_OVERRIDES} users have a policy of their own"));
        }
        self.overrides.insert(subject, policy);
        Ok(())
    }

    fn begin(&mut self, part: Part) -> Result<(), String> {
        self.policy = self.options.config.policy(None, &[&part]).map_err(|problems| said(&problems))?;
        self.base = part;
        self.overrides.clear();
        self.begun += 1;
        match self.backend {
            Backend::Memory(store) => store.clear(),
            Backend::Other(..) => self.scope = Some(self.begun.to_string()),
        }
        Ok(())
    }

    /// Replays the earliest second of an access log; whether there was one.
    fn second(&mut self, order: &mut Order) -> Result<bool, Error> {
        let Some(requests) = order.take() else { return Ok(false) };
        self.report.spread = true;
        for (at, subject) in requests {
            self.request(at, &subject, 1)?;
        }
        Ok(true)
    }

    fn request(&mut self, at: Micros, subject: &Subject, cost: u64) -> Result<(), Error> {
        let key = Key::new(subject, self.scope.as_deref());
        let policy = self.overrides.get(subject).unwrap_or(&self.policy);
        match self.backend.decide(Ask { key: &key, policy, cost, at: Some(at) }) {
            Ok(decision) => {
                self.report.count(subject, Some(&decision));
                (self.on_decision)(subject, at, &decision).map_err(Error::Write)
            }
            Err(error) if error.kind == ErrorKind::Full => {
                self.report.count(subject, None);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

fn said(problems: &[Problem]) -> String {
    problems.iter().map(|problem| format!("policy: {problem}")).collect::<Vec<_>>().join("; ")
}
