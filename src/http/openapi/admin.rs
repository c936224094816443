//! What operators do.

use utoipa::openapi::ObjectBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, ParameterIn};
use utoipa::openapi::security::SecurityRequirement;

use super::schemas::{id, text, whole};
use super::{Call, answer, body, call, parameter, problem, query, with_body_problems};

const JSON: &str = "application/json";

pub(super) fn calls() -> impl Iterator<Item = Call> {
    config_calls().into_iter().chain(other_calls())
}

fn config_calls() -> Vec<Call> {
    let config = "/admin/rate-limit/config";
    let made = |operation: OperationBuilder| conditional(operation).response("200", answer("what is set and in force now", JSON, "Set"));
    vec![
        (
            HttpMethod::Get,
            config,
            about(admin("config_get", "What is set for a user and what is in force; without a user, all overrides in pages"))
                .parameter(query("prefix", "users whose ids begin so", text()))
                .parameter(query("cursor", "where the page before ended", text()))
                .parameter(query("limit", "the most of one page", page_size()))
                .response("200", answer("one, or a page", JSON, "Found")),
        ),
        (
            HttpMethod::Post,
            config,
            made(about(admin("config_patch", "Sets the fields given and keeps the others; null gives one back")))
                .request_body(Some(body(JSON, "Override", true))),
        ),
        (
            HttpMethod::Put,
            config,
            made(about(admin("config_replace", "Replaces the whole override"))).request_body(Some(body(JSON, "Override", true))),
        ),
        (HttpMethod::Delete, config, made(about(admin("config_delete", "Back to what is inherited; twice is fine")))),
    ]
}

fn other_calls() -> Vec<Call> {
    vec![
        (
            HttpMethod::Get,
            "/admin/rate-limit/state",
            about(admin("state", "What is left now; takes nothing")).response("200", answer("a peek", JSON, "State")),
        ),
        (
            HttpMethod::Post,
            "/admin/rate-limit/reset",
            about(admin("reset", "Full bucket, empty window")).response("200", answer("done", JSON, "Status")),
        ),
        (
            HttpMethod::Post,
            "/admin/rate-limit/explain",
            admin("explain", "Who a check would be, which route, every value with its source, and a peek")
                .request_body(Some(body(JSON, "Explain", false)))
                .response("200", answer("the explanation", JSON, "Explained")),
        ),
        (
            HttpMethod::Get,
            "/admin/rate-limit/audit",
            about(admin("audit", "Who changed what, when and why, newest first"))
                .parameter(query("limit", "the most", page_size()))
                .response("200", answer("the changes", JSON, "Changes")),
        ),
        (
            HttpMethod::Get,
            "/admin/rate-limit/top",
            admin("top", "The busiest subjects of the last minutes, over all processes")
                .parameter(query("by", "what is counted", text().enum_values(Some(["refused", "admitted"]))))
                .parameter(query("limit", "the most", page_size()))
                .response("200", answer("the subjects", JSON, "Top")),
        ),
        (
            HttpMethod::Get,
            "/admin/rate-limit/export",
            admin("export", "Every override as JSON lines").response("200", answer("the lines", "application/jsonl", "Lines")),
        ),
        (
            HttpMethod::Post,
            "/admin/rate-limit/import",
            admin("import", "Replaces the overrides of the users in it; checked whole before the first is written")
                .request_body(Some(body("application/jsonl", "Lines", true)))
                .response("200", answer("done", JSON, "Status")),
        ),
    ]
}

fn page_size() -> ObjectBuilder {
    whole().minimum(Some(1_u64)).maximum(Some(1_000_u64))
}

fn admin(id: &str, summary: &str) -> OperationBuilder {
    with_body_problems(call(id, "administration", summary))
        .security(SecurityRequirement::new("admin", [] as [&str; 0]))
        .response("401", problem("no token, or one that is not taken"))
        .response("403", problem("this token may only look, or this peer may not administer"))
        .response("404", problem("there is no such route"))
        .response("503", problem("the store could not say"))
}

fn about(operation: OperationBuilder) -> OperationBuilder {
    operation
        .parameter(query("user_id", "who it is about", id()))
        .parameter(query("subject", "the same for what is no user: key:…, ip:…, anon:", text()))
        .parameter(query("route", "the override for a route with limits of its own", text()))
}

fn conditional(operation: OperationBuilder) -> OperationBuilder {
    operation
        .parameter(parameter(
            ParameterIn::Header,
            "If-Match",
            "the version that the caller saw, in quotes",
            text().pattern(Some("^\"[0-9]{1,19}\"$")),
        ))
        .response("412", problem("somebody else changed it meanwhile"))
}
