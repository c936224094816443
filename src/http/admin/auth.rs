//! Who may administer: named bearer tokens with a role. Only their hashes are kept, compared in constant time; failures are slowed
//! down for each address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use actix_web::HttpRequest;
use actix_web::http::header::AUTHORIZATION;
use arc_swap::ArcSwap;
use subtle::ConstantTimeEq;

use super::super::{Api, Problem};
use super::token::{Role, Token, hash};
use crate::clock::monotonic;

/// Failures from one address that cost nothing; each further one waits.
const FREE_FAILURES: u32 = 5;
/// How long an answer to a wrong token waits then.
const PENALTY: Duration = Duration::from_secs(1);
/// Failures are forgotten after this.
const MEMORY: Duration = Duration::from_secs(60);
/// The most addresses whose failures are remembered.
const MOST_ADDRESSES: usize = 10_000;

/// The tokens that are taken, and who failed lately.
#[derive(Default)]
pub struct Tokens {
    taken: ArcSwap<Vec<Token>>,
    /// Only this machine may administer: nobody configured a token.
    loopback_only: bool,
    failures: Mutex<HashMap<IpAddr, (u32, Instant)>>,
}

impl Tokens {
    /// These tokens, from anywhere.
    #[must_use]
    pub fn new(tokens: Vec<Token>) -> Self {
        Self { taken: ArcSwap::from_pointee(tokens), ..Self::default() }
    }

    /// One token that was made at the start, from this machine only.
    #[must_use]
    pub fn local(token: Token) -> Self {
        Self { taken: ArcSwap::from_pointee(vec![token]), loopback_only: true, ..Self::default() }
    }

    /// From here on these tokens are taken in place of those before.
    pub fn replace(&self, tokens: Vec<Token>) {
        self.taken.store(Arc::new(tokens));
    }

    fn find(&self, secret: &str) -> Option<Token> {
        let hash = hash(secret);
        // All are compared, whichever fits.
        self.taken.load().iter().fold(None, |found, token| if bool::from(token.hash.ct_eq(&hash)) { Some(token.clone()) } else { found })
    }

    /// Notes a failure of `address`; whether the answer must wait.
    fn failed(&self, address: IpAddr) -> bool {
        let now = monotonic();
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= MOST_ADDRESSES {
            failures.retain(|_, (_, last)| now.saturating_duration_since(*last) < MEMORY);
        }
        if failures.len() >= MOST_ADDRESSES && !failures.contains_key(&address) {
            return true;
        }
        let (count, last) = failures.entry(address).or_insert((0, now));
        if now.saturating_duration_since(*last) >= MEMORY {
            *count = 0;
        }
        *count = count.saturating_add(1);
        *last = now;
        *count > FREE_FAILURES
    }
}

/// The name of the caller's token.
pub(super) async fn authenticate(api: &Api, request: &HttpRequest, writes: bool) -> Result<String, Problem> {
    let tokens = &api.settings.tokens;
    let peer = request.peer_addr().map(|peer| peer.ip().to_canonical());
    if tokens.taken.load().is_empty() || (tokens.loopback_only && peer.is_some_and(|peer| !peer.is_loopback())) {
        return Err(Problem::new(403, "admin_is_local", "without configured tokens the admin API answers this machine only"));
    }
    let secret = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(|value| value.strip_prefix("Bearer "));
    let Some(token) = secret.and_then(|secret| tokens.find(secret)) else {
        api.metrics.login_failed();
        if secret.is_some() && peer.is_some_and(|peer| tokens.failed(peer)) {
            tokio::time::sleep(PENALTY).await;
        }
        return Err(Problem::new(401, "unauthorized", "send Authorization: Bearer TOKEN"));
    };
    if writes && token.role == Role::Viewer {
        return Err(Problem::new(403, "viewer", "this token may look, and change nothing"));
    }
    Ok(token.name)
}
