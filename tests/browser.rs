//! What only a browser shows, in headless Chromium: pages on other origins, and the page that shows the API.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};
use serde_json::{Value, json};
use support::server::{Setup, limits};
use weir::http::Settings;
use weir::limit::Field;

/// A browser on a busy machine takes its time to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A server with one page, on an origin of its own, and what the page found out and posted to `/result`.
fn page(html: String) -> (String, Receiver<Value>) {
    let (tell, told) = mpsc::channel();
    let (tell_result, result) = mpsc::channel();
    std::thread::spawn(move || {
        actix_web::rt::System::new().block_on(async move {
            let server = HttpServer::new(move || {
                let (html, tell) = (html.clone(), tell_result.clone());
                let keep = move |found: web::Json<Value>| {
                    let _ = tell.send(found.into_inner());
                    async { HttpResponse::NoContent().finish() }
                };
                App::new()
                    .route("/", web::get().to(move || std::future::ready(HttpResponse::Ok().content_type("text/html").body(html.clone()))))
                    .route("/result", web::post().to(keep))
            });
            let server = server.workers(1).disable_signals().bind("127.0.0.1:0").unwrap();
            tell.send(server.addrs()[0]).unwrap();
            server.run().await.unwrap();
        });
    });
    (format!("http://{}", told.recv_timeout(PATIENCE).unwrap()), result)
}

struct Browser {
    child: Child,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// Opens `url`; no name but this machine's address is found.
    fn open(url: &str, more: &[&str]) -> Self {
        let profile = tempfile::tempdir().unwrap();
        let start = |program: &str| {
            Command::new(program)
                .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions"])
                .args([
                    "--disable-background-networking",
                    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
                    "--remote-debugging-port=0",
                ])
                .arg(format!("--user-data-dir={}", profile.path().display()))
                .args(more)
                .arg(url)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let child = start("chromium").or_else(|_| start("chromium-browser"));
        let child =
            child.unwrap_or_else(|error| panic!("this test needs chromium on the PATH (Debian: apt-get install chromium): {error}"));
        Self { child, _profile: profile }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Asked to end, it ends its helper processes too.
        let _ = Command::new("kill").arg(self.child.id().to_string()).status();
        let _ = self.child.wait();
    }
}

#[test]
fn case_107_ten_posts_of_a_page_on_another_origin_cost_ten_and_their_preflights_nothing() {
    let fields = [(Field::Algorithm, "token_bucket"), (Field::BucketCapacity, "10"), (Field::TokensPerSecond, "0.001")];
    let script = r#"<script>
        const found = [];
        const ask = async () => {
            const response = await fetch(WEIR + "/v1/check", {method: "POST", headers: {"Content-Type": "application/json"}, body: '{"user":"page"}'});
            const seen = name => response.headers.get(name);
            found.push([response.status, seen("X-RateLimit-Remaining"), seen("Retry-After") !== null, seen("retry-after-ms") !== null, seen("RateLimit") !== null]);
        };
        (async () => {
            try { for (let n = 0; n < 11; n++) await ask(); } catch (error) { found.push(String(error)); }
            await fetch("/result", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(found)});
        })();
    </script>"#;
    // Which origin the page has is known when its server listens, and the page must know the service: the service takes any origin.
    let settings = Settings { cors_origins: vec!["*".to_owned()], ..Settings::default() };
    let service = Setup { settings, ..Setup::default() }.config(limits(&fields)).start();
    let (origin, result) = page(format!("<script>const WEIR = \"{}\";</script>{script}", service.url("")));
    let _browser = Browser::open(&origin, &[]);
    let found = result.recv_timeout(PATIENCE).expect("the page did not finish");
    let mut wanted: Vec<Value> = (0..10).rev().map(|left| json!([200, left.to_string(), false, false, true])).collect();
    wanted.push(json!([429, "0", true, true, true]));
    assert_eq!(found, Value::from(wanted));
    assert_eq!(service.decisions(), 11.0, "preflights ask nobody");
}

#[test]
fn the_page_of_the_api_shows_every_call_without_asking_anybody_else() {
    let service = Setup::default().start();
    let script = r#"<script>
        const report = found => fetch("/result", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(found)});
        const look = () => {
            const inside = document.querySelector("iframe");
            const drawn = inside.contentDocument?.querySelector("rapi-doc")?.shadowRoot;
            const text = drawn?.textContent ?? "";
            if (!text.includes("Up to 1 000 checks") || !text.includes("Replaces the overrides")) return setTimeout(look, 50);
            const asked = inside.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name);
            report({asked, check: text.includes("/v1/check"), admin: text.includes("/admin/rate-limit/config")});
        };
        onload = look;
    </script>"#;
    let (origin, result) = page(format!("<iframe src=\"{}\" width=1000 height=800></iframe>{script}", service.url("/docs")));
    // The page around it looks into the one inside, which is what browsers are made to forbid.
    let _browser = Browser::open(&origin, &["--disable-web-security", "--disable-site-isolation-trials"]);
    let found = result.recv_timeout(PATIENCE).expect("the page was not drawn");
    assert_eq!((&found["check"], &found["admin"]), (&json!(true), &json!(true)));
    let asked: Vec<&str> = found["asked"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(asked.contains(&service.url("/openapi.json").as_str()), "{asked:?}");
    assert!(asked.iter().all(|url| url.starts_with(&service.url("")) || url.starts_with("data:")), "{asked:?}");
}
