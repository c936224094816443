//! `POST /admin/rate-limit/explain`: who a request would be, which limits it would meet, where each value comes from, and what is left.
//!
//! The body is a check's, in which `peer`, `headers` and `door` may stand too: what some other request looked like when it came in. Without
//! them it is about this very request.

use std::collections::BTreeMap;
use std::net::IpAddr;

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::forward_auth::named_by_headers;
use super::super::{Api, CheckBody, Problem, identity_problem};
use super::{object, ok, problem, show};
use crate::config::Config;
use crate::identity::{Claims, Door, Identified, Peer, Settings, Subject, resolve};
use crate::overrides::Target;

/// A header's lines.
#[derive(Deserialize)]
#[serde(untagged)]
enum Lines {
    One(String),
    Many(Vec<String>),
}

/// What a request looked like when it came in.
struct Seen {
    peer: Peer,
    door: Door,
    /// By name, in lower case.
    headers: BTreeMap<String, Vec<Vec<u8>>>,
}

pub(super) async fn explain(api: &Data<Api>, request: &HttpRequest, bytes: &[u8]) -> Result<HttpResponse, Problem> {
    let mut fields = object(bytes)?;
    let seen = Seen::take(&mut fields, request)?;
    let body = CheckBody::parse(Value::from(fields).to_string().as_bytes())?;
    let config = api.limiter.config();
    body.check_address()?;
    let Identified { subject, because, ignored } = seen.identify(api, &config.identity, &body)?;
    let route = body.path.as_deref().and_then(|path| config.route(path, body.method.as_deref().unwrap_or("")));
    let own = route.filter(|route| route.limits.is_some()).map(|route| route.name.clone());
    let target = Target { subject, route: own.clone() };
    let mut answer = about(api, &target).await?;
    answer["subject"] = target.subject.to_string().into();
    answer["because"] = because.to_string().into();
    answer["ignored"] = json!({"user": ignored.user, "address": ignored.address});
    answer["matched_route"] = json!(route.map(|route| &route.name));
    answer["on_store_failure"] = config.on_failure(route).name().into();
    if matches!(target.subject, Subject::Address(_)) && has_shared(&config) {
        answer["asked_first"] = about(api, &Target { subject: Subject::Anonymous, route: own }).await?;
    }
    Ok(ok(&answer))
}

async fn about(api: &Data<Api>, target: &Target) -> Result<Value, Problem> {
    let (known, decision) = api.limiter.state(target).await.map_err(problem)?;
    let mut body = show::described(target, &known);
    body["peek"] = show::decision_body(&decision);
    Ok(body)
}

const fn has_shared(config: &Config) -> bool {
    config.anonymous.shared.is_some()
}

impl Seen {
    fn take(fields: &mut Map<String, Value>, request: &HttpRequest) -> Result<Self, Problem> {
        let invalid = |detail: &str| Problem::new(400, "invalid_body", detail.to_owned());
        let peer = match fields.remove("peer") {
            None => None,
            Some(Value::String(text)) if text == "unix" => Some(Peer::Unix),
            Some(Value::String(text)) => {
                let address: IpAddr = text.parse().map_err(|_| invalid("peer: must be an IPv4 or IPv6 address, or unix"))?;
                Some(Peer::Tcp(address))
            }
            Some(_) => return Err(invalid("peer: must be an IPv4 or IPv6 address, or unix")),
        };
        let headers = match fields.remove("headers") {
            None => None,
            Some(value) => {
                let named: BTreeMap<String, Lines> = serde_json::from_value(value)
                    .map_err(|_| invalid("headers: must be an object of names and lines, each a text or a list of texts"))?;
                let lines = |lines| match lines {
                    Lines::One(line) => vec![line.into_bytes()],
                    Lines::Many(lines) => lines.into_iter().map(String::into_bytes).collect(),
                };
                Some(named.into_iter().map(|(name, of)| (name.to_ascii_lowercase(), lines(of))).collect())
            }
        };
        let door = match fields.remove("door").as_ref().map(Value::as_str) {
            None | Some(Some("check")) => Door::Check,
            Some(Some("auth")) => Door::Proxy,
            Some(_) => return Err(invalid("door: must be check or auth")),
        };
        let own_peer = || request.peer_addr().map_or(Peer::Unix, |peer| Peer::Tcp(peer.ip()));
        // Headers of this request say nothing about one that came from somewhere else.
        let headers = headers.unwrap_or_else(|| if peer.is_some() { BTreeMap::new() } else { lines_of(request) });
        Ok(Self { peer: peer.unwrap_or_else(own_peer), door, headers })
    }

    fn identify(&self, api: &Api, settings: &Settings, body: &CheckBody) -> Result<Identified, Problem> {
        let lines = |name: &str| self.headers.get(name).into_iter().flatten().map(Vec::as_slice).collect::<Vec<_>>();
        let (api_keys, user_ids) = match self.door {
            Door::Check => (lines(&settings.api_key_header), lines(&settings.user_id_header)),
            Door::Proxy => named_by_headers(settings, lines),
        };
        let claims = Claims {
            peer: self.peer,
            door: self.door,
            user: body.user.as_deref(),
            address: body.address.as_deref(),
            api_keys: &api_keys,
            user_ids: &user_ids,
            forwarded: &lines("forwarded"),
            x_forwarded_for: &lines("x-forwarded-for"),
        };
        resolve(settings, &api.settings.key_hasher, &claims).map_err(identity_problem)
    }
}

fn lines_of(request: &HttpRequest) -> BTreeMap<String, Vec<Vec<u8>>> {
    let mut headers: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for (name, value) in request.headers() {
        headers.entry(name.as_str().to_owned()).or_default().push(value.as_bytes().to_vec());
    }
    headers
}
