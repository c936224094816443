//! What comes in with a dependency, and what a build says of itself. Without a network: `make deny` looks further.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn output(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).current_dir(ROOT).args(arguments).output().unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// What cargo knows of every package that is built on this platform.
fn metadata() -> Value {
    let about = output(env!("CARGO"), &["-vV"]);
    let host = about.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host");
    let text = output(env!("CARGO"), &["metadata", "--format-version", "1", "--locked", "--offline", "--filter-platform", host]);
    serde_json::from_str(&text).expect("JSON")
}

/// Packages that are part of a build: the metadata name those of all platforms.
fn built(metadata: &Value) -> Vec<&Value> {
    let nodes: BTreeSet<&str> = metadata["resolve"]["nodes"].as_array().unwrap().iter().filter_map(|node| node["id"].as_str()).collect();
    metadata["packages"].as_array().unwrap().iter().filter(|package| nodes.contains(package["id"].as_str().unwrap())).collect()
}

#[test]
fn everything_comes_from_one_registry_under_a_licence_of_the_list() {
    let deny = fs::read_to_string(Path::new(ROOT).join("deny.toml")).unwrap();
    let allowed: Vec<&str> = deny
        .lines()
        .find_map(|line| line.strip_prefix("allow = ["))
        .expect("the licences that are allowed")
        .split('"')
        .skip(1)
        .step_by(2)
        .collect();
    let metadata = metadata();
    for package in built(&metadata) {
        let name = package["name"].as_str().unwrap();
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ").split_whitespace().collect::<Vec<_>>().join(" ");
        // Each part of an AND must offer one that is allowed; cargo-deny knows the whole grammar.
        let fits = licence.split(" AND ").all(|part| {
            part.trim_matches(['(', ')'])
                .split(" OR ")
                .any(|one| allowed.contains(&one.trim_matches(['(', ')']).split(" WITH ").next().unwrap()))
        });
        assert!(fits, "{name} is under {licence:?}, which deny.toml does not allow");
        let source = package["source"].as_str();
        assert!(source.is_none_or(|source| source == "registry+https://github.com/rust-lang/crates.io-index"), "{name} is from {source:?}");
    }
}

#[test]
fn no_dependency_asks_for_a_newer_compiler_than_we_promise() {
    let metadata = metadata();
    let version = |text: &str| text.split('.').map(|part| part.parse::<u32>().unwrap()).collect::<Vec<_>>();
    let packages = built(&metadata);
    let ours = packages.iter().find(|package| package["name"] == "weir").expect("ours")["rust_version"].as_str().expect("rust-version");
    for package in packages {
        if let Some(theirs) = package["rust_version"].as_str() {
            assert!(version(theirs) <= version(ours), "{} asks for Rust {theirs}, and Cargo.toml promises {ours}", package["name"]);
        }
    }
    assert!(
        fs::read_to_string(Path::new(ROOT).join("README.md")).unwrap().contains(&format!("({ours} or later)")),
        "the README names another compiler than Cargo.toml: {ours}"
    );
}

fn rust_files(folder: &Path, found: &mut String) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

/// A dependency that is not named in code is not needed; one that only tests name belongs to the tests.
#[test]
fn every_dependency_is_used_where_it_is_declared() {
    let metadata = metadata();
    let mut unused = Vec::new();
    for package in metadata["packages"].as_array().unwrap().iter().filter(|package| package["source"].is_null()) {
        let home = PathBuf::from(package["manifest_path"].as_str().unwrap()).parent().unwrap().to_owned();
        let (mut code, mut tests) = (String::new(), String::new());
        rust_files(&home.join("src"), &mut code);
        for folder in ["tests", "benches", "examples"] {
            rust_files(&home.join(folder), &mut tests);
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["rename"].as_str().or_else(|| dependency["name"].as_str()).unwrap();
            let word = name.replace('-', "_");
            // Some are needed by what another crate's macro makes, or for a feature of a crate that comes in elsewhere: they say so.
            let named =
                |text: &str| [format!("{word}::"), format!("use {word}"), format!("{word}!")].iter().any(|pattern| text.contains(pattern));
            let used = if dependency["kind"] == "dev" { named(&tests) || named(&code) } else { named(&code) };
            if !used && dependency["kind"] != "build" {
                unused.push(format!("{}: {name}", package["name"]));
            }
        }
    }
    assert!(unused.is_empty(), "declared and not used: {unused:?}");
}

/// The build script as cargo runs it, in a folder of its own. What it tells cargo to set.
fn version_told(home: &Path, environment: &[(&str, &str)]) -> String {
    let program = home.join("build-script");
    if !program.exists() {
        let source = Path::new(ROOT).join("build.rs");
        output("rustc", &["--edition", "2024", "-A", "unknown_lints", "-o", program.to_str().unwrap(), source.to_str().unwrap()]);
    }
    let output = Command::new(&program)
        .env_remove("WEIR_COMMIT")
        .env("CARGO_PKG_VERSION", "1.2.3")
        .env("CARGO_MANIFEST_DIR", home)
        .env("PROFILE", "release")
        .env("GIT_CEILING_DIRECTORIES", home.parent().unwrap())
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let told = String::from_utf8(output.stdout).unwrap();
    told.lines().find_map(|line| line.strip_prefix("cargo:rustc-env=WEIR_VERSION=")).expect("a version").to_owned()
}

#[test]
fn a_release_names_its_commit_wherever_it_is_built() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path().canonicalize().unwrap().join("weir");
    fs::create_dir(&home).unwrap();
    let full = "0123456789abcdef0123456789abcdef01234567";
    // A tarball: no git, nothing told.
    assert_eq!(version_told(&home, &[]), "1.2.3");
    // An image is told; what is told and is no commit is not repeated.
    assert_eq!(version_told(&home, &[("WEIR_COMMIT", full)]), "1.2.3 (0123456789ab)");
    assert_eq!(version_told(&home, &[("WEIR_COMMIT", "")]), "1.2.3");
    assert_eq!(version_told(&home, &[("WEIR_COMMIT", "my branch\n")]), "1.2.3");
    // A crate from `cargo package`.
    let packaged = home.join(".cargo_vcs_info.json");
    fs::write(&packaged, format!("{{\n  \"git\": {{\n    \"sha1\": \"{full}\"\n  }},\n  \"path_in_vcs\": \"\"\n}}")).unwrap();
    assert_eq!(version_told(&home, &[]), "1.2.3 (0123456789ab)");
    fs::remove_file(packaged).unwrap();
    // A clone.
    let git = |arguments: &[&str]| {
        let home = home.to_str().unwrap();
        output("git", &[&["-C", home, "-c", "user.name=a", "-c", "user.email=a@b"], arguments].concat())
    };
    git(&["init", "-q"]);
    assert_eq!(version_told(&home, &[]), "1.2.3", "a repository without a commit");
    git(&["commit", "-q", "--allow-empty", "-m", "one"]);
    let commit = git(&["rev-parse", "HEAD"]);
    assert_eq!(version_told(&home, &[]), format!("1.2.3 ({})", &commit[..12]));
    assert_eq!(version_told(&home, &[("PROFILE", "debug")]), "1.2.3");
    // A tarball that was unpacked inside somebody else's repository.
    let inside = home.join("vendor/weir");
    fs::create_dir_all(&inside).unwrap();
    assert_eq!(version_told(&inside, &[]), "1.2.3");
}

#[test]
fn the_version_is_that_of_the_package() {
    let said = output(env!("CARGO_BIN_EXE_weir"), &["--version"]);
    assert!(
        said.trim_end() == format!("weir {}", weir::VERSION) && said.starts_with(concat!("weir ", env!("CARGO_PKG_VERSION"))),
        "{said}"
    );
}
