//! The admin API over TCP: the operator's night call, from raising a limit to the audit, and everything that must not happen.

use std::fs;

use serde_json::{Value, json};

use crate::support::redis::RedisServer;
use crate::support::server::{Process, Raw, Reply};

struct Admin {
    process: Process,
    token: String,
}

impl Admin {
    fn start(arguments: &[&str]) -> Self {
        let process = Process::start(arguments);
        let token = process.token();
        Self { process, token }
    }

    fn call_as(&self, token: &str, method: &str, path: &str, headers: &str, body: &str) -> Reply {
        let mut raw = Raw::connect(self.process.address);
        raw.send(format!(
            "{method} /admin/rate-limit/{path} HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {token}\r\n{headers}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        raw.reply().expect("an answer")
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Reply {
        self.call_as(&self.token, method, path, "", body)
    }

    #[track_caller]
    fn ok(&self, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.call(method, path, &body.to_string());
        assert_eq!(reply.status, 200, "{method} {path}: {}", reply.body);
        reply.json()
    }

    fn check(&self, user: &str) -> Reply {
        Raw::connect(self.process.address).check("", &json!({"user": user}).to_string()).expect("an answer")
    }

    fn admitted(&self, user: &str, n: usize) -> usize {
        let mut raw = Raw::connect(self.process.address);
        let body = json!({"user": user}).to_string();
        (0..n).filter(|_| raw.check("", &body).expect("an answer").status == 200).count()
    }
}

/// User B needs to pull in bulk tonight: raise, look, let it end, read who did what.
fn the_night_call(admin: &Admin) {
    let raised = admin.ok(
        "POST",
        "config?user_id=b",
        &json!({"tokens_per_second": 10, "expires_in_seconds": 7_200, "reason": "bulk import tonight"}),
    );
    assert_eq!(
        (&raised["status"], &raised["effective"]["tokens_per_second"]),
        (&json!("updated"), &json!({"source": "temporary", "value": 10}))
    );
    assert_eq!(raised["effective"]["window_limit"]["value"], 600, "nobody set it: it follows the rate");
    let state = admin.ok("GET", "state?user_id=b", &json!({}));
    assert_eq!((&state["limit"], &state["breaker"]), (&json!(100), &json!("closed")));
    let explained = admin.ok("POST", "explain", &json!({"user": "b"}));
    assert_eq!((&explained["subject"], &explained["effective"]["bucket_capacity"]["source"]), (&json!("b"), &json!("built-in")));
    let short = admin.ok("POST", "config?user_id=b", &json!({"bucket_capacity": 7, "expires_in_seconds": 0.5, "reason": "only a moment"}));
    assert_eq!(
        short["temporary"]["fields"],
        json!({"bucket_capacity": 7, "tokens_per_second": 10}),
        "a second one merges and sets the end"
    );
    assert_eq!(admin.check("b").json()["limit"], 7);
    let start = weir::clock::monotonic();
    while admin.check("b").json()["limit"] != 100 {
        assert!(weir::clock::elapsed(start) < crate::support::server::PATIENCE, "it ends by itself");
        std::thread::park_timeout(std::time::Duration::from_millis(20));
    }
    let changes = admin.ok("GET", "audit?user_id=b", &json!({}))["changes"].clone();
    let actions: Vec<_> =
        changes.as_array().unwrap().iter().map(|change| (change["by"].as_str().unwrap(), change["action"].as_str().unwrap())).collect();
    assert_eq!(actions, [("weir", "temporary_ended"), ("local", "update"), ("local", "update")]);
    assert_eq!(changes[2]["reason"], "bulk import tonight");
}

#[test]
fn an_operator_raises_a_limit_for_a_night_in_memory_mode() {
    the_night_call(&Admin::start(&[]));
}

#[test]
fn an_operator_raises_a_limit_for_a_night_on_redis() {
    let redis = RedisServer::start();
    the_night_call(&Admin::start(&["--redis-url", &redis.url(), "--redis-deadline-ms", "5000"]));
}

#[test]
fn case_94_removing_every_limit_leaves_what_is_inherited_and_never_unlimited() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    fs::write(&path, "defaults: {bucket_capacity: 10, tokens_per_second: 0.001}\n").unwrap();
    let admin = Admin::start(&["--config", path.to_str().unwrap()]);
    let mut user = 0;
    let mut inherits = |method: &str, body: &Value| {
        user += 1;
        let path = format!("config?user_id=u{user}");
        admin.ok("PUT", &path, &json!({"bucket_capacity": 50}));
        admin.ok(method, &path, body);
        assert_eq!(admin.admitted(&format!("u{user}"), 60), 10, "{method} {body}");
    };
    inherits("PUT", &json!({}));
    inherits("POST", &json!({"bucket_capacity": null}));
    inherits("DELETE", &json!({}));
    assert_eq!(admin.call("PUT", "config?user_id=x", r#"{"mode":"custom"}"#).status, 400);
    assert_eq!(admin.admitted("x", 60), 10);
}

#[test]
fn case_97_ids_of_any_shape_come_back_as_they_went() {
    let admin = Admin::start(&[]);
    let ids = [
        ("1234/5678", "1234/5678"),
        ("a%2Fb", "a%252Fb"),
        ("a/b", "a/b"),
        ("a+b", "a%2Bb"),
        ("a b", "a+b"),
        ("..", ".."),
        ("?x=1", "?x=1"),
        ("用户", "%E7%94%A8%E6%88%B7"),
        ("a\\b", "a%5Cb"),
    ];
    for (n, (_, query)) in ids.iter().enumerate() {
        admin.ok("PUT", &format!("config?user_id={}", query.replace('=', "%3D").replace('?', "%3F")), &json!({"bucket_capacity": n + 1}));
    }
    for (n, (id, query)) in ids.iter().enumerate() {
        let path = format!("config?user_id={}", query.replace('=', "%3D").replace('?', "%3F"));
        let shown = admin.ok("GET", &path, &json!({}));
        assert_eq!((shown["user_id"].as_str().unwrap(), &shown["override"]["bucket_capacity"]), (*id, &json!(n + 1)));
        assert_eq!(admin.check(id).json()["limit"], n + 1);
    }
    assert_eq!(admin.call("GET", "config?user_id=", "").status, 400);
    assert_eq!(admin.ok("GET", "config?user_id=never-seen", &json!({}))["version"], 0);
}

#[test]
fn case_101_bad_values_are_refused_at_every_door_and_nothing_is_written() {
    let admin = Admin::start(&[]);
    for body in [
        r#"{"bucket_capacity":0}"#,
        r#"{"bucket_capacity":-1}"#,
        r#"{"bucket_capacity":1e309}"#,
        r#"{"bucket_capacity":"5"}"#,
        r#"{"bucket_capacity":1.5}"#,
        r#"{"bucket_capacity":true}"#,
        r#"{"capcity":5}"#,
        r#"{"tier":"no-such"}"#,
        r#"{"tokens_per_second":0.000001}"#,
        r#"{"expires_in_seconds":-1,"bucket_capacity":5}"#,
        r#"{"expires_in_seconds":5,"bucket_capacity":null}"#,
        r#"{"refill":"yes"}"#,
        "[]",
        "{",
    ] {
        for method in ["POST", "PUT"] {
            let reply = admin.call(method, "config?user_id=u", body);
            assert_eq!(reply.status, 400, "{method} {body}: {}", reply.body);
        }
    }
    assert_eq!(admin.ok("GET", "config?user_id=u", &json!({}))["version"], 0);
    assert_eq!(admin.call("POST", "config", r#"{"bucket_capacity":5}"#).status, 400, "of whom?");
    assert_eq!(admin.call_as(&admin.token, "POST", "config?user_id=u", "Content-Type: text/plain\r\n", "{}").status, 415);
    assert_eq!(admin.call("POST", "config?user_id=u", &"x".repeat(100_000)).status, 413);
    assert_eq!(admin.call("GET", "config?user_id=u&usr=1", "").status, 400);
}

#[test]
fn an_import_with_a_bad_line_changes_nothing_and_names_it_and_export_and_import_are_inverse() {
    let admin = Admin::start(&[]);
    let line = |n: usize, value: &str| json!({"target": format!("{{u{n}}}"), "fields": {"bucket_capacity": value}}).to_string();
    let bad: Vec<String> = (1..=1_000).map(|n| line(n, if n == 500 { "nan" } else { "5" })).collect();
    let reply = admin.call("POST", "import", &bad.join("\n"));
    assert_eq!(reply.status, 400);
    assert!(reply.json()["detail"].as_str().unwrap().contains("line 500"), "{}", reply.body);
    assert_eq!(admin.call("GET", "export", "").body, "");
    let good: Vec<String> = (1..=100).map(|n| line(n, "5")).collect();
    admin.call("POST", "import", &good.join("\n"));
    let exported = admin.call("GET", "export", "").body;
    assert_eq!(exported.lines().count(), 100);
    let other = Admin::start(&[]);
    assert_eq!(other.call("POST", "import", &exported).status, 200);
    assert_eq!(other.call("GET", "export", "").body, exported);
    assert_eq!(other.check("u7").json()["limit"], 5);
    // What lies over it for a while goes along, with its end.
    admin.ok("POST", "config?user_id=u7", &json!({"bucket_capacity": 9, "expires_in_seconds": 3_600}));
    let exported = admin.call("GET", "export", "").body;
    assert_eq!(other.call("POST", "import", &exported).status, 200);
    assert_eq!(other.call("GET", "export", "").body, exported);
    assert_eq!(other.check("u7").json()["limit"], 9);
    let mut line: Value = serde_json::from_str(exported.lines().find(|line| line.contains("temporary")).unwrap()).unwrap();
    line["fields"]["temporary_until"] = json!("5");
    other.ok("POST", "import", &line);
    assert_eq!(other.check("u7").json()["limit"], 5, "what has ended elsewhere does not begin here");
}

#[test]
fn a_stale_if_match_is_412() {
    let admin = Admin::start(&[]);
    let version = admin.ok("PUT", "config?user_id=u", &json!({"bucket_capacity": 5}))["version"].clone();
    let matched = |version: &Value| {
        admin.call_as(&admin.token, "POST", "config?user_id=u", &format!("If-Match: \"{version}\"\r\n"), r#"{"bucket_capacity":6}"#).status
    };
    assert_eq!((matched(&version), matched(&version)), (200, 412));
}

#[test]
fn refill_fills_the_bucket_and_reset_forgets_everything() {
    let admin = Admin::start(&[]);
    admin.ok("PUT", "config?user_id=u", &json!({"bucket_capacity": 5, "tokens_per_second": 0.001}));
    assert_eq!(admin.admitted("u", 10), 5);
    admin.ok("POST", "config?user_id=u", &json!({"refill": true}));
    assert_eq!(admin.admitted("u", 10), 5);
    admin.ok("POST", "reset?user_id=u", &json!({}));
    assert_eq!(admin.admitted("u", 10), 5);
}

#[test]
fn tokens_have_roles_and_only_their_hashes_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines = String::from("# who may\n\n");
    let mut tokens = Vec::new();
    for role in ["viewer", "operator"] {
        let output =
            std::process::Command::new(env!("CARGO_BIN_EXE_weir")).args(["token", "new", "--name", role, "--role", role]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let token = said.lines().next().unwrap().strip_prefix("token: ").unwrap().to_owned();
        lines.push_str(said.lines().last().unwrap());
        lines.push('\n');
        assert!(!lines.contains(&token));
        tokens.push(token);
    }
    let file = folder.path().join("tokens");
    fs::write(&file, lines).unwrap();
    let process = Process::start(&["--admin-tokens-file", file.to_str().unwrap(), "--log-level", "trace"]);
    let admin = Admin { process, token: tokens[1].clone() };
    let status = |token: &str, method: &str| admin.call_as(token, method, "config?user_id=u", "", "{}").status;
    assert_eq!([status(&tokens[0], "GET"), status(&tokens[0], "PUT"), status(&tokens[0], "DELETE")], [200, 403, 403]);
    assert_eq!([status(&tokens[1], "GET"), status(&tokens[1], "PUT")], [200, 200]);
    assert_eq!([status("wrong", "GET"), status("", "GET")], [401, 401]);
    assert_eq!(admin.ok("GET", "audit?user_id=u", &json!({}))["changes"][0]["by"], "operator");
    // Taken back while it runs: the operator's line goes, the viewer's stays.
    let lines = fs::read_to_string(&file).unwrap();
    let viewers: Vec<&str> = lines.lines().filter(|line| !line.contains("operator")).collect();
    fs::write(&file, viewers.join("\n")).unwrap();
    let start = weir::clock::monotonic();
    while status(&tokens[1], "GET") != 401 {
        assert!(weir::clock::elapsed(start) < crate::support::server::PATIENCE, "the token is taken no more");
        std::thread::park_timeout(std::time::Duration::from_millis(50));
    }
    assert_eq!(status(&tokens[0], "GET"), 200);
    admin.process.signal("TERM");
    let (_, log) = admin.process.wait();
    assert!(log.iter().all(|line| tokens.iter().all(|token| !line.contains(token))), "no token is in the log");
}

#[test]
fn bad_token_files_are_an_error_at_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tokens");
    for (text, said) in [("", "no token"), ("alice admin 00", "line 1"), ("alice viewer xyz", "line 1")] {
        fs::write(&file, text).unwrap();
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(["serve", "--bind", "127.0.0.1:0", "--admin-tokens-file", file.to_str().unwrap(), "--data-dir"])
            .arg(folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && stderr.contains(said), "{text:?}: {stderr}");
    }
}

#[test]
fn a_second_process_without_redis_is_sent_away_from_the_same_directory() {
    let folder = tempfile::tempdir().unwrap();
    let directory = folder.path().to_str().unwrap();
    let _first = Process::start(&["--data-dir", directory]);
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
        .args(["serve", "--bind", "127.0.0.1:0", "--data-dir", directory])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && stderr.contains("in use by another process") && stderr.contains("hint:"), "{stderr}");
}

/// `weir config` against the running service.
#[test]
fn the_command_line_sets_shows_lists_exports_and_imports() {
    let admin = Admin::start(&[]);
    let url = format!("http://{}", admin.process.address);
    let weir = |arguments: &[&str], input: &str| {
        let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("config")
            .args(arguments)
            .env("WEIR_URL", &url)
            .env("WEIR_TOKEN", &admin.token)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, set, _) = weir(&["set", "a b/c", "bucket_capacity=7", "mode=shadow", "--reason", "a try"], "");
    let set: Value = serde_json::from_str(&set).unwrap();
    assert_eq!((code, &set["user_id"], &set["override"]), (Some(0), &json!("a b/c"), &json!({"bucket_capacity": 7, "mode": "shadow"})));
    assert_eq!(admin.check("a b/c").json()["limit"], 7);
    weir(&["unset", "a b/c", "mode"], "");
    let (_, exported, _) = weir(&["export"], "");
    let (_, listed, _) = weir(&["list", "--prefix", "a b"], "");
    assert_eq!(listed.trim(), r#"a b/c  {"bucket_capacity":7}"#);
    weir(&["unset", "a b/c"], "");
    assert_eq!(weir(&["export"], "").1.trim(), "");
    assert_eq!(weir(&["import", "-"], &exported).0, Some(0));
    assert_eq!(weir(&["export"], "").1, exported);
    let (code, _, error) = weir(&["set", "u", "capcity=7"], "");
    assert!(code == Some(1) && error.starts_with("error:") && error.contains("did you mean bucket_capacity"), "{error}");
}

#[test]
fn the_admin_api_answers_only_where_it_was_told_to() {
    let process = Process::start(&["--admin-bind", "127.0.0.1:0"]);
    let operators = process.operators.expect("an address for operators");
    let token = process.token();
    let status = |address| {
        let mut raw = Raw::connect(address);
        raw.send(format!("GET /admin/rate-limit/config HTTP/1.1\r\nHost: weir\r\nAuthorization: Bearer {token}\r\n\r\n"));
        raw.reply().expect("an answer").status
    };
    assert_eq!((status(process.address), status(operators)), (404, 200));
    assert_eq!(Raw::connect(process.address).check("", "{}").expect("an answer").status, 200);
    assert_eq!(Raw::connect(operators).check("", "{}").expect("an answer").status, 200);
}

#[test]
fn an_address_may_be_written_in_any_of_its_ways() {
    let admin = Admin::start(&[]);
    admin.ok("PUT", "config?subject=ip:2001:DB8:0:0:1::7", &json!({"mode": "block"}));
    for written in ["ip:2001:db8::/64", "ip:2001:db8::", "ip:2001:db8:0:0:ffff::1"] {
        assert_eq!(admin.ok("GET", &format!("config?subject={written}"), &json!({}))["override"]["mode"], "block", "{written}");
    }
    assert_eq!(admin.ok("GET", "config?subject=ip:::ffff:203.0.113.9", &json!({}))["user_id"], "ip:203.0.113.9");
    let blocked = Raw::connect(admin.process.address).check("", r#"{"address":"2001:db8::42"}"#).expect("an answer");
    assert_eq!(blocked.status, 403);
}

#[test]
fn explain_says_who_somebody_elses_request_would_be_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limit.yaml");
    let file = "anonymous: {shared: {bucket_capacity: 30}, per_address: {window_limit: 5}}\n\
                identity: {trusted_peers: [10.0.0.0/8], trusted_proxies: [10.1.0.0/16], auth_headers: [X-User-ID]}\n\
                routes: [{name: search, match: {path: /search}, limits: {bucket_capacity: 3}, on_store_failure: deny}]\n";
    fs::write(&path, file).unwrap();
    let admin = Admin::start(&["--config", path.to_str().unwrap()]);
    let explain = |body: Value| admin.ok("POST", "explain", &body);
    let user = explain(json!({"peer": "10.2.0.1", "headers": {"X-API-Key": "k", "X-User-ID": "u"}, "path": "/search?q=1"}));
    assert!(user["subject"].as_str().unwrap().starts_with("key:"), "the key goes before the id: {user}");
    assert_eq!(
        (&user["because"], &user["matched_route"]),
        (&json!("the API key header names the user, and the peer is trusted"), &json!("search"))
    );
    assert_eq!(
        (&user["effective"]["bucket_capacity"], &user["on_store_failure"]),
        (&json!({"value": 3, "source": "route"}), &json!("deny"))
    );
    assert_eq!(user["asked_first"], Value::Null);
    let forwarded = explain(json!({"peer": "10.1.0.9", "headers": {"X-Forwarded-For": ["198.51.100.1", "203.0.113.5, 10.1.0.3"]}}));
    assert_eq!(forwarded["subject"], "ip:203.0.113.5");
    assert_eq!((&forwarded["peek"]["limit"], &forwarded["asked_first"]["peek"]["limit"]), (&json!(5), &json!(30)));
    let forged = explain(json!({"peer": "203.0.113.77", "door": "auth", "headers": {"X-User-ID": "root", "X-Forwarded-For": "1.2.3.4"}}));
    assert_eq!((&forged["subject"], &forged["ignored"]), (&json!("ip:203.0.113.77"), &json!({"user": true, "address": true})));
    assert_eq!(explain(json!({"peer": "10.2.0.1", "door": "auth", "headers": {"X-API-Key": "k"}}))["subject"], "ip:10.2.0.1", "not named");
    assert_eq!(explain(json!({"peer": "unix", "user": "u"}))["subject"], "u");
    let nobody = explain(json!({"peer": "10.2.0.1", "door": "auth", "headers": {"X-User-ID": [" ", ""]}}));
    assert_eq!(nobody["subject"], "ip:10.2.0.1", "an empty header is nobody, as at the door");
    assert_eq!(admin.call("POST", "explain", r#"{"peer":"203.0.113.77","user":"root"}"#).status, 403, "as the door would");
    for bad in
        [r#"{"peer":"here"}"#, r#"{"peer":7}"#, r#"{"headers":[]}"#, r#"{"headers":{"a":7}}"#, r#"{"door":"back"}"#, r#"{"usr":"a"}"#]
    {
        assert_eq!(admin.call("POST", "explain", bad).status, 400, "{bad}");
    }
}

/// Three processes count together; what one has counted is in its own answer at once, in the others' within seconds.
#[test]
fn top_shows_the_busiest_of_all_processes() {
    let redis = RedisServer::start();
    let url = redis.url();
    let arguments = ["--redis-url", url.as_str(), "--redis-deadline-ms", "5000"];
    let admins = [0, 1, 2].map(|_| Admin::start(&arguments));
    admins[0].ok("PUT", "config?user_id=flood", &json!({"bucket_capacity": 5, "tokens_per_second": 0.001}));
    for (n, admin) in admins.iter().enumerate() {
        admin.admitted("flood", 30);
        admin.admitted(&format!("calm{n}"), 3);
        admin.ok("GET", "top", &json!({}));
    }
    let refused = admins[0].ok("GET", "top?by=refused", &json!({}));
    assert_eq!(refused["subjects"], json!([{"user_id": "flood", "refused": 85, "admitted": 5}]));
    let admitted = admins[2].ok("GET", "top?by=admitted&limit=2", &json!({}));
    assert_eq!(admitted["subjects"][0]["user_id"], "flood");
    assert_eq!(admitted["subjects"][1], json!({"user_id": "calm0", "refused": 0, "admitted": 3}));
    assert_eq!(admins[0].call("GET", "top?by=name", "").status, 400);
}

#[test]
fn top_without_redis_shows_the_busiest_of_this_process() {
    let admin = Admin::start(&[]);
    assert_eq!(admin.ok("GET", "top", &json!({}))["subjects"], json!([]));
    assert_eq!(admin.admitted("a:b", 102), 100);
    let peek = Raw::connect(admin.process.address).check("", r#"{"user":"looks","cost":0}"#).expect("an answer");
    assert_eq!(peek.status, 200);
    assert_eq!(admin.ok("GET", "top", &json!({}))["subjects"], json!([{"user_id": "a:b", "refused": 2, "admitted": 100}]));
    assert_eq!(admin.ok("GET", "top?by=admitted", &json!({}))["subjects"].as_array().map(Vec::len), Some(1), "a peek is no request");
}
