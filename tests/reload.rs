//! Hot reload: every way in which a file is saved, on real files, with the real watcher.
//!
//! Each test has a folder and a watcher of its own, so they run side by side. What is awaited has a deadline with slack for a
//! loaded machine; the promise itself is 2 s, and each test prints the longest it had to wait.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::print_stdout, reason = "the longest wait is a figure worth seeing")]
#![cfg(unix)]

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use weir::clock::{elapsed, monotonic};
use weir::config::watch::{POLL, ReloadOutcome, SETTLE, Watcher, spawn};
use weir::config::{LoadCause, load};
use weir::limit::Field;

/// Far more than the promise: for machines that are busy with other tests.
const DEADLINE: Duration = Duration::from_secs(20);
/// Long enough for anything that will happen to have happened.
const QUIET: Duration = Duration::from_secs(2);

/// A file in a folder of its own, and its watcher.
struct Watched {
    folder: tempfile::TempDir,
    path: PathBuf,
    watcher: Watcher,
    outcomes: Receiver<ReloadOutcome>,
    longest: Duration,
}

/// A right file with this capacity. The tier stands at its end, so that half of the text says something too.
fn text(capacity: u64) -> String {
    format!("defaults:\n  bucket_capacity: {capacity}\n# {}\ntiers:\n  gold:\n    bucket_capacity: {}\n", "x".repeat(200), capacity + 1_000)
}

/// The capacity by default and in the tier: a whole file has one that is 1 000 above the other.
fn capacities(config: &weir::config::Config) -> (u64, u64) {
    let capacity = |tier| config.policy(tier, &[]).expect("a policy").bucket_capacity();
    (capacity(None), capacity(Some("gold")))
}

fn pause(length: Duration) {
    // Nobody sends: this is a wait that belongs to what is tried, like the pause of a slow writer.
    let (_sender, receiver) = channel::<()>();
    assert_eq!(receiver.recv_timeout(length), Err(RecvTimeoutError::Timeout));
}

impl Watched {
    fn new() -> Self {
        Self::prepared(|folder| {
            let path = folder.join("limit.yaml");
            fs::write(&path, text(5)).expect("written");
            path
        })
    }

    fn prepared(prepare: impl FnOnce(&Path) -> PathBuf) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = prepare(folder.path());
        let (sender, outcomes) = channel();
        let loaded = load(&path).expect("a right file");
        assert_eq!(capacities(&loaded.config), (5, 1_005));
        let watcher = spawn(&loaded, move |outcome| drop(sender.send(outcome))).expect("a watcher");
        Self { folder, path, watcher, outcomes, longest: Duration::ZERO }
    }

    fn next(&mut self) -> ReloadOutcome {
        let start = monotonic();
        let outcome = self.outcomes.recv_timeout(DEADLINE).expect("a reload");
        self.longest = self.longest.max(elapsed(start));
        outcome
    }

    /// The next thing that happens is that the file with this capacity comes into force.
    #[track_caller]
    fn applies(&mut self, capacity: u64) {
        match self.next() {
            ReloadOutcome::Applied(loaded) => assert_eq!(capacities(&loaded.config), (capacity, capacity + 1_000)),
            other => panic!("capacity {capacity}: {other:?}"),
        }
    }

    /// The next thing that happens is a failure with this in its words.
    #[track_caller]
    fn fails(&mut self, words: &str) {
        match self.next() {
            ReloadOutcome::Failed(error) => assert!(error.to_string().contains(words), "{error}"),
            other => panic!("{words}: {other:?}"),
        }
    }

    #[track_caller]
    fn is_quiet(&self) {
        let outcome = self.outcomes.recv_timeout(QUIET);
        assert!(outcome.is_err(), "{outcome:?}");
    }

    /// Ten saves: each comes into force, and nothing else happens.
    #[track_caller]
    fn ten_saves(mut self, style: &str, save: impl Fn(&Path, u64)) {
        for capacity in 6..16 {
            save(&self.path, capacity);
            self.applies(capacity);
        }
        self.is_quiet();
        println!("{style}: in force after {:?} at most", self.longest);
    }
}

fn write_over(path: &Path, text: &str) {
    let mut file = OpenOptions::new().write(true).truncate(true).open(path).expect("opened");
    file.write_all(text.as_bytes()).expect("written");
}

fn rename_over(path: &Path, text: &str) {
    let beside = path.with_extension("tmp");
    let mut file = File::create(&beside).expect("created");
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).expect("written");
    fs::rename(&beside, path).expect("renamed");
}

fn moved_away_and_written(path: &Path, text: &str) {
    fs::rename(path, path.with_extension("bak")).expect("moved away");
    fs::write(path, text).expect("written");
}

fn deleted_and_created(path: &Path, text: &str) {
    fs::remove_file(path).expect("removed");
    pause(Duration::from_millis(300));
    fs::write(path, text).expect("written");
}

/// `sed -i` writes beside the file and renames: here with the capacities put in.
fn edited_by_sed(path: &Path, text: &str) {
    let numbers: Vec<_> = text.lines().filter_map(|line| line.split_once("bucket_capacity: ")).map(|(_, number)| number).collect();
    let script = format!("2s/[0-9]*$/{}/; $s/[0-9]*$/{}/", numbers[0], numbers[1]);
    assert!(Command::new("sed").arg("-i").arg(script).arg(path).status().expect("sed runs").success());
}

fn edited_twice(path: &Path, text: &str) {
    write_over(path, &text.replace("bucket_capacity", "tokens_per_second"));
    pause(Duration::from_millis(100));
    rename_over(path, text);
}

/// Clocks and backups step back: the date says nothing.
fn renamed_over_with_an_old_date(path: &Path, text: &str) {
    let beside = path.with_extension("tmp");
    fs::write(&beside, text).expect("written");
    let date = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000 - text.len() as u64);
    File::options().write(true).open(&beside).and_then(|file| file.set_modified(date)).expect("dated");
    fs::rename(&beside, path).expect("renamed");
}

/// Saves this text at this path.
type Save = fn(&Path, &str);

#[test]
fn case_80_ten_saves_in_each_style_are_each_in_force_once() {
    let styles: [(&str, Save); 7] = [
        ("in place", write_over),
        ("rename over", rename_over),
        ("old file moved away", moved_away_and_written),
        ("delete, 300 ms, create", deleted_and_created),
        ("sed -i", edited_by_sed),
        ("two quick edits", edited_twice),
        ("rename over, old date", renamed_over_with_an_old_date),
    ];
    // Side by side: they mostly wait. A thread's name stands in its panic.
    std::thread::scope(|scope| {
        for (style, save) in styles {
            let thread = std::thread::Builder::new().name(style.to_owned());
            thread
                .spawn_scoped(scope, move || Watched::new().ten_saves(style, |path, capacity| save(path, &text(capacity))))
                .expect("a thread");
        }
    });
}

/// As the kubelet does it: a new folder, a new link beside the old one, renamed over it, the old folder removed.
fn swap(folder: &Path, from: u64, to: u64) {
    let new = folder.join(format!("..v{to}"));
    fs::create_dir(&new).expect("a folder");
    fs::write(new.join("limit.yaml"), text(to)).expect("written");
    symlink(format!("..v{to}"), folder.join("..data_tmp")).expect("a link");
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("swapped");
    if from > 0 {
        fs::remove_dir_all(folder.join(format!("..v{from}"))).expect("removed");
    }
}

#[test]
fn case_81_each_swap_of_a_config_map_is_in_force_once() {
    let mut watched = Watched::prepared(|folder| {
        swap(folder, 0, 5);
        symlink("..data/limit.yaml", folder.join("limit.yaml")).expect("a link");
        folder.join("limit.yaml")
    });
    for capacity in 6..16 {
        swap(watched.folder.path(), capacity - 1, capacity);
        watched.applies(capacity);
    }
    watched.is_quiet();
    println!("longest wait: {:?}", watched.longest);
}

#[test]
fn a_change_behind_a_link_into_another_folder_is_in_force_once() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let real = elsewhere.path().join("real.yaml");
    fs::write(&real, text(5)).expect("written");
    let watched = Watched::prepared(|folder| {
        symlink(&real, folder.join("limit.yaml")).expect("a link");
        folder.join("limit.yaml")
    });
    watched.ten_saves("behind a link", |_, capacity| rename_over(&real, &text(capacity)));
}

/// Case 82: where the name leads to the old inode for ever, nothing can be seen; but nothing breaks either. (A hard link that stays
/// behind stands for the bind mount, which takes root to make.)
#[test]
fn case_82_an_inode_that_is_replaced_elsewhere_stays_in_force() {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let source = elsewhere.path().join("source.yaml");
    fs::write(&source, text(5)).expect("written");
    let mut watched = Watched::prepared(|folder| {
        let path = folder.join("limit.yaml");
        // In one file system, or the test would have to be root.
        fs::hard_link(&source, &path).expect("a hard link");
        path
    });
    rename_over(&source, &text(6));
    fs::remove_file(&source).expect("removed");
    watched.is_quiet();
    fs::remove_file(&watched.path).expect("removed");
    watched.fails("cannot be read");
    fs::write(&watched.path, text(7)).expect("written");
    watched.applies(7);
}

/// One writer of case 83: truncates, writes the half that is a file in itself, waits, writes the rest.
fn torn_writes(rounds: u64) {
    let watched = Watched::new();
    for capacity in 6..6 + rounds {
        let whole = text(capacity);
        let (half, rest) = whole.split_at(whole.find("tiers").expect("a second half"));
        let mut file = OpenOptions::new().write(true).truncate(true).open(&watched.path).expect("opened");
        file.write_all(half.as_bytes()).and_then(|()| file.sync_data()).expect("written");
        pause(Duration::from_millis(300));
        file.write_all(rest.as_bytes()).expect("written");
        drop(file);
        // Now and then long enough for it to come into force, now and then the next write comes before.
        pause(if capacity % 3 == 0 { SETTLE + Duration::from_millis(300) } else { Duration::from_millis(10) });
    }
    let mut last = 0;
    let until = monotonic();
    while last < 5 + rounds && elapsed(until) < DEADLINE {
        match watched.outcomes.recv_timeout(QUIET) {
            Ok(ReloadOutcome::Applied(loaded)) => {
                let (default, gold) = capacities(&loaded.config);
                assert_eq!(default + 1_000, gold, "half a file came into force");
                assert!(default > last, "{default} after {last}");
                last = default;
            }
            Ok(other) => panic!("{other:?}"),
            Err(_) => break,
        }
    }
    assert_eq!(last, 5 + rounds, "the last write");
}

#[test]
fn case_83_of_150_torn_writes_no_half_comes_into_force() {
    // Ten writers with a file each, side by side: the pauses are as long as they were reported.
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| torn_writes(15));
        }
    });
}

#[test]
fn case_83_an_empty_file_or_one_of_comments_changes_nothing() {
    let mut watched = Watched::new();
    write_over(&watched.path, "");
    watched.fails("limit.yaml:1:1: the file says nothing");
    write_over(&watched.path, "# defaults: {bucket_capacity: 7}\n");
    watched.fails("limit.yaml:1:1: the file says nothing");
    write_over(&watched.path, &text(6));
    watched.applies(6);
}

/// Case 85, in a running service: a mistake changes nothing and is reported with its line, once.
#[test]
fn case_85_bad_file_after_bad_file_then_the_good_one_applies() {
    let mut watched = Watched::new();
    for (bad, words) in [
        ("defaults: {capcity: 5}\n", "limit.yaml:1:12: defaults.capcity: unknown key\nhint: did you mean bucket_capacity?"),
        ("defaults:\n  bucket_capacity: 1e3\n", "limit.yaml:2:20: defaults.bucket_capacity: expected a whole number"),
        ("defaults: [\n", "not valid YAML"),
        ("a: \0", "a NUL byte"),
    ] {
        rename_over(&watched.path, bad);
        watched.fails(words);
        // Written again as it was, and touched: it is known.
        rename_over(&watched.path, bad);
    }
    watched.is_quiet();
    rename_over(&watched.path, &text(6));
    watched.applies(6);
    watched.is_quiet();
}

#[test]
fn a_bad_file_that_is_taken_back_is_said_to_be_over() {
    let mut watched = Watched::new();
    write_over(&watched.path, "defaults: {capcity: 5}\n");
    watched.fails("unknown key");
    write_over(&watched.path, &text(5));
    assert!(matches!(watched.next(), ReloadOutcome::Unchanged));
    watched.is_quiet();
}

#[test]
fn case_86_a_file_that_is_deleted_for_a_while_keeps_its_limits() {
    let mut watched = Watched::new();
    fs::remove_file(&watched.path).expect("removed");
    watched.fails("cannot be read");
    watched.is_quiet();
    fs::write(&watched.path, text(6)).expect("written");
    watched.applies(6);
}

#[test]
fn case_86_a_directory_that_is_deleted_and_made_anew_is_watched_anew() {
    let mut watched = Watched::prepared(|folder| {
        fs::create_dir(folder.join("etc")).expect("a folder");
        fs::write(folder.join("etc/limit.yaml"), text(5)).expect("written");
        folder.join("etc/limit.yaml")
    });
    let folder = watched.folder.path().join("etc");
    for capacity in [6, 8] {
        fs::remove_dir_all(&folder).expect("removed");
        watched.fails("cannot be read");
        fs::create_dir(&folder).expect("a folder");
        fs::write(&watched.path, text(capacity)).expect("written");
        watched.applies(capacity);
        rename_over(&watched.path, &text(capacity + 1));
        watched.applies(capacity + 1);
    }
    println!("longest wait: {:?}", watched.longest);
}

#[test]
fn case_86_a_file_that_cannot_be_read_for_a_while_keeps_its_limits() {
    let mut watched = Watched::new();
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions");
    mode(&watched.path, 0o000);
    if File::open(&watched.path).is_ok() {
        // Root reads everything: a folder in the file's place is what it cannot read either.
        fs::remove_file(&watched.path).expect("removed");
        fs::create_dir(&watched.path).expect("a folder");
        watched.fails("it is not a regular file");
        fs::remove_dir(&watched.path).expect("removed");
        fs::write(&watched.path, text(5)).expect("written");
    } else {
        watched.fails("cannot be read");
        mode(&watched.path, 0o644);
    }
    assert!(matches!(watched.next(), ReloadOutcome::Unchanged));
    write_over(&watched.path, &text(6));
    watched.applies(6);
}

#[test]
fn a_file_that_is_too_large_changes_nothing() {
    let mut watched = Watched::new();
    File::create(&watched.path).and_then(|file| file.set_len(50 << 20)).expect("a large file");
    match watched.next() {
        ReloadOutcome::Failed(error) => assert!(matches!(error.cause, LoadCause::TooLarge), "{error}"),
        other => panic!("{other:?}"),
    }
    write_over(&watched.path, &text(6));
    watched.applies(6);
}

#[test]
fn who_asks_for_a_reload_is_told_what_came_of_it_each_time() {
    let mut watched = Watched::new();
    watched.watcher.reload_now();
    assert!(matches!(watched.next(), ReloadOutcome::Unchanged));
    write_over(&watched.path, "defaults: {capcity: 5}\n");
    watched.fails("unknown key");
    watched.watcher.reload_now();
    watched.fails("unknown key");
    write_over(&watched.path, &text(6));
    watched.watcher.reload_now();
    watched.applies(6);
    watched.is_quiet();
}

#[test]
fn a_change_between_the_load_and_the_watch_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("limit.yaml");
    fs::write(&path, text(5)).expect("written");
    let loaded = load(&path).expect("a right file");
    fs::write(&path, text(6)).expect("written");
    let (sender, outcomes) = channel();
    let _watcher = spawn(&loaded, move |outcome| drop(sender.send(outcome))).expect("a watcher");
    match outcomes.recv_timeout(DEADLINE) {
        Ok(ReloadOutcome::Applied(loaded)) => {
            assert_eq!(loaded.config.defaults.get(Field::BucketCapacity).and_then(weir::limit::Value::number), Some(6.0));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_watcher_that_is_dropped_says_nothing_more() {
    let watched = Watched::new();
    let Watched { folder, path, watcher, outcomes, .. } = watched;
    drop(watcher);
    fs::write(&path, text(6)).expect("written");
    assert!(matches!(outcomes.recv_timeout(DEADLINE), Err(RecvTimeoutError::Disconnected)), "the callback is gone with the watcher");
    drop(folder);
}

#[test]
fn what_is_promised_adds_up_to_less_than_two_seconds() {
    assert!(POLL + SETTLE + Duration::from_millis(200) < Duration::from_secs(2));
    assert!(SETTLE > Duration::from_millis(500), "a writer that pauses for 300 ms needs room on a busy machine");
}
