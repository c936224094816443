//! Who may administer: the tokens of a file, read anew while the service runs, or one that is made at the start.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tracing::{error, info};

use super::Failure;
use crate::http::{Role, Token, Tokens};

/// Where the token is that is made at the start.
const ADMIN_TOKEN_FILE: &str = "admin-token";
/// How often the file of tokens is looked at.
const REREAD_EVERY: Duration = Duration::from_secs(1);

/// The tokens of the file, or one that is made now, for this machine only.
pub(super) fn tokens(file: Option<&Path>, data_dir: &Path) -> Result<Tokens, Failure> {
    if let Some(path) = file {
        let failed = |error: &dyn std::fmt::Display| {
            Failure::new(format!("--admin-tokens-file {}: {error}", path.display())).hint("weir token new makes a line for it")
        };
        let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
        return Token::parse_all(&text).map(Tokens::new).map_err(|error| failed(&error));
    }
    let (token, secret) = Token::generate("local", Role::Operator);
    let path = data_dir.join(ADMIN_TOKEN_FILE);
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write {}: {error}", path.display())).hint("name another directory with --data-dir")
    };
    // A new file each time: one that somebody else made, with other permissions, is not written to.
    let _ = std::fs::remove_file(&path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(failed)?;
    file.write_all(secret.as_bytes()).map_err(failed)?;
    Ok(Tokens::local(token))
}

/// Reads the file of tokens anew when its content has changed. One that cannot be used changes nothing, and is named once.
pub(super) async fn reread_tokens(path: PathBuf, tokens: Arc<Tokens>) {
    let mut seen = tokio::fs::read_to_string(&path).await.ok();
    loop {
        tokio::time::sleep(REREAD_EVERY).await;
        let now = match tokio::fs::read_to_string(&path).await {
            Ok(text) if seen.as_ref() == Some(&text) => continue,
            Ok(text) => match Token::parse_all(&text) {
                Ok(read) => {
                    tokens.replace(read);
                    info!(file = %path.display(), "the tokens of the file are taken from now on");
                    Some(text)
                }
                Err(problem) => {
                    error!(file = %path.display(), %problem, "the file of tokens cannot be used; those that were taken stay");
                    Some(text)
                }
            },
            Err(_) if seen.is_none() => continue,
            Err(problem) => {
                error!(file = %path.display(), %problem, "the file of tokens cannot be read; those that were taken stay");
                None
            }
        };
        seen = now;
    }
}
