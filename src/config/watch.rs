//! Puts a changed file in force, however it was saved.
//!
//! The file's content decides, not the event: any event in a directory that leads to the file means "look", and so does every
//! second without one (a network mount sends none, a watch can die with its directory). What is seen is compared with what is in
//! force; only a difference that has not moved for [`SETTLE`] (same bytes, same file, same size and times) is taken, and then it is
//! the bytes that were seen. So a writer that truncates, writes a half and pauses for less than that never shows its half, and a
//! change is in force within [`POLL`] + [`SETTLE`] and a moment, which is less than 2 s. A writer that pauses for longer in the
//! middle of a save should write beside the file and rename.
//!
//! A file that is missing, unreadable or wrong changes nothing. It is reported once for each distinct content, and once more when
//! the file is again what is in force.

mod places;
mod settle;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher};

use super::load::{self, LoadError, Loaded};
use crate::clock;
use places::Places;
use settle::{Seen, Settling, Step};

/// How often is looked without any event.
pub const POLL: Duration = Duration::from_secs(1);
/// How long a change must not move before it counts.
pub const SETTLE: Duration = Duration::from_millis(700);
/// How often is looked while a change settles; also the least time between two looks.
const TICK: Duration = Duration::from_millis(50);

/// What came of a look.
#[derive(Debug)]
pub enum ReloadOutcome {
    /// Another content, without a mistake: this holds from now on. Exactly one for each content that comes into force.
    Applied(Box<Loaded>),
    /// The file cannot be used; what was in force stays so. One for each distinct content, or way to be unreadable.
    Failed(LoadError),
    /// The file says what is in force already: after a failure, or because somebody asked with [`Watcher::reload_now`].
    Unchanged,
}

/// Watches until it is dropped; after that nothing is reported any more.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stop: AtomicBool,
    asked: AtomicBool,
    /// Of length one: somebody who is woken anyway need not be woken twice.
    wake: SyncSender<()>,
}

impl Shared {
    fn wake(&self) {
        // Full means that the look is due already; closed, that nobody looks any more.
        let _ = self.wake.try_send(());
    }
}

impl Watcher {
    /// Looks at once, and reports what came of it even if that is what was reported before. It waits for a change to settle as
    /// always: who asks in the middle of a save does not get its half.
    pub fn reload_now(&self) {
        self.shared.asked.store(true, Ordering::Release);
        self.shared.wake();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.wake();
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // Its panic, if it had one, was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Watches the file that `in_force` was loaded from, on a thread of its own, and tells `on_change` what came of each change. A
/// change between that load and this call is found too.
///
/// # Errors
/// When the thread cannot be started.
pub fn spawn(in_force: &Loaded, on_change: impl FnMut(ReloadOutcome) + Send + 'static) -> std::io::Result<Watcher> {
    let (wake, woken) = sync_channel(1);
    let shared = Arc::new(Shared { stop: AtomicBool::new(false), asked: AtomicBool::new(false), wake });
    let path = in_force.path.clone();
    let settling = Settling::new(in_force.content_hash.clone(), SETTLE);
    let own = Arc::clone(&shared);
    let thread = thread::Builder::new().name("weir-config".to_owned()).spawn(move || run(&path, settling, &own, &woken, on_change))?;
    Ok(Watcher { shared, thread: Some(thread) })
}

fn run(path: &Path, mut settling: Settling, shared: &Arc<Shared>, woken: &Receiver<()>, mut on_change: impl FnMut(ReloadOutcome)) {
    let start = clock::monotonic();
    let mut events = events(shared);
    let mut places = Places::default();
    while !shared.stop.load(Ordering::Acquire) {
        if let Some(events) = &mut events {
            places.follow(path, events);
        }
        let asked = shared.asked.swap(false, Ordering::AcqRel);
        let (seen, content) = look(path);
        if matches!(seen, Seen::Unreadable(_)) {
            // A directory that comes back may look like the one that went.
            places.forget();
        }
        let outcome = match settling.observe(clock::elapsed(start), seen, asked) {
            Step::Nothing => None,
            Step::Unchanged => Some(ReloadOutcome::Unchanged),
            Step::Take => Some(match load::compile(path, content) {
                Ok(loaded) => {
                    settling.applied(loaded.content_hash.clone());
                    ReloadOutcome::Applied(Box::new(loaded))
                }
                Err(error) => {
                    settling.failed();
                    ReloadOutcome::Failed(error)
                }
            }),
        };
        if let Some(outcome) = outcome {
            on_change(outcome);
        }
        wait(woken, shared, if settling.is_moving() { TICK } else { POLL });
    }
}

/// Waits for `most` or until woken, at least for a tick: a busy neighbour in the directory does not keep this thread busy.
fn wait(woken: &Receiver<()>, shared: &Shared, most: Duration) {
    let start = clock::monotonic();
    let mut left = most;
    loop {
        let was_woken = woken.recv_timeout(left);
        let waited = clock::elapsed(start);
        let stop = shared.stop.load(Ordering::Acquire);
        if stop || waited >= TICK || was_woken == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        left = TICK.saturating_sub(waited);
    }
}

/// A look at the file: what is there, and the bytes or why there are none.
fn look(path: &Path) -> (Seen, Result<Vec<u8>, load::LoadCause>) {
    let stamp = places::stamp(path);
    let content = load::read(path);
    let seen = match &content {
        Ok(bytes) => Seen::Content { hash: load::content_hash(bytes), stamp },
        Err(cause) => Seen::Unreadable(match cause {
            load::LoadCause::Unreadable(error) => format!("{:?} {error}", error.kind()),
            load::LoadCause::TooLarge | load::LoadCause::Mistakes(_) => "too large".to_owned(),
        }),
    };
    (seen, content)
}

/// The system's file events, if it has any to give; without them the poll is enough.
fn events(shared: &Arc<Shared>) -> Option<RecommendedWatcher> {
    let shared = Arc::downgrade(shared);
    let handler = move |event: notify::Result<Event>| {
        // Opening and reading are what looking itself does: they must not lead to the next look.
        let is_own = |event: &Event| match event.kind {
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => false,
            EventKind::Access(_) => true,
            _ => false,
        };
        if let (false, Some(shared)) = (event.as_ref().is_ok_and(is_own), shared.upgrade()) {
            shared.wake();
        }
    };
    notify::recommended_watcher(handler)
        .inspect_err(|error| tracing::warn!(%error, "no file events: limit.yaml is looked at once a second"))
        .ok()
}
