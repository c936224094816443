//! The script's text, its one argument, and its answer.

use redis::{Cmd, Value};

use super::super::{Ask, ErrorKind, Found, Key, StoreError};
use crate::limit::{Algorithm, Decision, Limit, Micros, Mode, Policy, Precision, Quota, Reason, Units, Violations, Wait, WhileOpen};

/// One decision from top to bottom; every file is the twin of one in `src/limit/`.
macro_rules! decision {
    () => {
        concat!(
            include_str!("../../../lua/policy.lua"),
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
        )
    };
}

const DECIDE: &str = decision!();
/// A look for overrides before it; it shares no local with what follows.
const DECIDE_UNLESS_OVERRIDDEN: &str = concat!(include_str!("guard.lua"), decision!());

/// A deciding script.
pub(super) struct Script {
    text: &'static str,
    hash: String,
}

impl Script {
    /// The script that decides, and nothing else.
    pub(super) fn decide() -> Self {
        Self::new(DECIDE)
    }

    /// The script that decides unless something is set for the subject. It is another one, so that a decision whose policy is
    /// known pays nothing for the look.
    pub(super) fn decide_unless_overridden() -> Self {
        Self::new(DECIDE_UNLESS_OVERRIDDEN)
    }

    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    /// The call for a server that knows the script. `looked_at`: where overrides may be; none for [`Self::decide`].
    pub(super) fn by_hash(&self, prefix: &str, ask: Ask<'_>, looked_at: &[&Key]) -> Cmd {
        call("EVALSHA", &self.hash, prefix, ask, looked_at)
    }

    /// The call for one that does not.
    pub(super) fn whole(&self, prefix: &str, ask: Ask<'_>, looked_at: &[&Key]) -> Cmd {
        call("EVAL", self.text, prefix, ask, looked_at)
    }
}

fn call(name: &str, script: &str, prefix: &str, ask: Ask<'_>, looked_at: &[&Key]) -> Cmd {
    let mut command = redis::cmd(name);
    let mut keys = state_keys(prefix, ask.key, ask.policy);
    keys.extend(looked_at.iter().map(|key| config_key(prefix, key)));
    command.arg(script).arg(keys.len()).arg(keys).arg(argument(ask).as_slice());
    if !looked_at.is_empty() {
        command.arg(looked_at.len());
    }
    command
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

/// Policy and question, packed: nine doubles and three bytes, little-endian, in the order of `lua/policy.lua`.
fn argument(ask: Ask<'_>) -> Vec<u8> {
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
    let mut packed = Vec::with_capacity(75);
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
    packed
}

/// What the script says.
pub(super) struct Answer {
    pub decision: Decision,
    /// Stored state was rubbish and counted as missing.
    pub state_was_corrupt: bool,
}

/// The answer: flags, reason, then wait, remaining, reset and time as doubles.
pub(super) fn answer(answer: &Value, policy: &Policy) -> Result<Answer, StoreError> {
    let unexpected = || StoreError::new(ErrorKind::Unexpected, "the script's answer is none");
    let Value::BulkString(packed) = answer else { return Err(unexpected()) };
    let [flags, reason, numbers @ ..] = packed.as_slice() else { return Err(unexpected()) };
    let (numbers, []) = numbers.as_chunks::<8>() else { return Err(unexpected()) };
    let [wait, remaining, reset_after, decided_at] = *numbers else { return Err(unexpected()) };
    let flag = |bit: u8| flags & (1 << bit) != 0;
    let (binding, limit) = if flag(5) { (Limit::Window, policy.window_limit()) } else { (Limit::Bucket, policy.bucket_capacity()) };
    let wait = whole(wait);
    let decision = Decision {
        admitted: flag(0),
        reason: match reason {
            0 => None,
            1 => Some(Reason::Bucket),
            2 => Some(Reason::Window),
            3 => Some(Reason::CostExceedsLimit),
            _ => return Err(unexpected()),
        },
        retry_after: if wait < 0 { Wait::Never } else { Wait::For(wait) },
        quota: Some(Quota { binding, limit, remaining: Units::try_from(whole(remaining)).unwrap_or(0), reset_after: whole(reset_after) }),
        breaker_open: flag(1),
        breaker_opened: flag(2),
        violations: Violations { bucket: flag(3), window: flag(4) },
        decided_at: whole(decided_at),
    };
    Ok(Answer { decision, state_was_corrupt: flag(6) })
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
