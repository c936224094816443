//! What `weir --version` says: the version, and in a release build the commit it was made from, if anything here knows it.
//!
//! A commit is, in this order: `WEIR_COMMIT` (an image is built without `.git`), what `cargo package` wrote down, what git says about
//! this very directory. None of them has to be there: a tarball builds too. Development builds leave it out, so that a commit
//! does not compile everything anew.
#![expect(clippy::disallowed_methods, reason = "a build script gets its arguments from the environment")]

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

/// So much of a commit is told: enough to find it.
const DIGITS: usize = 12;

fn main() {
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    println!("cargo:rerun-if-env-changed=WEIR_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    let told = env::var("WEIR_COMMIT").ok().and_then(|commit| shortened(&commit));
    let release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let home = env::var("CARGO_MANIFEST_DIR").unwrap_or_default();
    let found = || release.then(|| packaged(Path::new(&home)).or_else(|| of_git(Path::new(&home)))).flatten();
    match told.or_else(found) {
        Some(commit) => println!("cargo:rustc-env=WEIR_VERSION={version} ({commit})"),
        None => println!("cargo:rustc-env=WEIR_VERSION={version}"),
    }
}

/// The beginning of a commit; nothing if it is none.
fn shortened(commit: &str) -> Option<String> {
    let commit = commit.trim();
    (commit.len() >= 7 && commit.bytes().all(|byte| byte.is_ascii_hexdigit())).then(|| commit.chars().take(DIGITS).collect())
}

/// What `cargo package` put into the crate: `{"git":{"sha1":"…"},…}`.
fn packaged(home: &Path) -> Option<String> {
    let text = fs::read_to_string(home.join(".cargo_vcs_info.json")).ok()?;
    shortened(text.split_once("\"sha1\"")?.1.split('"').nth(1)?)
}

/// What git says, if this directory is the top of a working tree: a tarball that was unpacked inside another project is not that
/// project's commit.
fn of_git(home: &Path) -> Option<String> {
    let top = git(home, &["rev-parse", "--show-toplevel"])?;
    if fs::canonicalize(top).ok()? != fs::canonicalize(home).ok()? {
        return None;
    }
    let branch = git(home, &["symbolic-ref", "--quiet", "HEAD"]);
    for what in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        if let Some(path) = git(home, &["rev-parse", "--git-path", what]) {
            println!("cargo:rerun-if-changed={}", home.join(path).display());
        }
    }
    shortened(&git(home, &["rev-parse", "HEAD"])?)
}

fn git(home: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(home).args(arguments).output().ok().filter(|output| output.status.success())?;
    String::from_utf8(output.stdout).ok().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
}
