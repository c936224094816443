//! Doors, probes, metrics.

use utoipa::openapi::ResponseBuilder;
use utoipa::openapi::path::{HttpMethod, OperationBuilder};

use super::schemas::{id, text, whole};
use super::{Call, answer, body, call, problem, query, with_body_problems};

pub(super) fn calls() -> Vec<Call> {
    let json = "application/json";
    let check = with_body_problems(call("check", "asking", "May this user do this now?"))
        .request_body(Some(body(json, "Check", false)))
        .response("200", answer("admitted", json, "Admission"))
        .response("403", problem("blocked, or this peer may not say who asks"))
        .response("422", problem("the cost can never fit"))
        .response("429", problem("refused; Retry-After says when to come back"))
        .response("503", problem("the store could not say, and the limits say deny"));
    let batch = with_body_problems(call("check_batch", "asking", "Up to 1 000 checks, answered in order, each on its own"))
        .request_body(Some(body(json, "Batch", true)))
        .response("200", answer("one answer or problem for each check", json, "BatchAnswers"));
    let plain =
        |id: &str, summary: &str| call(id, "operating", summary).response("200", ResponseBuilder::new().description("it is").build());
    vec![
        (HttpMethod::Post, "/v1/check", check),
        (HttpMethod::Post, "/v1/check/batch", batch),
        (HttpMethod::Get, "/v1/auth", auth()),
        (HttpMethod::Get, "/health/live", plain("live", "Whether the process runs")),
        (
            HttpMethod::Get,
            "/health/ready",
            plain("ready", "Whether to send requests here")
                .response("503", answer("draining, or no answer could be right", json, "Status")),
        ),
        (HttpMethod::Get, "/metrics", plain("metrics", "Everything that is counted, for Prometheus")),
    ]
}

/// Described as a GET; the door takes every method.
fn auth() -> OperationBuilder {
    call("auth", "asking", "Forward-auth for proxies, by any method: exactly 200 when allowed")
        .parameter(query(
            "user",
            "who asks; an empty one is nobody",
            id().min_length(Some(0)).pattern(Some("^[^\\u0000-\\u001f\\u007f-\\u009f]*$")),
        ))
        .parameter(query("cost", "what it takes, at least 1", whole().minimum(Some(1_u64))))
        .parameter(query("route", "the route, by its name", text()))
        .parameter(query("deny_status", "the status of every other outcome, for proxies that carry only some", whole()))
        .response("200", ResponseBuilder::new().description("allowed").build())
        .response("400", problem("an id, a cost or a parameter that is none"))
        .response("401", problem("any refusal, where deny_status says so"))
        .response("403", problem("blocked"))
        .response("422", problem("the cost can never fit"))
        .response("429", problem("refused"))
        .response("503", problem("the store could not say, and the limits say deny"))
}
