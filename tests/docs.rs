//! Documents say what the code says: each command in them is run, each limit file read, each generated part compared.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use support::document::{Block, Document, matches};
use support::shell::Shell;
use weir::config::Config;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
/// How long what happens by and by may take.
const PATIENCE: Duration = Duration::from_secs(60);

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// README, CONTRIBUTING, ARCHITECTURE and everything below docs/.
fn documents() -> Vec<Document> {
    let mut paths: Vec<PathBuf> = vec!["README.md".into(), "CONTRIBUTING.md".into(), "ARCHITECTURE.md".into()];
    let mut folders = vec![PathBuf::from("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(Path::new(ROOT).join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            match path.extension().and_then(|ending| ending.to_str()) {
                _ if entry.path().is_dir() => folders.push(path),
                Some("md") => paths.push(path),
                _ => {}
            }
        }
    }
    paths.sort();
    paths.into_iter().map(|path| Document::new(path.to_str().expect("UTF-8"), &read(path.to_str().expect("UTF-8")))).collect()
}

/// Runs what stands in a document from top to bottom, in one session. What is wrong with it.
fn run(document: &Document) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut shell = Shell::new();
    for block in &document.blocks {
        for (written, meant) in &block.stand_ins {
            shell.stand_in(written, meant);
        }
        for command in &block.first {
            let (code, printed) = shell.run(command);
            if code != 0 {
                wrong.push(format!("{}:{}: {command} ends with {code}:\n{printed}", document.name, block.line));
            }
        }
        if block.not_run.is_some() {
            continue;
        }
        let place = format!("{}:{}", document.name, block.line);
        match block.language.as_str() {
            "sh" => {
                let (code, printed) = shell.run(&block.text);
                if code != 0 {
                    wrong.push(format!("{place}: ends with {code}:\n{printed}"));
                }
            }
            "console" => wrong.extend(console(&mut shell, block).map(|problem| format!("{place}: {problem}"))),
            "yaml" => wrong.extend(Config::from_yaml(&block.text).err().map(|mistakes| format!("{place}: {mistakes:?}"))),
            _ => {}
        }
        if !wrong.is_empty() {
            // What follows builds on it.
            break;
        }
    }
    wrong
}

/// Runs commands one by one and holds each against the output that stands below it.
fn console(shell: &mut Shell, block: &Block) -> Option<String> {
    for (command, expected) in block.commands() {
        let expected = expected.map(|expected| shell.here(&expected));
        let begun = now();
        loop {
            let (code, printed) = shell.run(&command);
            let right = expected.as_ref().map_or(code == 0, |expected| matches(expected, &printed));
            if right {
                break;
            }
            if !block.by_and_by || begun.elapsed() > PATIENCE {
                let expected = expected.unwrap_or_else(|| "success".to_owned());
                return Some(format!("{command}\n--- should print\n{expected}\n--- but ends with {code} and prints\n{printed}\n---"));
            }
        }
    }
    None
}

#[expect(clippy::disallowed_methods, reason = "it bounds how long a real thing is waited for")]
fn now() -> Instant {
    Instant::now()
}

const STORY: &str = "docs/operator-story.md";

#[test]
fn every_example_in_the_documents_does_what_they_say() {
    let wrong = std::thread::scope(|scope| {
        let others = documents().into_iter().filter(|document| document.name != STORY);
        let running: Vec<_> = others.map(|document| scope.spawn(move || run(&document))).collect();
        running.into_iter().flat_map(|run| run.join().expect("a session")).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// User B needs more tonight; in memory as it is written, and on Redis.
#[test]
fn the_operator_story_goes_as_it_is_told_on_both_stores() {
    let serve = "weir serve --config config/limit.yaml";
    let text = read(STORY);
    assert!(text.contains(serve), "the story does not start the service");
    let on_redis = text.replace(serve, &format!("redis-server --port 6379 &\n{serve} --redis-url redis://127.0.0.1:6379"));
    let wrong = std::thread::scope(|scope| {
        let running = [text, on_redis].map(|text| scope.spawn(move || run(&Document::new(STORY, &text))));
        running.into_iter().flat_map(|run| run.join().expect("a session")).collect::<Vec<_>>()
    });
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// A block that nobody runs says why; and none hides as plain text.
#[test]
fn no_example_is_left_out_without_a_reason() {
    let mut wrong = Vec::new();
    for document in documents() {
        for block in &document.blocks {
            let place = format!("{}:{}", document.name, block.line);
            if block.not_run.as_ref().is_some_and(|why| why.split_whitespace().count() < 3) {
                wrong.push(format!("{place}: `not run` without a reason"));
            }
            if matches!(block.language.as_str(), "bash" | "shell" | "zsh") {
                wrong.push(format!("{place}: {}: write sh, or console for commands with their output", block.language));
            }
            if block.language.is_empty() {
                wrong.push(format!("{place}: a block without a language: write text if it is nothing to run"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let mut wrong = Vec::new();
    for document in documents() {
        let folder = Path::new(&document.name).parent().expect("a folder").to_owned();
        for link in document.text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            if !path.is_empty() && !link.contains("://") && !Path::new(ROOT).join(&folder).join(path).exists() {
                wrong.push(format!("{}: {link}", document.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_configuration_reference_is_what_this_build_takes() {
    let output = Command::new(env!("CARGO_BIN_EXE_weir")).arg("reference").output().expect("weir starts");
    let reference = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(read("docs/configuration.md").contains(&reference), "docs/configuration.md is behind: make docs");
}

#[test]
fn the_plots_are_what_this_build_decides() {
    let args = loadtest::plot::Args { out: PathBuf::new(), trace: None, config: Vec::new() };
    let plots = loadtest::plot::draw(&args, env!("CARGO_BIN_EXE_weir")).expect("plots");
    assert_eq!(plots.len(), 2);
    for (name, svg) in plots {
        assert!(read(&format!("docs/plots/{name}.svg")) == svg, "docs/plots/{name}.svg is behind: make docs");
        assert!(read("docs/algorithms.md").contains(&format!("(plots/{name}.svg)")), "docs/algorithms.md does not show {name}.svg");
    }
}

#[test]
fn the_example_configuration_is_right_and_draws_no_warning() {
    let loaded = weir::config::load(&Path::new(ROOT).join("config/limit.yaml")).expect("right");
    assert!(loaded.warnings.is_empty(), "{:?}", loaded.warnings);
}

#[test]
fn documents_are_read_as_they_are_meant() {
    let text = "a\n<!-- first: true -->\n<!-- by and by -->\n\n```console\n$ echo a \\\n  b\na b\n$ true\n```\n<!-- not run: it takes an hour -->\n```sh\nx\n```\n<!-- in the test: 7 is 8 -->\n```sh\ny\n```\n";
    let document = Document::new("x.md", text);
    let [console, not_run, last] = document.blocks.as_slice() else { panic!("{:?}", document.blocks) };
    assert_eq!(console.first, ["true"]);
    assert!(console.by_and_by && console.line == 5);
    assert_eq!(console.commands(), [("echo a \\\n  b".to_owned(), Some("a b".to_owned())), ("true".to_owned(), None)]);
    assert_eq!(not_run.not_run.as_deref(), Some("it takes an hour"));
    assert_eq!(
        (last.stand_ins.as_slice(), last.not_run.as_deref(), last.by_and_by),
        (&[("7".to_owned(), "8".to_owned())][..], None, false)
    );
    for (expected, printed, right) in [
        ("a\n...\nd", "a\nb\nc\nd", true),
        ("a\n...\nd", "a\nd", true),
        ("a\n...", "b", false),
        ("x=... y", "x=12 y", true),
        ("x=... y", "x=12 z", false),
        ("...", "", true),
        ("a", "a\nb", false),
    ] {
        assert_eq!(matches(expected, printed), right, "{expected:?} against {printed:?}");
    }
}
