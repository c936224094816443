//! The API as OpenAPI 3.1 at `/openapi.json`, and a page to read and try it at `/docs`, whose script is in the binary: a machine without
//! internet shows it too. Made from the code: the fields of a policy and their ranges are those of [`Field`](crate::limit::Field).
//!
//! Layout: `schemas` are the bodies, `asking` and `admin` the calls.

mod admin;
mod asking;
mod schemas;

use std::sync::LazyLock;

use actix_web::HttpResponse;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue};
use actix_web::web::ServiceConfig;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem, PathsBuilder};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, OpenApi, OpenApiBuilder, Ref, RefOr, Required, Response, ResponseBuilder, Schema,
};

use super::{JSON, NO_STORE, Shared, builder, get, nothing_here};

/// The page. RapiDoc (MIT, assets/rapidoc) reads the description and draws it; it is told not to fetch fonts.
const PAGE: &str = include_str!("openapi/page.html");
const SCRIPT: &[u8] = include_bytes!("../../assets/rapidoc/rapidoc-min.js.gz");
/// The page may ask this server and nobody else.
const ONLY_HERE: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'",
);

/// The description of the whole API.
#[must_use]
pub fn openapi() -> OpenApi {
    let components = schemas::all()
        .into_iter()
        .fold(ComponentsBuilder::new(), |components, (name, schema)| components.schema(name, schema))
        .security_scheme("admin", SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer)))
        .build();
    let paths = asking::calls().into_iter().chain(admin::calls()).fold(PathsBuilder::new(), |paths, (method, path, call)| {
        // Calls of one path are laid together by the builder.
        paths.path(path, PathItem::new(method, call))
    });
    OpenApiBuilder::new()
        .info(
            InfoBuilder::new()
                .title("Weir")
                .version(env!("CARGO_PKG_VERSION"))
                .description(Some("May this user do this now, and if not, when? docs/http-api.md says what the answers mean."))
                .build(),
        )
        .paths(paths.build())
        .components(Some(components))
        .build()
}

/// The page and the description.
pub(super) fn routes(config: &mut ServiceConfig) {
    config
        .service(get("/openapi.json", || actix_web::web::to(description)))
        .service(get("/docs", || actix_web::web::to(page)))
        .service(get("/docs/rapidoc-min.js", || actix_web::web::to(script)));
}

async fn description(api: Shared) -> HttpResponse {
    static TEXT: LazyLock<String> = LazyLock::new(|| openapi().to_json().unwrap_or_default());
    if !api.settings.docs {
        return nothing_here();
    }
    builder(200).insert_header((CONTENT_TYPE, JSON)).insert_header((CACHE_CONTROL, NO_STORE)).body(TEXT.as_str())
}

async fn page(api: Shared) -> HttpResponse {
    if !api.settings.docs {
        return nothing_here();
    }
    builder(200)
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8")))
        .insert_header((CACHE_CONTROL, NO_STORE))
        .insert_header((CONTENT_SECURITY_POLICY, ONLY_HERE))
        .body(PAGE)
}

async fn script(api: Shared) -> HttpResponse {
    if !api.settings.docs {
        return nothing_here();
    }
    builder(200)
        .insert_header((CONTENT_TYPE, HeaderValue::from_static("text/javascript; charset=utf-8")))
        .insert_header((CONTENT_ENCODING, HeaderValue::from_static("gzip")))
        .insert_header((CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600")))
        .body(SCRIPT)
}

/// One call: how, where, what.
type Call = (HttpMethod, &'static str, OperationBuilder);

fn call(id: &str, tag: &str, summary: &str) -> OperationBuilder {
    OperationBuilder::new().operation_id(Some(id)).tag(tag).summary(Some(summary))
}

fn named(schema: &str) -> RefOr<Schema> {
    Ref::from_schema_name(schema).into()
}

/// A body of this type.
fn body(content_type: &str, schema: &str, required: bool) -> RequestBody {
    let required = if required { Required::True } else { Required::False };
    RequestBodyBuilder::new().content(content_type, Content::new(Some(named(schema)))).required(Some(required)).build()
}

fn answer(description: &str, content_type: &str, schema: &str) -> Response {
    ResponseBuilder::new().description(description).content(content_type, Content::new(Some(named(schema)))).build()
}

fn problem(description: &str) -> Response {
    answer(description, "application/problem+json", "Problem")
}

/// What every call with a body may be told of it.
fn with_body_problems(operation: OperationBuilder) -> OperationBuilder {
    operation
        .response("400", problem("not understood; nothing was asked, changed or charged; the detail names what is wrong"))
        .response("408", problem("the body did not arrive in time"))
        .response("413", problem("the body is too long"))
        .response("415", problem("the body is not JSON"))
}

fn query(name: &str, about: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    parameter(ParameterIn::Query, name, about, schema)
}

fn parameter(place: ParameterIn, name: &str, about: &str, schema: impl Into<RefOr<Schema>>) -> Parameter {
    ParameterBuilder::new().name(name).parameter_in(place).required(Required::False).description(Some(about)).schema(Some(schema)).build()
}
