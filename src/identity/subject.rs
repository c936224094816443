//! Who is limited.

use std::fmt::{self, Write as _};

/// The longest user id, in bytes of UTF-8.
const MAX_ID_BYTES: usize = 256;

/// Who is limited: a user, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Subject {
    /// A user by id: 1 … 256 bytes of UTF-8 without control characters, compared byte by byte.
    User(Box<str>),
    /// A user by API key: the first 32 hex digits of its hash. The key itself is a secret and is nowhere kept.
    ApiKey(Box<str>),
    /// An address, or an IPv6 prefix, in its canonical form; `unknown` for all that cannot be read.
    Address(Box<str>),
    /// All anonymous traffic together.
    Anonymous,
}

impl Subject {
    /// The user with this id.
    ///
    /// # Errors
    /// When the id is empty, longer than 256 bytes, or has a control character in it.
    pub fn user(id: &str) -> Result<Self, InvalidUserId> {
        if id.is_empty() {
            return Err(InvalidUserId::Empty);
        }
        if id.len() > MAX_ID_BYTES {
            return Err(InvalidUserId::TooLong { bytes: id.len() });
        }
        if id.chars().any(char::is_control) {
            return Err(InvalidUserId::ControlCharacter);
        }
        Ok(Self::User(id.into()))
    }
}

impl Subject {
    /// The subject whose key holds `encoded` between the braces: the inverse of [`crate::store::Key::new`]. Nothing when it is no
    /// subject's, or has a character that would reach out of the braces.
    #[must_use]
    pub fn from_encoded(encoded: &str) -> Option<Self> {
        Some(match encoded.split_once(':') {
            Some(("key", hash)) => Self::ApiKey(plain(hash)?.into()),
            Some(("ip", address)) => Self::Address(plain(address)?.into()),
            Some(("anon", "")) => Self::Anonymous,
            Some(_) => return None,
            None => Self::user(&percent_decoded(encoded)?).ok()?,
        })
    }

    /// The subject as [`fmt::Display`] writes it when it is no user: `key:…`, `ip:…`, `anon:`.
    #[must_use]
    pub fn from_reserved(text: &str) -> Option<Self> {
        if text.contains(':') { Self::from_encoded(text) } else { None }
    }
}

/// `text`, when it is made of what hashes and canonical addresses are made of. It comes from operators too, and goes into a key as it
/// is.
fn plain(text: &str) -> Option<&str> {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'z' | b'.' | b':' | b'/')).then_some(text)
}

/// Adds `text` to `out`, every byte outside `A-Z a-z 0-9 . _ ~ @ -` percent-encoded: what may stand in a key, and in a query.
pub fn percent_encode(text: &str, out: &mut String) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'~' | b'@' | b'-') {
            out.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// The inverse of [`percent_encode`].
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return None;
            }
            bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

/// As in answers and logs: the id of a user as it came, others with the prefix of their kind.
impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(id) => f.write_str(id),
            Self::ApiKey(hash) => write!(f, "key:{hash}"),
            Self::Address(address) => write!(f, "ip:{address}"),
            Self::Anonymous => f.write_str("anon:"),
        }
    }
}

/// Why a user id is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidUserId {
    /// It has no bytes.
    #[error("a user id must not be empty")]
    Empty,
    /// It has more than 256 bytes.
    #[error("a user id has at most {MAX_ID_BYTES} bytes, this one has {bytes}")]
    TooLong {
        /// How many it has.
        bytes: usize,
    },
    /// It is not UTF-8.
    #[error("a user id must be UTF-8")]
    NotUtf8,
    /// It has a control character in it.
    #[error("a user id must not contain control characters")]
    ControlCharacter,
}
