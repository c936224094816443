//! From a path to a checked file.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::Config;
use super::raw::{MOST_BYTES, Mistake};
use crate::identity::hex;

/// A file that was read and is right.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    /// Which file.
    pub path: PathBuf,
    /// What it says.
    pub config: Config,
    /// What in it is allowed but worth a word.
    pub warnings: Vec<Mistake>,
    /// SHA-256 of its bytes, 64 hex digits: two processes with the same hash have the same limits.
    pub content_hash: String,
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
    /// It could not be read, or is no file.
    Unreadable(io::Error),
    /// It is larger than 1 MiB, which no limit file needs. No more than that was read.
    TooLarge,
    /// It says what it must not.
    Mistakes(Vec<Mistake>),
}

/// `FILE:LINE:COLUMN: path: message` for each mistake, and a line `hint: …` where there is something to do about it.
impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.display();
        match &self.cause {
            LoadCause::Unreadable(error) => write!(f, "{path}: cannot be read: {error}"),
            LoadCause::TooLarge => write!(f, "{path}: larger than {MOST_BYTES} bytes, which no limit file needs"),
            LoadCause::Mistakes(mistakes) => {
                for (index, mistake) in mistakes.iter().enumerate() {
                    let line = if index == 0 { "" } else { "\n" };
                    write!(f, "{line}{path}:{mistake}")?;
                    if let Some(hint) = &mistake.hint {
                        write!(f, "\nhint: {hint}")?;
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
/// When it cannot be read, is no regular file, is larger than 1 MiB, or has mistakes in it: all of them.
pub fn load(path: &Path) -> Result<Loaded, LoadError> {
    compile(path, read(path))
}

/// What was read, checked.
pub(super) fn compile(path: &Path, content: Result<Vec<u8>, LoadCause>) -> Result<Loaded, LoadError> {
    let fail = |cause| LoadError { path: path.to_owned(), cause };
    let bytes = content.map_err(fail)?;
    let text = std::str::from_utf8(&bytes).map_err(|error| fail(LoadCause::Mistakes(vec![not_utf8(&bytes, error.valid_up_to())])))?;
    let (config, warnings) = Config::from_yaml(text).map_err(|mistakes| fail(LoadCause::Mistakes(mistakes)))?;
    Ok(Loaded { path: path.to_owned(), config, warnings, content_hash: content_hash(&bytes) })
}

/// The bytes of a regular file of at most [`MOST_BYTES`]; more are not read. (A pipe would keep the reader waiting for ever.)
pub(super) fn read(path: &Path) -> Result<Vec<u8>, LoadCause> {
    if !fs::metadata(path).map_err(LoadCause::Unreadable)?.is_file() {
        return Err(LoadCause::Unreadable(io::Error::other("it is not a regular file")));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(LoadCause::Unreadable)?;
    file.take(MOST_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(LoadCause::Unreadable)?;
    if bytes.len() > MOST_BYTES { Err(LoadCause::TooLarge) } else { Ok(bytes) }
}

/// SHA-256 in hex.
pub(super) fn content_hash(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

fn not_utf8(bytes: &[u8], valid: usize) -> Mistake {
    let before = &bytes[..valid];
    let line = before.split(|byte| *byte == b'\n').count();
    let last = before.rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let column = String::from_utf8_lossy(last).chars().count() + 1;
    let hint = Some("save the file as UTF-8".to_owned());
    Mistake { line, column, path: String::new(), message: "not UTF-8".to_owned(), hint }
}
