//! API keys. A key is a secret: it is hashed before it becomes a key, a label or a word in a log, and nothing here keeps it.

use std::fmt::{self, Write as _};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

use super::Subject;

/// No API key is longer, in bytes.
const MOST_BYTES: usize = 1_024;
/// How many hex digits of the hash name a user: 128 bits.
const DIGITS: usize = 32;

/// Turns API keys into subjects: SHA-256, or HMAC-SHA-256 where there is a secret, so that somebody who reads the hashes cannot try
/// keys on them.
#[derive(Clone, Default)]
pub struct KeyHasher {
    secret: Option<Box<[u8]>>,
}

impl KeyHasher {
    /// A hasher with this secret.
    #[must_use]
    pub fn with_secret(secret: &[u8]) -> Self {
        Self { secret: Some(secret.into()) }
    }

    /// The subject of the one key in `lines`.
    ///
    /// # Errors
    /// When there is no line, more than one, or what stands there is no key.
    pub fn subject(&self, lines: &[&[u8]]) -> Result<Subject, InvalidApiKey> {
        Self::check(lines)?;
        let [key] = lines else { return Err(InvalidApiKey::Length) };
        Ok(Subject::ApiKey(self.digits(key)))
    }

    /// Whether `lines` hold one key, or none.
    ///
    /// # Errors
    /// When there is more than one line, or what stands there is no key.
    pub(super) fn check(lines: &[&[u8]]) -> Result<(), InvalidApiKey> {
        let key = match lines {
            [] => return Ok(()),
            [key] => *key,
            _ => return Err(InvalidApiKey::Several),
        };
        if key.is_empty() || key.len() > MOST_BYTES {
            return Err(InvalidApiKey::Length);
        }
        if key.iter().any(|byte| byte.is_ascii_whitespace() || byte.is_ascii_control() || *byte == b',') {
            return Err(InvalidApiKey::Characters);
        }
        Ok(())
    }

    fn digits(&self, key: &[u8]) -> Box<str> {
        let hash = match self.secret.as_deref().map(Hmac::<Sha256>::new_from_slice) {
            Some(Ok(mac)) => mac.chain_update(key).finalize().into_bytes(),
            // HMAC takes a secret of any length.
            Some(Err(_)) | None => Sha256::digest(key),
        };
        hex(&hash[..DIGITS / 2]).into()
    }
}

/// Bytes as lower-case hex digits.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Without the secret.
impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").field("secret", &self.secret.as_ref().map(|_| "[redacted]")).finish()
    }
}

/// Why an API key is not taken. The key itself is never shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidApiKey {
    /// There is more than one.
    #[error("the API key header stands more than once; send one key")]
    Several,
    /// It is empty or too long.
    #[error("an API key has 1 to {MOST_BYTES} bytes")]
    Length,
    /// It has white space, a control character or a comma in it.
    #[error("an API key has no white space, control character or comma in it")]
    Characters,
}
