//! Tokens of the admin API: what one is, how one is made, and the line that stands for it in a file.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::identity::hex;

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Look.
    Viewer,
    /// Look and change.
    Operator,
}

impl Role {
    /// The word for it in a file of tokens.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }
}

/// A token that is taken: its name, what it may do, and the SHA-256 of its secret, which itself is kept nowhere.
#[derive(Clone)]
pub struct Token {
    pub(super) name: String,
    pub(super) role: Role,
    pub(super) hash: [u8; 32],
}

/// As the line of a file: `NAME viewer|operator SHA256-IN-HEX`.
impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.name, self.role.name(), hex(&self.hash))
    }
}

impl Token {
    /// The token `secret` under this name.
    #[must_use]
    pub fn new(name: &str, role: Role, secret: &str) -> Self {
        Self { name: name.to_owned(), role, hash: hash(secret) }
    }

    /// A new token and its secret: 244 random bits in 64 hex digits.
    #[must_use]
    pub fn generate(name: &str, role: Role) -> (Self, String) {
        let secret = format!("{}{}", uuid::Uuid::new_v4().simple(), uuid::Uuid::new_v4().simple());
        (Self::new(name, role, &secret), secret)
    }

    /// The tokens of a file's `text`: a line each, as [`Token`] is displayed; empty lines and lines with `#` in front say nothing.
    ///
    /// # Errors
    /// When a line is none, or there is none.
    pub fn parse_all(text: &str) -> Result<Vec<Self>, TokenFileError> {
        let mut tokens = Vec::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#')) {
            tokens.push(Self::parse(line).ok_or(TokenFileError::Line(index + 1))?);
        }
        if tokens.is_empty() { Err(TokenFileError::Empty) } else { Ok(tokens) }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let (name, role, digits) = (words.next()?, words.next()?, words.next()?);
        let role = [Role::Viewer, Role::Operator].into_iter().find(|known| known.name() == role)?;
        if words.next().is_some() || digits.len() != 64 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let mut hash = [0; 32];
        for (index, byte) in hash.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&digits[2 * index..2 * index + 2], 16).ok()?;
        }
        Some(Self { name: name.to_owned(), role, hash })
    }
}

pub(super) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// A line is none.
    #[error("line {0} is not: NAME viewer|operator SHA256-IN-HEX (weir token new makes one)")]
    Line(usize),
    /// There is no token in it.
    #[error("there is no token in it")]
    Empty,
}
