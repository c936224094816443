//! `--help`, and what is made of the same declarations.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::process::{Command, Output};

use support::server::{Process, Setup};
use support::shell::Shell;

fn weir(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_weir")).args(args).output().expect("weir starts")
}

fn stdout(args: &[&str]) -> String {
    let output = weir(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Every command, as the words behind `weir`, with its help; found by reading the help.
fn commands() -> Vec<(Vec<String>, String)> {
    let mut found: Vec<(Vec<String>, String)> = Vec::new();
    let mut next = vec![Vec::new()];
    while let Some(words) = next.pop() {
        let mut arguments: Vec<&str> = words.iter().map(String::as_str).collect();
        arguments.push("--help");
        let help = stdout(&arguments);
        let below = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
        for name in below.filter_map(|line| line.strip_prefix("  ")?.split(' ').next().filter(|name| !name.is_empty() && *name != "help")) {
            next.push(words.iter().map(String::as_str).chain([name]).map(str::to_owned).collect());
        }
        found.push((words, help));
    }
    found
}

/// The commands under `Examples:`, without what is said beside them.
fn examples(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| !line.starts_with("Example")).skip(1).take_while(|line| line.starts_with("  "));
    lines.map(|line| line.trim().split("  ").next().expect("a part").to_owned()).collect()
}

#[test]
fn every_command_has_examples() {
    let without: Vec<_> = commands().into_iter().filter(|(_, help)| examples(help).is_empty()).map(|(words, _)| words.join(" ")).collect();
    assert!(without.is_empty(), "no examples in the help of {without:?}");
}

/// In one session, with a service that is there, and files by the names that the examples use.
#[test]
fn every_example_in_the_help_does_what_it_should() {
    let mut shell = Shell::new();
    shell.stand_in("10.0.0.5", "127.0.0.1");
    shell.stand_in("/etc/weir", "./etc");
    shell.stand_in("/var/log/nginx/", "");
    let mut log = Vec::new();
    loadtest::access_log::write(&mut log, &loadtest::access_log::Args { lines: 200, seed: 7 }).unwrap();
    shell.file("access.log", log);
    shell.file("trace.jsonl", r#"{"at":1767225600000000,"user":"a","cost":1}"#);
    let ready = shell.run("mkdir etc; cp config/limit.yaml .; gzip -c access.log > access.log.2.gz; redis-server --port 6379 &");
    assert_eq!(ready.0, 0, "{}", ready.1);
    for (words, help) in commands() {
        for example in examples(&help) {
            let serves = example.contains("weir serve");
            if serves {
                shell.run("stop-services");
            } else {
                shell.run("[ -f $SESSION/services ] || { weir serve --config config/limit.yaml; weir config set mallory mode=block; weir config export > overrides.jsonl; }");
            }
            let (code, printed) = shell.run(&example);
            assert_eq!(code, 0, "weir {} --help: {example}\n{printed}", words.join(" "));
            if serves {
                let (code, printed) = shell.run("test -f $SESSION/services && stop-services");
                assert_eq!(code, 0, "{example} does not run\n{printed}");
            }
        }
    }
}

#[test]
fn health_is_0_when_ready_1_when_not_and_2_when_asked_wrongly() {
    let mut server = Setup::default().start();
    let url = server.url("");
    for more in [&["--url", &url][..], &["--url", &format!("{url}/")], &["--url", &url, "--live"]] {
        let output = weir(&[&["health"], more].concat());
        assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr)), (Some(0), "".into()), "{more:?}");
    }
    assert_eq!(stdout(&["health", "--url", &url]), "ready\n");
    assert_eq!(weir(&["health", "--timeout", "0"]).status.code(), Some(2));
    assert_eq!(weir(&["health", "--url"]).status.code(), Some(2));
    server.begin_stop();
    drop(server);
    let output = weir(&["health", "--url", &url]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("error: ") && said.contains("hint: "), "{said}");
}

/// A process on its way out answers 503 while it still takes requests.
#[test]
fn health_says_what_is_wrong() {
    let process = Process::start(&["--redis-url", "redis://127.0.0.1:1"]);
    let url = format!("http://{}", process.address);
    assert_eq!(stdout(&["health", "--url", &url]), "degraded\n");
    process.signal("TERM");
    let mut said = String::new();
    for _ in 0..200 {
        let output = weir(&["health", "--url", &url]);
        said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(1) {
            break;
        }
    }
    assert!(said.contains("draining") || said.contains("is the service there?"), "{said}");
    assert_eq!(process.wait().0.code(), Some(0));
}

#[test]
fn health_takes_no_other_server_for_weir() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let other = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]);
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    });
    let output = weir(&["health", "--url", &url]);
    other.join().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn completions_know_every_command_in_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = stdout(&["completions", shell]);
        for (words, _) in commands() {
            assert!(words.iter().all(|word| script.contains(word.as_str())), "{shell} does not complete {words:?}");
        }
    }
    let mut shell = Shell::new();
    let (code, printed) =
        shell.run(". <(weir completions bash)\nCOMP_WORDS=(weir ser); COMP_CWORD=1; _weir weir ser weir; echo \"${COMPREPLY[@]}\"");
    assert_eq!((code, printed.as_str()), (0, "serve"));
}

#[test]
fn there_is_a_manual_page_for_every_command_with_its_examples() {
    let folder = tempfile::tempdir().unwrap();
    stdout(&["man", "--out", folder.path().join("man1").to_str().unwrap()]);
    let commands = commands();
    for (words, help) in &commands {
        let name = std::iter::once("weir").chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join("-");
        let page = std::fs::read_to_string(folder.path().join(format!("man1/{name}.1"))).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(page.is_ascii(), "{name}.1: roff takes other characters only with a preprocessor");
        let plain = page.replace("\\-", "-").replace("\\\\", "\\").replace("\\*(Aq", "'").replace("\\'", "'");
        for example in examples(help) {
            assert!(plain.contains(&example), "{name}.1 has not: {example}\n{plain}");
        }
    }
    assert_eq!(std::fs::read_dir(folder.path().join("man1")).unwrap().count(), commands.len());
    assert_eq!(stdout(&["man"]), std::fs::read_to_string(folder.path().join("man1/weir.1")).unwrap());
}
