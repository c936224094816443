//! The recipes of `deploy/proxies` as they are (ports and folders put in), in front of a real Weir and an origin: client, proxy, Weir, origin.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use support::server::{PATIENCE, Process, Raw, Reply};

mod support;

/// Two clients; neither is a proxy that Weir trusts.
const ALICE: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 9);
const BOB: Ipv4Addr = Ipv4Addr::new(127, 9, 9, 10);

/// Five an hour for each address, one on exports, none on what is blocked. Weir is told to believe the headers that a forger would use.
const LIMITS: &str = "\
identity: {trusted_peers: [127.0.0.1/32], trusted_proxies: [127.0.0.1/32], auth_headers: [X-User-ID, X-API-Key]}
anonymous: {per_address: {window_limit: 5, window_seconds: 3600}}
routes:
  - {name: export, match: {path: /export/*, methods: [POST]}, limits: {algorithm: sliding_window, window_limit: 1, window_seconds: 3600}}
  - {name: closed, match: {path: /closed/*}, limits: {mode: block}}
";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recipe {
    Nginx,
    NginxByStatus,
    Caddy,
    Haproxy,
}

impl Recipe {
    const fn file(self) -> &'static str {
        match self {
            Self::Nginx => "nginx.conf",
            Self::NginxByStatus => "nginx-by-status.conf",
            Self::Caddy => "Caddyfile",
            Self::Haproxy => "haproxy.cfg",
        }
    }

    /// What a client is told while Weir is away.
    const fn while_weir_is_away(self) -> u16 {
        match self {
            Self::NginxByStatus => 503,
            Self::Nginx | Self::Caddy | Self::Haproxy => 200,
        }
    }

    fn command(self, file: &Path, folder: &Path) -> Command {
        let (program, arguments) = match self {
            Self::Nginx | Self::NginxByStatus => {
                ("nginx", vec!["-e", "stderr", "-g", "daemon off; master_process off; error_log stderr crit;", "-c"])
            }
            Self::Caddy => ("caddy", vec!["run", "--adapter", "caddyfile", "--config"]),
            Self::Haproxy => ("haproxy", vec!["-db", "-f"]),
        };
        // Debian keeps servers where a user's own PATH does not look.
        let program = if Path::new("/usr/sbin").join(program).exists() { format!("/usr/sbin/{program}") } else { program.to_owned() };
        let mut command = Command::new(program);
        command.args(arguments).arg(file).env("HOME", folder).env("XDG_DATA_HOME", folder).env("XDG_CONFIG_HOME", folder);
        command
    }
}

fn recipe(file: &str) -> String {
    let path = format!("{}/deploy/proxies/{file}", env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port()
}

/// Asks until it is so.
fn eventually(mut is_so: impl FnMut() -> bool, what: &str) {
    let start = weir::clock::monotonic();
    while !is_so() {
        assert!(weir::clock::elapsed(start) < PATIENCE, "{what}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

/// What the proxies protect: answers 200, and on some paths an error of its own.
struct Origin {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
}

impl Origin {
    fn start() -> Self {
        async fn answer(request: HttpRequest, body: web::Bytes, asked: web::Data<AtomicUsize>) -> HttpResponse {
            asked.fetch_add(1, Ordering::SeqCst);
            let status = match request.path() {
                "/own-403" => 403,
                "/own-500" => 500,
                _ => 200,
            };
            HttpResponse::build(status.try_into().unwrap()).body(format!("{} of {} bytes", request.method(), body.len()))
        }
        let asked = Arc::new(AtomicUsize::new(0));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let counted = web::Data::from(asked.clone());
        std::thread::spawn(move || {
            let server = HttpServer::new(move || App::new().app_data(counted.clone()).default_service(web::to(answer)));
            actix_web::rt::System::new().block_on(server.workers(1).disable_signals().listen(listener).unwrap().run())
        });
        Self { address, asked }
    }
}

/// A proxy with its Weir and its origin.
struct Behind {
    weir: Process,
    origin: Origin,
    address: SocketAddr,
    proxy: Child,
    _folder: tempfile::TempDir,
}

impl Behind {
    fn start(recipe: Recipe) -> Self {
        Self::start_with(recipe, &[])
    }

    /// With these words of the recipe replaced by others.
    fn start_with(recipe: Recipe, edits: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let limits = folder.path().join("limit.yaml");
        fs::write(&limits, LIMITS).unwrap();
        let weir = Process::start(&["--workers", "1", "--config", limits.to_str().unwrap()]);
        let origin = Origin::start();
        // Another process may take a port between our asking for a free one and the proxy's binding it: try again then.
        for _ in 0..10 {
            let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
            let file = folder.path().join(recipe.file());
            fs::write(&file, prepared(recipe, edits, folder.path(), address, weir.address, origin.address)).unwrap();
            let mut proxy = recipe
                .command(&file, folder.path())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap_or_else(|error| {
                    panic!("these tests need nginx, caddy and haproxy on the PATH (sh deploy/install-test-tools.sh): {error}")
                });
            let start = weir::clock::monotonic();
            while proxy.try_wait().unwrap().is_none() && weir::clock::elapsed(start) < PATIENCE {
                if TcpStream::connect(address).is_ok() {
                    return Self { weir, origin, address, proxy, _folder: folder };
                }
                std::thread::park_timeout(Duration::from_millis(20));
            }
            let _ = proxy.kill();
            let _ = proxy.wait();
        }
        panic!("{recipe:?} did not start on any of ten free ports");
    }

    fn ask(&self, from: Ipv4Addr, method: &str, target: &str, headers: &str, body: &str) -> Reply {
        let mut raw = Raw::connect_from(from, self.address);
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        raw.send(format!("{method} {target} HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n{length}{headers}\r\n{body}"));
        if method == "HEAD" { raw.head_reply() } else { raw.reply() }.expect("an answer")
    }

    fn get(&self, from: Ipv4Addr, target: &str) -> Reply {
        self.ask(from, "GET", target, "", "")
    }

    fn origin_asked(&self) -> usize {
        self.origin.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}

/// A recipe as it is, but for ports, folders, and what a test wants otherwise.
fn prepared(which: Recipe, edits: &[(&str, &str)], folder: &Path, clients: SocketAddr, weir: SocketAddr, origin: SocketAddr) -> String {
    let mut text = recipe(which.file());
    let mut replace = |from: &str, to: &str| {
        assert!(text.contains(from), "{which:?} has no {from:?}");
        text = text.replace(from, to);
    };
    for (from, to) in edits {
        replace(from, to);
    }
    replace("127.0.0.1:8080", &weir.to_string());
    replace("127.0.0.1:9000", &origin.to_string());
    let folder = folder.display();
    match which {
        Recipe::Nginx | Recipe::NginxByStatus => {
            replace("listen 8000", &format!("listen {clients}"));
            let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|what| format!("{what}_temp_path {folder}/{what};"));
            replace("http {", &format!("pid {folder}/pid;\nhttp {{ access_log off; {}", paths.join(" ")));
        }
        Recipe::Caddy => {
            replace(":8000 {", &format!(":{} {{\n\tbind 127.0.0.1", clients.port()));
            let second = free_port().to_string();
            replace(":8001", &format!(":{second}"));
        }
        Recipe::Haproxy => {
            replace("bind :8000", &format!("bind {clients}"));
            replace("127.0.0.1:8079", &format!("127.0.0.1:{}", free_port()));
            replace("/etc/haproxy/weir.lua", &format!("{}/deploy/proxies/weir.lua", env!("CARGO_MANIFEST_DIR")));
        }
    }
    text
}

/// What every recipe promises its clients.
fn refuses_with_429_and_a_time_to_come_back(recipe: Recipe) {
    let behind = Behind::start(recipe);
    for (n, method) in ["GET", "HEAD", "OPTIONS", "POST", "GET"].into_iter().enumerate() {
        let reply = behind.ask(ALICE, method, &format!("/item/{n}"), "", if method == "POST" { "hello" } else { "" });
        assert_eq!(reply.status, 200, "{method}: {reply:?}");
        if method == "POST" {
            assert_eq!(reply.body, "POST of 5 bytes", "the origin has the request as it was");
        }
    }
    let refused = behind.get(ALICE, "/item/6");
    assert_eq!(refused.status, 429, "{refused:?}");
    let wait: u64 = refused.header("retry-after").expect("Retry-After").parse().expect("whole seconds");
    assert!((3_500..=3_600).contains(&wait), "{wait}");
    assert_eq!((refused.header("content-type"), refused.json()["status"].as_u64()), (Some("application/problem+json"), Some(429)));
    assert_eq!(behind.ask(ALICE, "POST", "/item/6", "", "hello").status, 429);
    assert_eq!(behind.origin_asked(), 5, "the origin has seen what was admitted and no more");

    assert_eq!(behind.get(BOB, "/item/1").status, 200, "another client has limits of its own");
    assert_eq!(behind.get(BOB, "/export/1").status, 200, "the route is for POST");
    assert_eq!(behind.ask(BOB, "POST", "/export/1?page=2", "", "x").status, 200);
    assert_eq!(behind.ask(BOB, "POST", "/export/1", "", "x").status, 429, "path and method found their route");
    let blocked = behind.get(BOB, "/closed/1");
    assert_eq!((blocked.status, blocked.header("retry-after")), (403, None), "{blocked:?}");
    for (target, status) in [("/own-403", 403), ("/own-500", 500)] {
        let reply = behind.get(BOB, target);
        assert_eq!((reply.status, reply.body.as_str()), (status, "GET of 0 bytes"), "an error of the origin's own stays as it is");
    }
}

/// What a client makes up changes nothing: twenty requests, each different, five of them admitted.
fn forged_claims_change_nothing(recipe: Recipe) {
    let behind = Behind::start(recipe);
    let admitted = (0..20)
        .filter(|n| {
            let claims = match n % 4 {
                0 => format!("X-User-ID: u{n}\r\nX-API-Key: k{n}\r\nX_User_ID: v{n}\r\n"),
                1 => format!("X-Forwarded-For: 10.0.0.{n}\r\nX-Forwarded-For: 127.0.0.1\r\nForwarded: for=10.0.0.{n}\r\nX-Real-IP: 10.0.0.{n}\r\n"),
                2 => "X-Original-URI: /closed/1\r\nX-Original-URL: /closed/1\r\nX-Original-Method: POST\r\nX-Forwarded-Uri: /closed/1\r\nX-Forwarded-Method: POST\r\n".to_owned(),
                _ => format!("Connection: X-Forwarded-For, X-Original-URI, X-Forwarded-Uri\r\nX-Weir-Status: 200\r\nX-User-ID: \r\nX-Forwarded-For: u{n}\r\n"),
            };
            let target = format!("/item/{n}?cost=0&user=u{n}&deny_status=200&route=none");
            let reply = behind.ask(ALICE, "GET", &target, &claims, "");
            assert!([200, 429].contains(&reply.status), "{n}: {reply:?}");
            reply.status == 200
        })
        .count();
    assert_eq!(admitted, 5);
    let reply =
        behind.ask(ALICE, "POST", "/export/1", "X-Original-URI: /item/1\r\nX-Forwarded-Uri: /item/1\r\nX-Original-Method: GET\r\n", "x");
    assert_eq!(reply.status, 200);
    for target in ["/export/1", "/%65xport/1", "//export/1", "/a/../export/1", "/export%2F1"] {
        let reply = behind.ask(ALICE, "POST", target, "X-Original-URI: /item/1\r\nX-Forwarded-Uri: /item/1\r\n", "x");
        assert_eq!(reply.status, 429, "{target}: no spelling leads around the route");
    }
}

/// Weir silent, Weir back, Weir gone.
fn without_weir_it_does_what_it_says(recipe: Recipe) {
    let behind = Behind::start(recipe);
    assert_eq!((0..6).map(|_| behind.get(ALICE, "/").status).collect::<Vec<_>>(), [200, 200, 200, 200, 200, 429]);
    let away = recipe.while_weir_is_away();
    let check = || {
        let reply = behind.get(ALICE, "/");
        reply.status == away && reply.header("retry-after").is_some() == (away == 503)
    };
    behind.weir.signal("STOP");
    // (A signal takes its time on a busy machine.)
    eventually(check, "Weir has stopped");
    for _ in 0..3 {
        assert!(check(), "a Weir that does not answer");
    }
    behind.weir.signal("CONT");
    eventually(|| behind.get(ALICE, "/").status == 429, "a Weir that is back is asked again");
    behind.weir.signal("KILL");
    eventually(|| TcpStream::connect(behind.weir.address).is_err(), "Weir is gone");
    for _ in 0..3 {
        assert!(check(), "a Weir that is gone");
    }
}

#[test]
fn nginx_refuses_with_429_and_a_time_to_come_back() {
    refuses_with_429_and_a_time_to_come_back(Recipe::Nginx);
}

#[test]
fn nginx_by_status_refuses_with_429_and_a_time_to_come_back() {
    refuses_with_429_and_a_time_to_come_back(Recipe::NginxByStatus);
}

#[test]
fn caddy_refuses_with_429_and_a_time_to_come_back() {
    refuses_with_429_and_a_time_to_come_back(Recipe::Caddy);
}

#[test]
fn haproxy_refuses_with_429_and_a_time_to_come_back() {
    refuses_with_429_and_a_time_to_come_back(Recipe::Haproxy);
}

#[test]
fn nginx_lets_no_client_say_who_it_is() {
    forged_claims_change_nothing(Recipe::Nginx);
    forged_claims_change_nothing(Recipe::NginxByStatus);
}

#[test]
fn caddy_lets_no_client_say_who_it_is() {
    forged_claims_change_nothing(Recipe::Caddy);
}

#[test]
fn haproxy_lets_no_client_say_who_it_is() {
    forged_claims_change_nothing(Recipe::Haproxy);
}

#[test]
fn nginx_lets_everybody_pass_while_weir_is_away() {
    without_weir_it_does_what_it_says(Recipe::Nginx);
}

#[test]
fn nginx_by_status_lets_nobody_pass_while_weir_is_away() {
    without_weir_it_does_what_it_says(Recipe::NginxByStatus);
}

#[test]
fn caddy_lets_everybody_pass_while_weir_is_away() {
    without_weir_it_does_what_it_says(Recipe::Caddy);
}

#[test]
fn haproxy_lets_everybody_pass_while_weir_is_away() {
    without_weir_it_does_what_it_says(Recipe::Haproxy);
}

#[test]
fn each_recipe_can_be_told_to_let_nobody_pass_while_weir_is_away() {
    for (recipe, edits, status) in [
        (Recipe::Nginx, &[("            error_page 502 504 = @weir_is_away;\n", "")][..], 500),
        (Recipe::Caddy, &[(" 127.0.0.1:8001 {", " {")], 502),
        (Recipe::Haproxy, &[("/v1/auth open", "/v1/auth closed")], 503),
    ] {
        let behind = Behind::start_with(recipe, edits);
        assert_eq!(behind.get(ALICE, "/").status, 200, "{recipe:?}");
        behind.weir.signal("KILL");
        eventually(|| behind.get(BOB, "/").status == status, "nobody passes");
        assert_eq!(behind.get(ALICE, "/").status, status, "{recipe:?}");
    }
}

/// Traefik and Envoy are in no distribution's packages: their recipes are at least well formed and say what the documents say.
#[test]
fn the_recipes_that_do_not_run_here_are_well_formed() {
    for (file, words) in [
        ("traefik.yml", &["filename: /etc/traefik/traefik-dynamic.yml"][..]),
        (
            "traefik-dynamic.yml",
            &["trustForwardHeader: false", "authRequestHeaders:\n          - Accept", "address: http://127.0.0.1:8080/v1/auth\n"],
        ),
        ("envoy.yaml", &["path_prefix: /v1/auth\n", "failure_mode_allow: true", "use_remote_address: true", "- exact: x-forwarded-for\n"]),
    ] {
        let text = recipe(file);
        let documents = saphyr_parser::Parser::new_from_str(&text)
            .map(|event| event.unwrap_or_else(|error| panic!("{file}: {error}")).0)
            .filter(|event| matches!(event, saphyr_parser::Event::DocumentStart(_)))
            .count();
        assert_eq!(documents, 1, "{file}");
        assert!(words.iter().all(|word| text.contains(word)), "{file} has lost one of {words:?}");
    }
}
