//! What a change means: purely, from what is set to what is to be set.

use super::{Layer, Override, Temporary};
use crate::limit::{Field, Micros, Part, Value};

/// A field and what it is to be; nothing gives it back to what it inherits.
#[derive(Debug, Clone, PartialEq)]
pub enum Set {
    /// A field of a policy.
    Policy(Field, Option<Value>),
    /// The tier.
    Tier(Option<Box<str>>),
}

/// What an operator asks for.
#[derive(Debug, Clone, PartialEq)]
pub enum Change {
    /// The fields given; others keep their values. With an end, they lie over the standing part until then.
    Patch {
        /// The fields.
        sets: Vec<Set>,
        /// How long, µs; nothing is for good.
        expires_in: Option<Micros>,
        /// The note, if it is to change; nothing inside takes it away.
        note: Option<Option<Box<str>>>,
    },
    /// The whole override, temporary part and all.
    Replace {
        /// What is to be set.
        sets: Vec<Set>,
        /// What lies over it until its end.
        temporary: Option<Box<Temporary>>,
        /// The note.
        note: Option<Box<str>>,
    },
    /// Nothing is to be set.
    Delete,
}

/// Why a change makes no sense.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// No temporary part is without a value.
    #[error("a temporary change gives no field back: leave it out, or let the temporary part end")]
    NothingTemporary,
}

impl Change {
    /// The word for it in the audit.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Patch { .. } => "update",
            Self::Replace { .. } => "replace",
            Self::Delete => "delete",
        }
    }

    /// What is set after the change of what is set `before` at `now`. Where the temporary part gets a new end, its `until` is `now`
    /// plus the time; the store says it anew on its own clock.
    ///
    /// # Errors
    /// When the change makes no sense.
    pub fn apply(&self, before: &Override, now: Micros) -> Result<(Override, Option<Micros>), ChangeError> {
        let mut after = before.clone();
        // What has ended is not carried on.
        after.temporary = after.temporary.filter(|temporary| now < temporary.until);
        match self {
            Self::Delete => Ok((Override { version: before.version, ..Override::default() }, None)),
            Self::Replace { sets, temporary, note } => {
                let mut standing = Layer::default();
                for set in sets {
                    put(&mut standing, set);
                }
                let temporary = temporary.as_deref().filter(|temporary| now < temporary.until).cloned();
                Ok((Override { standing, note: note.clone(), temporary, version: before.version }, None))
            }
            Self::Patch { sets, expires_in, note } => {
                if let Some(note) = note {
                    after.note.clone_from(note);
                }
                let Some(expires_in) = expires_in else {
                    for set in sets {
                        put(&mut after.standing, set);
                    }
                    return Ok((after, None));
                };
                if sets.iter().any(|set| matches!(set, Set::Policy(_, None) | Set::Tier(None))) {
                    return Err(ChangeError::NothingTemporary);
                }
                let mut layer = after.temporary.take().map(|temporary| temporary.layer).unwrap_or_default();
                for set in sets {
                    put(&mut layer, set);
                }
                after.temporary = Some(Temporary { layer, until: now + expires_in });
                Ok((after, Some(*expires_in)))
            }
        }
    }
}

fn put(layer: &mut Layer, set: &Set) {
    match set {
        Set::Tier(tier) => layer.tier.clone_from(tier),
        Set::Policy(field, None) => layer.part.unset(*field),
        Set::Policy(field, Some(value)) => {
            let mut part = Part::default();
            // The value was checked when it was read; one that does not fit its field sets nothing.
            let fits = match value {
                Value::Number(number) => part.set_number(*field, *number),
                Value::Word(word) => part.set_word(*field, word),
            };
            if fits.is_ok() {
                layer.part.lay_over(&part);
            }
        }
    }
}
