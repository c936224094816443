//! Everything that is not an admitted answer, as `application/problem+json` (RFC 9457).

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use actix_web::{HttpResponse, HttpResponseBuilder};
use serde::Serialize;

use crate::identity::IdentityError;
use crate::store::StoreError;

/// A problem body, with its status.
#[derive(Debug, Serialize)]
pub(super) struct Problem {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    code: &'static str,
    /// The part of the request that is wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    /// Whole seconds to wait before asking again.
    #[serde(skip)]
    retry_after: Option<u32>,
    /// The connection is of no more use.
    #[serde(skip)]
    close: bool,
}

/// No type beyond what the status says.
const PLAIN: &str = "about:blank";

impl Problem {
    fn new(status: StatusCode, code: &'static str, title: &'static str, detail: impl Into<String>) -> Self {
        Self { kind: PLAIN, title, status: status.as_u16(), detail: detail.into(), code, field: None, retry_after: None, close: false }
    }

    pub(super) fn bad_request(field: &str, detail: &str) -> Self {
        Self { field: Some(field.to_owned()), ..Self::new(StatusCode::BAD_REQUEST, "bad_request", "The request is not understood", detail) }
    }

    pub(super) fn unsupported_media_type(found: &str) -> Self {
        Self::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "unsupported_media_type",
            "The body must be JSON",
            format!("the content type is {found:?}; send application/json"),
        )
    }

    pub(super) fn body_too_long(most: usize) -> Self {
        Self {
            close: true,
            ..Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_long", "The body is too long", format!("at most {most} bytes are taken"))
        }
    }

    pub(super) fn body_too_slow() -> Self {
        Self {
            close: true,
            ..Self::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", "The body came too slowly", "the whole body must arrive within 10 s")
        }
    }

    pub(super) fn not_found(path: &str) -> Self {
        let shown: String = path.chars().take(100).collect();
        Self::new(StatusCode::NOT_FOUND, "not_found", "There is nothing here", format!("no such path: {shown:?}"))
    }

    pub(super) fn method_not_allowed(method: &str, allowed: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "method_not_allowed",
            "Not with this method",
            format!("{method} is not allowed here; use {allowed}"),
        )
    }

    pub(super) fn identity(error: IdentityError) -> Self {
        match error {
            IdentityError::UntrustedPeer => Self::new(
                StatusCode::FORBIDDEN,
                "untrusted_peer",
                "This peer may not say who asks",
                "user and address are taken from trusted peers only",
            ),
            IdentityError::InvalidUserId(error) => Self::bad_request("user", &format!("user: {error}")),
            IdentityError::InvalidAddress => Self::bad_request("address", &error.to_string()),
        }
    }

    /// The store could not say, and nothing else may decide.
    pub(super) fn store(_error: &StoreError) -> Self {
        Self {
            kind: "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity",
            retry_after: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "store_unavailable",
                "The limits cannot be checked right now",
                "the store that holds the limits' state did not answer; nothing was decided",
            )
        }
    }

    pub(super) fn response(self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = HttpResponseBuilder::new(status);
        response.insert_header((CONTENT_TYPE, "application/problem+json")).insert_header((CACHE_CONTROL, "no-store"));
        if let Some(seconds) = self.retry_after {
            response.insert_header((RETRY_AFTER, HeaderValue::from(seconds)));
        }
        if self.close {
            response.force_close();
        }
        response.body(serde_json::to_vec(&self).unwrap_or_default())
    }
}
