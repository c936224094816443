//! `limit.yaml`: what may be written (`raw`) is compiled into what may be relied on ([`Config`]), or into every mistake at once.
//!
//! Start, reload and `weir check-config` share [`load`].

mod compile;
mod json;
mod raw;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use crate::limit::{Part, Policy, Problem};
pub use json::part_from_json;
pub use raw::Mistake;

/// A checked `limit.yaml`. Every policy that can be put together from its layers alone is known to compile.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Config {
    /// The layer above the built-in values.
    pub defaults: Part,
    /// Layers for users of a tier.
    pub tiers: BTreeMap<Box<str>, Part>,
}

impl Config {
    /// Reads `text`. The warnings name what is allowed but not what an operator would expect.
    ///
    /// # Errors
    /// Every mistake in it.
    pub fn from_yaml(text: &str) -> Result<(Self, Vec<Mistake>), Vec<Mistake>> {
        compile::compile(text)
    }

    /// The policy of a subject with this tier and these layers of its own, weakest first.
    ///
    /// # Errors
    /// When the layers do not fit together.
    pub fn policy(&self, tier: Option<&str>, own: &[&Part]) -> Result<Policy, Vec<Problem>> {
        let mut merged = self.defaults.clone();
        if let Some(tier) = tier.and_then(|name| self.tiers.get(name)) {
            merged.lay_over(tier);
        }
        for part in own {
            merged.lay_over(part);
        }
        Policy::compile(&merged)
    }
}

/// A file that was read and is right.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What it says.
    pub config: Config,
    /// What in it is allowed but worth a word.
    pub warnings: Vec<Mistake>,
}

/// A file that cannot be used, and everything that is wrong with it.
#[derive(Debug)]
pub struct LoadError {
    /// Which file.
    pub path: PathBuf,
    /// What is wrong.
    pub cause: LoadCause,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub enum LoadCause {
    /// It could not be read.
    Unreadable(io::Error),
    /// It is larger than any limit file needs to be.
    TooLarge,
    /// It says what it must not.
    Mistakes(Vec<Mistake>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            LoadCause::Unreadable(error) => write!(f, "cannot read {path}: {error}"),
            LoadCause::TooLarge => write!(f, "{path} is larger than {} bytes", raw::MOST_BYTES),
            LoadCause::Mistakes(mistakes) => {
                for (index, mistake) in mistakes.iter().enumerate() {
                    let line = if index == 0 { "" } else { "\n" };
                    write!(f, "{line}{path}:{mistake}")?;
                    if let Some(hint) = &mistake.hint {
                        write!(f, "\n  hint: {hint}")?;
                    }
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {}

/// Reads and checks a file.
///
/// # Errors
/// When it cannot be read, is too large, or has mistakes in it: all of them.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    let fail = |cause| LoadError { path: path.to_owned(), cause };
    let mut bytes = Vec::new();
    let most = raw::MOST_BYTES as u64;
    let file = File::open(path).map_err(|error| fail(LoadCause::Unreadable(error)))?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(|error| fail(LoadCause::Unreadable(error)))?;
    if bytes.len() > raw::MOST_BYTES {
        return Err(fail(LoadCause::TooLarge));
    }
    let text = match std::str::from_utf8(&bytes) {
        Ok(text) => text,
        Err(error) => {
            let line = bytes[..error.valid_up_to()].split(|byte| *byte == b'\n').count();
            let mistake = Mistake { line, column: 1, path: String::new(), message: "not valid UTF-8".to_owned(), hint: None };
            return Err(fail(LoadCause::Mistakes(vec![mistake])));
        }
    };
    let (config, warnings) = Config::from_yaml(text).map_err(|mistakes| fail(LoadCause::Mistakes(mistakes)))?;
    Ok(Loaded { config, warnings })
}
