//! The script's text, its questions, and its answers.

use redis::{Cmd, Value};

use super::super::{Ask, ErrorKind, Found, Key, StoreError};
use crate::limit::{
    Algorithm, Decision, HandedOn, Limit, Load, Micros, Mode, Policy, Precision, Quota, Reason, Refused, US, Units, Violations, Wait,
    WhileOpen,
};

/// Any number of decisions, each from top to bottom; every file of `lua/` is the twin of one in `src/limit/`.
const TEXT: &str = concat!(
    include_str!("begin.lua"),
    include_str!("../../../lua/policy.lua"),
    include_str!("guard.lua"),
    include_str!("../../../lua/never.lua"),
    include_str!("../../../lua/state.lua"),
    include_str!("../../../lua/load.lua"),
    include_str!("../../../lua/bucket.lua"),
    include_str!("../../../lua/window.lua"),
    include_str!("../../../lua/window/exact.lua"),
    include_str!("../../../lua/window/sliced.lua"),
    include_str!("../../../lua/decide.lua"),
    include_str!("../../../lua/window/exact_commit.lua"),
    include_str!("../../../lua/window/sliced_commit.lua"),
    include_str!("../../../lua/decide_commit.lua"),
    include_str!("end.lua"),
);

/// The deciding script.
pub(super) struct Script {
    hash: String,
}

impl Script {
    pub(super) fn new() -> Self {
        Self { hash: redis::Script::new(TEXT).get_hash().to_owned() }
    }

    /// The call for a server that knows the script. It answers with an array of an answer to each question.
    pub(super) fn by_hash(&self, questions: &[Question]) -> Cmd {
        call("EVALSHA", &self.hash, questions)
    }

    /// The call for one that does not.
    pub(super) fn whole(questions: &[Question]) -> Cmd {
        call("EVAL", TEXT, questions)
    }
}

fn call(name: &str, script: &str, questions: &[Question]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(questions.iter().map(|question| question.keys.len()).sum::<usize>());
    for question in questions {
        command.arg(&question.keys);
    }
    for question in questions {
        command.arg(question.argument.as_slice());
    }
    command
}

/// What a question is for, as a number that the script knows.
#[derive(Clone, Copy)]
enum Purpose {
    /// To decide.
    Decide = 0,
    /// To decide, with what a mirror hands on.
    DecideHandedOn = 1,
    /// To write what a mirror hands on, and decide nothing.
    HandOn = 2,
}

/// One question of a call, as it travels.
pub(super) struct Question {
    keys: Vec<String>,
    argument: Vec<u8>,
}

impl Question {
    /// A request. `looked_at`: where overrides may be, which are looked for first; `handed_on`: what a mirror of the subject has seen.
    pub(super) fn decide(prefix: &str, ask: Ask<'_>, looked_at: &[&Key], handed_on: Option<&HandedOn>) -> Self {
        let mut keys = state_keys(prefix, ask.key, ask.policy);
        keys.extend(looked_at.iter().map(|key| config_key(prefix, key)));
        let purpose = if handed_on.is_some() { Purpose::DecideHandedOn } else { Purpose::Decide };
        // (At most the general override and that for the route.)
        let mut argument = argument(ask, u8::try_from(looked_at.len()).unwrap_or(u8::MAX), purpose);
        argument.extend(handed_on.into_iter().flat_map(packed));
        Self { keys, argument }
    }

    /// No request: what a mirror of `key` has seen.
    pub(super) fn hand_on(prefix: &str, key: &Key, policy: &Policy, handed_on: &HandedOn) -> Self {
        let mut argument = argument(Ask { key, policy, cost: 0, at: None }, 0, Purpose::HandOn);
        argument.extend(packed(handed_on));
        Self { keys: state_keys(prefix, key, policy), argument }
    }
}

/// What is handed on: nine doubles, in the order of `lua/state.lua`.
fn packed(handed_on: &HandedOn) -> impl Iterator<Item = u8> {
    let HandedOn { base, bucket, load, open_until, seen, dropped } = handed_on;
    let numbers = [
        *base as f64,
        bucket.tokens,
        bucket.refilled_at as f64,
        load.current,
        load.previous,
        *open_until as f64,
        seen.current,
        seen.previous,
        dropped.map_or(f64::NEG_INFINITY, |dropped| dropped as f64),
    ];
    numbers.into_iter().flat_map(f64::to_le_bytes)
}

/// Where the override of a key is kept.
pub(super) fn config_key(prefix: &str, key: &Key) -> String {
    format!("{prefix}:config:{}", key.as_str())
}

/// The subject's hash, and the policy's own window.
pub(super) fn state_keys(prefix: &str, key: &Key, policy: &Policy) -> Vec<String> {
    let key = key.as_str();
    let mut keys = vec![format!("{prefix}:token:{key}")];
    if policy.uses_window() {
        keys.push(match policy.precision() {
            Precision::Exact => format!("{prefix}:window:{key}"),
            Precision::Sliced { width } => format!("{prefix}:slices:{key}:{width}"),
        });
    }
    keys
}

/// Policy and question, packed: nine doubles and five bytes, little-endian, in the order of `lua/policy.lua`.
fn argument(ask: Ask<'_>, looks: u8, purpose: Purpose) -> Vec<u8> {
    let policy = ask.policy;
    let width = match policy.precision() {
        Precision::Exact => 0,
        Precision::Sliced { width } => width,
    };
    let algorithm = match policy.algorithm() {
        Algorithm::Hybrid => 0,
        Algorithm::TokenBucket => 1,
        Algorithm::SlidingWindow => 2,
    };
    let mut packed = Vec::with_capacity(77);
    let numbers = [
        policy.tokens_per_second(),
        policy.bucket_capacity() as f64,
        policy.window() as f64,
        policy.window_limit() as f64,
        width as f64,
        policy.trip_point(),
        policy.cooldown() as f64,
    ];
    packed.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    packed.extend([algorithm, u8::from(policy.while_open() == WhileOpen::Window), u8::from(policy.mode() == Mode::Shadow)]);
    packed.extend((ask.cost as f64).to_le_bytes());
    packed.extend(ask.at.map_or(-1.0, |at| at as f64).to_le_bytes());
    packed.extend([looks, purpose as u8]);
    packed
}

/// What the script says of one question.
pub(super) struct Answer {
    pub decision: Decision,
    /// Stored state was rubbish and counted as missing.
    pub state_was_corrupt: bool,
    /// What a mirror is made of, if it was refused.
    pub refused: Option<Refused>,
}

/// The answers to `n` questions.
pub(super) fn answers(answer: Value, n: usize) -> Result<Vec<Value>, StoreError> {
    match answer {
        Value::Array(answers) if answers.len() == n => Ok(answers),
        _ => Err(StoreError::new(ErrorKind::Unexpected, "the script's answer is none")),
    }
}

/// The answer to one: flags, reason, then wait, remaining, reset and time as doubles; eight more behind a refusal.
pub(super) fn answer(answer: &Value, ask: Ask<'_>) -> Result<Answer, StoreError> {
    let unexpected = || StoreError::new(ErrorKind::Unexpected, "the script's answer is none");
    let Value::BulkString(packed) = answer else { return Err(unexpected()) };
    let [flags, reason, numbers @ ..] = packed.as_slice() else { return Err(unexpected()) };
    let (numbers, []) = numbers.as_chunks::<8>() else { return Err(unexpected()) };
    let [wait, remaining, reset_after, decided_at, ref refused @ ..] = *numbers else { return Err(unexpected()) };
    let flag = |bit: u8| flags & (1 << bit) != 0;
    let policy = ask.policy;
    let (binding, limit) = if flag(5) { (Limit::Window, policy.window_limit()) } else { (Limit::Bucket, policy.bucket_capacity()) };
    let decision = Decision {
        admitted: flag(0),
        reason: match reason {
            0 => None,
            1 => Some(Reason::Bucket),
            2 => Some(Reason::Window),
            3 => Some(Reason::CostExceedsLimit),
            _ => return Err(unexpected()),
        },
        retry_after: a_wait(wait),
        quota: Some(Quota { binding, limit, remaining: units(remaining), reset_after: whole(reset_after) }),
        breaker_open: flag(1),
        breaker_opened: flag(2),
        violations: Violations { bucket: flag(3), window: flag(4) },
        decided_at: whole(decided_at),
    };
    let refused = refused_with(refused, &decision, ask.cost);
    Ok(Answer { decision, state_was_corrupt: flag(6), refused })
}

/// What stands behind a refusal, in the order of `lua/decide_commit.lua`.
fn refused_with(numbers: &[[u8; 8]], decision: &Decision, cost: Units) -> Option<Refused> {
    let [tokens, current, previous, open_until, used, window_wait, empty_at, leaves_at] = *<&[[u8; 8]; 8]>::try_from(numbers).ok()?;
    let decided_at = decision.decided_at;
    Some(Refused {
        cost,
        decided_at,
        tokens: f64::from_le_bytes(tokens),
        load: Load { second: decided_at.div_euclid(US), current: f64::from_le_bytes(current), previous: f64::from_le_bytes(previous) },
        open_until: whole(open_until),
        breaker_open: decision.breaker_open,
        used: units(used),
        window_wait: a_wait(window_wait),
        empty_at: Some(whole(empty_at)).filter(|at| *at >= 0),
        leaves_at: whole(leaves_at),
    })
}

fn a_wait(packed: [u8; 8]) -> Wait {
    let wait = whole(packed);
    if wait < 0 { Wait::Never } else { Wait::For(wait) }
}

fn units(packed: [u8; 8]) -> Units {
    Units::try_from(whole(packed)).unwrap_or(0)
}

/// What was found instead of a decision: for each key looked at its fields, or nothing where it is of another type.
pub(super) fn found(answer: &Value, looked_at: usize) -> Result<Vec<Found>, StoreError> {
    let unexpected = || StoreError::new(ErrorKind::Unexpected, "the look for overrides has an answer that is none");
    let Value::Array(hashes) = answer else { return Err(unexpected()) };
    if hashes.len() != looked_at {
        return Err(unexpected());
    }
    hashes.iter().map(|hash| fields(hash).ok_or_else(unexpected)).collect()
}

/// The fields of one hash, as `HGETALL` answers inside and outside of a script.
fn fields(hash: &Value) -> Option<Found> {
    // Whatever bytes people put there: what is no text becomes text that no field takes.
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        _ => None,
    };
    match hash {
        Value::Nil => Some(Found::WrongType),
        Value::Array(flat) => {
            let (pairs, []) = flat.as_chunks::<2>() else { return None };
            pairs.iter().map(|[name, value]| Some((text(name)?, text(value)?))).collect::<Option<_>>().map(Found::Fields)
        }
        _ => None,
    }
}

/// A whole number that travelled as a double.
#[expect(clippy::cast_possible_truncation, reason = "the script packs whole numbers within a double's exact range; others saturate")]
fn whole(packed: [u8; 8]) -> Micros {
    f64::from_le_bytes(packed) as Micros
}
