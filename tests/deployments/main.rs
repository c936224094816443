//! Where Redis may be: a Unix socket, TLS, behind an ACL user, behind Sentinels, a cluster. Real servers, all of the service's commands.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod sentinel;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use support::redis::{RedisServer, free_port};
use support::rig::{self, Instance, eventually, patient, policy, take, target, with_files};
use weir::limiter::Order;
use weir::overrides::Change;
use weir::store::{ErrorKind, RedisFiles, RedisStore, Store};

/// Everything that the service ever asks of a Redis.
async fn everything_works(instance: &Instance) {
    let Instance { limiter, store, .. } = instance;
    store.ping().await.expect("a ping");
    assert_eq!(instance.ask("alice").await.expect("an answer").decision.quota.expect("a quota").remaining, 99);
    instance.set_capacity("alice", 7).await;
    assert_eq!(instance.ask("alice").await.expect("an answer").decision.quota.expect("a quota").limit, 7);
    assert_eq!(limiter.audit(&target("alice"), 10).await.expect("an audit").len(), 1);
    let page = limiter.overrides().expect("overrides").store().list("", None, 10).await.expect("a list");
    assert_eq!(page.items.len(), 1);
    limiter.change(&target("alice"), &Change::Delete, &Order::default()).await.expect("deleted");
    assert_eq!(limiter.overrides().expect("overrides").store().list("", None, 10).await.expect("a list").items.len(), 0);
    limiter.reset(&target("alice")).await.expect("reset");
    assert_eq!(instance.ask("alice").await.expect("an answer").decision.quota.expect("a quota").remaining, 99);
    for yaml in ["algorithm: sliding_window", "algorithm: sliding_window\n  window_precision: sliced"] {
        let (config, _) = weir::config::Config::from_yaml(&format!("defaults:\n  {yaml}\n")).expect("a good file");
        limiter.reload(config);
        assert!(instance.ask("windowed").await.expect("an answer").decision.admitted);
    }
    assert_eq!(store.announce().await.expect("announced"), 1);
    assert!(store.forgetful().await.expect("asked").is_empty());
    assert_eq!(store.take_leave().await.expect("left"), 0);
}

/// A change through one instance is heard by another.
async fn changes_are_heard(url: &str, files: RedisFiles) {
    let instance = || Instance::on(with_files(url, files.clone()), "defaults: {algorithm: token_bucket}");
    let (one, other) = (instance(), instance());
    let limit = async || other.ask("bob").await.expect("an answer").decision.quota.map_or(0, |quota| quota.limit);
    for capacity in 1..=5 {
        one.set_capacity("bob", 1_000 + capacity).await;
        eventually("the change is heard", Duration::from_secs(1), async || limit().await == u64::from(1_000 + capacity)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_unix_socket() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("redis.sock");
    let _server = RedisServer::start_with(&["--unixsocket", socket.to_str().unwrap()]);
    let url = format!("redis+unix://{}", socket.display());
    everything_works(&Instance::on(patient(&url), "defaults: {}")).await;
    changes_are_heard(&url, RedisFiles::default()).await;
}

/// The rule in docs/operations.md, as it stands there.
fn documented_acl_rule() -> String {
    let path = format!("{}/docs/operations.md", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let rule = text.split("ACL SETUSER weir ").nth(1).expect("the rule").split("```").next().unwrap();
    rule.replace('\\', " ").split_whitespace().collect::<Vec<_>>().join(" ")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_user_with_the_documented_commands_and_channels_and_no_others() {
    let server = RedisServer::start();
    let rule = documented_acl_rule();
    assert!(!rule.contains("+@") && !rule.contains("~*") && !rule.contains("&*"), "{rule}");
    server.run::<()>(&format!("ACL SETUSER weir {rule}"));
    let url = format!("redis://weir:a-password@127.0.0.1:{}", server.port());
    everything_works(&Instance::on(patient(&url), "defaults: {}")).await;
    changes_are_heard(&url, RedisFiles::default()).await;
    // (SETINFO is a courtesy of the library, and WAITAOF came with Redis 7.2; neither is needed.)
    let log: Vec<HashMap<String, redis::Value>> = server.run("ACL LOG");
    let refused: Vec<String> = log.iter().map(|entry| format!("{:?}", entry.get("object"))).collect();
    assert!(refused.iter().all(|what| what.contains("client") || what.contains("waitaof")), "{log:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acl_user_without_a_command_is_told_so() {
    let server = RedisServer::start();
    server.run::<()>("ACL SETUSER weir on >a-password ~ratelimit:* -@all +ping");
    let store = patient(&format!("redis://weir:a-password@127.0.0.1:{}", server.port()));
    let error = take(&store, "u", &policy(5)).await.unwrap_err();
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Denied, true), "{error}");
    let wrong = patient(&format!("redis://weir:wrong@127.0.0.1:{}", server.port()));
    let error = take(&wrong, "u", &policy(5)).await.unwrap_err();
    assert_eq!((error.kind, error.did_not_run), (ErrorKind::Denied, true), "{error}");
    assert!(!error.to_string().contains("wrong@"), "{error}");
}

/// A CA, and a certificate with its key for the server and for the client.
struct Certificates {
    dir: tempfile::TempDir,
}

impl Certificates {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // A certificate whose issuer has its own name would pass for its own.
        authority.distinguished_name.push(DnType::CommonName, "an authority of a test");
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
        std::fs::write(dir.path().join("ca.pem"), authority.pem()).unwrap();
        for (name, usage) in [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)] {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
            params.extended_key_usages = vec![usage, ExtendedKeyUsagePurpose::ClientAuth];
            let certificate = params.signed_by(&key, &authority).unwrap();
            std::fs::write(dir.path().join(format!("{name}.pem")), certificate.pem()).unwrap();
            std::fs::write(dir.path().join(format!("{name}.key")), key.serialize_pem()).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn arguments(&self, port: u16) -> Vec<String> {
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        vec![
            "--tls-port".to_owned(),
            port.to_string(),
            "--tls-cert-file".to_owned(),
            text(&self.path("server.pem")),
            "--tls-key-file".to_owned(),
            text(&self.path("server.key")),
            "--tls-ca-cert-file".to_owned(),
            text(&self.path("ca.pem")),
            "--tls-auth-clients".to_owned(),
            "yes".to_owned(),
        ]
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_with_an_authority_of_its_own_and_a_client_certificate() {
    let certificates = Certificates::new();
    let port = free_port(u16::MAX);
    let arguments = certificates.arguments(port);
    let _server = RedisServer::start_with(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let url = format!("rediss://localhost:{port}");
    let ca = Some(certificates.path("ca.pem"));
    let certificate = Some((certificates.path("client.pem"), certificates.path("client.key")));
    let files = RedisFiles { ca: ca.clone(), certificate: certificate.clone(), ..RedisFiles::default() };
    everything_works(&Instance::on(with_files(&url, files.clone()), "defaults: {}")).await;
    changes_are_heard(&url, files).await;
    // Without the authority, and without the certificate, there is no connection and nothing runs.
    let refused = async |files: RedisFiles| {
        let store: RedisStore = rig::store(&url, Duration::from_secs(2), files);
        take(&store, "u", &policy(5)).await.expect_err("refused")
    };
    assert!(refused(RedisFiles { certificate, ..RedisFiles::default() }).await.did_not_run);
    let without_certificate = refused(RedisFiles { ca, ..RedisFiles::default() }).await;
    assert!(matches!(without_certificate.kind, ErrorKind::Connection | ErrorKind::Timeout | ErrorKind::Denied), "{without_certificate}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn case_79_a_password_that_changes_while_running_is_read_again() {
    let server = RedisServer::start();
    let file = server.dir().join("password");
    std::fs::write(&file, "first-secret\n").unwrap();
    let rule = documented_acl_rule().replace(">a-password", ">first-secret");
    server.run::<()>(&format!("ACL SETUSER weir {rule}"));
    let files = RedisFiles { password: Some(file.clone()), ..RedisFiles::default() };
    let store = with_files(&format!("redis://weir@127.0.0.1:{}", server.port()), files);
    assert_eq!(take(&store, "u", &policy(50)).await.expect("an answer"), 49);
    server.run::<()>("ACL SETUSER weir >second-secret <first-secret");
    std::fs::write(&file, "second-secret").unwrap();
    server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    let took = eventually("the new password is used", Duration::from_secs(2), async || take(&store, "u", &policy(50)).await.is_ok()).await;
    println!("a new password was in use {took:?} after the old one was gone");
    let left = take(&store, "u", &policy(50)).await.expect("an answer");
    assert_eq!(left, 47, "each answer was charged once");
    // A wrong one is an error that names no secret.
    std::fs::write(&file, "third-secret").unwrap();
    server.run::<u64>("CLIENT KILL TYPE normal SKIPME yes");
    let error = loop {
        if let Err(error) = take(&store, "u", &policy(50)).await
            && error.kind == ErrorKind::Denied
        {
            break error;
        }
    };
    assert!(!error.to_string().contains("secret"), "{error}");
}
