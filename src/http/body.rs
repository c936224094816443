//! Bodies of requests: bounded in length and in time, and strict.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use actix_web::HttpResponse;
use actix_web::body::{BodySize, BoxBody, MessageBody};
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap};
use actix_web::web::{Bytes, BytesMut, Payload};
use futures_util::{Stream, StreamExt};
use serde::de::{Error as _, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Problem, identity_problem};
use crate::identity::{IdentityError, parse_address};
use crate::limit::{MAX_COST, Units};

/// The body of a check. Everything may be left out; nothing else may be in it.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckBody {
    /// Who asks, by id.
    pub user: Option<Box<str>>,
    /// What it takes; what the route costs, else 1, when it is not said.
    #[serde(default, deserialize_with = "said")]
    pub cost: Option<Cost>,
    /// What is asked for, to find its route.
    pub path: Option<Box<str>>,
    /// How it is asked for, to find its route.
    pub method: Option<Box<str>>,
    /// The address that the request came from.
    pub address: Option<Box<str>>,
}

/// A cost that is there is a cost: `null` is none, and not the same as nothing.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Cost>, D::Error> {
    Cost::deserialize(deserializer).map(Some)
}

impl CheckBody {
    /// Reads a body; one without anything in it is `{}`.
    ///
    /// # Errors
    /// 400, with line and column.
    pub fn parse(body: &[u8]) -> Result<Self, Problem> {
        if body.trim_ascii().is_empty() { Ok(Self::default()) } else { parse_object(body) }
    }

    /// Where a user is named the address decides nothing; but one that is none is a mistake that the caller should hear of.
    pub(super) fn check_address(&self) -> Result<(), Problem> {
        match self.address.as_deref() {
            Some(address) if parse_address(address.as_bytes()).is_none() => Err(identity_problem(IdentityError::InvalidAddress)),
            _ => Ok(()),
        }
    }
}

/// The body of a batch, its items still as text: what is wrong with one is that one's error.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BatchBody<'a> {
    #[serde(borrow)]
    pub(super) checks: Vec<&'a RawValue>,
}

/// Reads a JSON object.
pub(super) fn parse_object<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Problem> {
    // serde would also take an array, field by field.
    if body.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::new(400, "invalid_body", "the body is a JSON array; send an object"));
    }
    serde_json::from_slice(body).map_err(|error| Problem::new(400, "invalid_body", format!("the body cannot be used: {error}")))
}

/// A cost: a whole number, 0 … 1e9. `1000.0` and `1e3` are whole, `"5"` and `null` are no numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost(pub Units);

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole;

        impl Visitor<'_> for Whole {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a cost: a whole number, 0 to {MAX_COST}")
            }

            fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Cost, E> {
                if value <= MAX_COST {
                    Ok(Cost(value))
                } else {
                    Err(E::custom(format_args!("cost {value} is not a whole number, 0 to {MAX_COST}")))
                }
            }

            fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Cost, E> {
                u64::try_from(value).map_or_else(
                    |_| Err(E::custom(format_args!("cost {value} is not a whole number, 0 to {MAX_COST}"))),
                    |value| self.visit_u64(value),
                )
            }

            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be whole and in range")]
            fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Cost, E> {
                if value.fract() == 0.0 && (0.0..=MAX_COST as f64).contains(&value) {
                    Ok(Cost(value as Units))
                } else {
                    Err(E::custom(format_args!("cost {value} is not a whole number, 0 to {MAX_COST}")))
                }
            }
        }
        deserializer.deserialize_any(Whole).map_err(D::Error::custom)
    }
}

/// Whether the caller says that it sends JSON. One that does not say is believed to, and so is one that says what `curl -d` says
/// when it is told nothing: people at night write neither, and there is no form to confuse it with.
pub(super) fn expect_json(headers: &HeaderMap) -> Result<(), Problem> {
    if let Some(encoding) = headers.get(CONTENT_ENCODING).filter(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).into_owned();
        return Err(Problem::new(
            415,
            "unsupported_media_type",
            format!("Content-Encoding {encoding:?} is not taken: send the body as it is"),
        ));
    }
    let Some(value) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let essence = value.as_bytes().split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii().to_ascii_lowercase();
    // (JSON lines, which an import is made of, have two names and no registered one.)
    let json =
        matches!(&*essence, b"application/json" | b"application/x-www-form-urlencoded" | b"application/jsonl" | b"application/x-ndjson")
            || (essence.starts_with(b"application/") && essence.ends_with(b"+json"));
    if json {
        return Ok(());
    }
    let given = String::from_utf8_lossy(value.as_bytes()).into_owned();
    Err(Problem::new(415, "unsupported_media_type", format!("Content-Type {given:?} is not taken: send application/json")))
}

/// Reads a body of at most `most` bytes within `patience`.
///
/// A body that says beforehand that it is longer is refused unread; the server then closes the connection without cutting the answer.
pub(super) async fn read(headers: &HeaderMap, payload: &mut Payload, most: usize, patience: Duration) -> Result<Bytes, Problem> {
    let too_large = || Problem::new(413, "body_too_large", format!("the body is longer than {most} bytes"));
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()).and_then(|value| value.parse::<usize>().ok());
    if announced.is_some_and(|bytes| bytes > most) {
        return Err(too_large());
    }
    let all = async {
        // Most bodies come in one piece, which is then not copied.
        let Some(first) = next(payload).await? else { return Ok(Bytes::new()) };
        if first.len() > most {
            return Err(too_large());
        }
        let Some(second) = next(payload).await? else { return Ok(first) };
        let mut all = BytesMut::from(first.as_ref());
        let mut piece = Some(second);
        while let Some(bytes) = piece {
            if all.len() + bytes.len() > most {
                return Err(too_large());
            }
            all.extend_from_slice(&bytes);
            piece = next(payload).await?;
        }
        Ok(all.freeze())
    };
    tokio::time::timeout(patience, all)
        .await
        .unwrap_or_else(|_| Err(Problem::new(408, "body_timeout", format!("the body did not arrive within {} s", patience.as_secs_f64()))))
}

async fn next(payload: &mut Payload) -> Result<Option<Bytes>, Problem> {
    payload.next().await.transpose().map_err(|error| Problem::new(400, "invalid_body", format!("the body cannot be read: {error}")))
}

/// A response that keeps the unread rest of its request until it is sent, so that the server closes the connection behind it. Let go
/// of before, a chunked rest would be waited for without end. Where nothing is left the connection goes on.
pub(super) fn close_if_unread(response: HttpResponse, rest: Payload) -> HttpResponse {
    response.map_body(|_, body| BoxBody::new(Keeping { body, _rest: rest }))
}

struct Keeping {
    body: BoxBody,
    _rest: Payload,
}

impl MessageBody for Keeping {
    type Error = <BoxBody as MessageBody>::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Self::Error>>> {
        self.body.as_pin_mut().poll_next(context)
    }
}

/// Reads what is left of a short body, so that the connection can go on after an early answer. A long one is left to the server.
pub(crate) async fn drain<S, E>(payload: &mut S, most: usize, patience: Duration)
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
{
    let all = async {
        let mut left = most;
        while let Some(Ok(bytes)) = payload.next().await {
            left = left.saturating_sub(bytes.len());
            if left == 0 {
                break;
            }
        }
    };
    // Too slow: the server closes the connection behind the answer.
    let _ = tokio::time::timeout(patience, all).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn cost(text: &str) -> Result<Units, String> {
        CheckBody::parse(format!(r#"{{"cost":{text}}}"#).as_bytes())
            .map(|body| body.cost.map_or(1, |cost| cost.0))
            .map_err(|problem| problem.detail.into_owned())
    }

    #[test]
    fn a_cost_is_a_whole_number_however_it_is_written() {
        for (text, units) in [("0", 0), ("1", 1), ("1e3", 1_000), ("1000.0", 1_000), ("1000000000", MAX_COST), ("1e9", MAX_COST)] {
            assert_eq!(cost(text), Ok(units), "{text}");
        }
    }

    #[test]
    fn what_is_no_cost_is_refused() {
        for text in [
            "-1",
            "-9223372036854775808",
            "\"5\"",
            "1.5",
            "1e400",
            "null",
            "true",
            "[]",
            "{}",
            "18446744073709551615",
            "9007199254740993",
            "1e10",
            "NaN",
            "1000000001",
        ] {
            assert!(cost(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_named() {
        let problem = CheckBody::parse(br#"{"usr":"alice"}"#).err().unwrap();
        assert_eq!(problem.status, 400);
        assert!(problem.detail.contains("`usr`"), "{}", problem.detail);
    }

    #[test]
    fn bad_json_is_refused_with_its_place() {
        let problem = CheckBody::parse(b"{\"user\":\n tru}").err().unwrap();
        assert!(problem.detail.contains("line 2"), "{}", problem.detail);
    }

    #[test]
    fn an_array_is_no_body() {
        assert_eq!(CheckBody::parse(br#"["alice",1]"#).err().unwrap().status, 400);
    }

    #[test]
    fn no_body_is_an_empty_one() {
        assert_eq!(CheckBody::parse(b" \n").ok().unwrap().cost, None);
    }
}
