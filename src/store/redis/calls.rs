//! Calls of the script. What waits goes as one call: while two calls of a thread are under way, its further questions wait, and the next
//! call takes all of them, up to [`MOST_QUESTIONS`]. There is no timer: alone, a question goes at once; the busier it gets, the more
//! share a call and its cost on both sides. In a cluster every question is a call of its own, since the keys of a call lie in one slot.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, ThreadId};

use redis::Value;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::super::{ErrorKind, StoreError};
use super::error::{Failed, store_error};
use super::script::{self, Question, Script};
use super::servers::Servers;
use crate::clock::monotonic;

/// The most questions of one call: they hold the server for a millisecond.
const MOST_QUESTIONS: usize = 64;
/// The most calls of a thread that are under way: one is being decided while the other travels.
const MOST_IN_FLIGHT: usize = 2;

/// Where an answer goes.
type Tell = oneshot::Sender<Result<Value, StoreError>>;

/// A question that waits for its call.
struct Waiting {
    question: Question,
    /// The answer is of no use after this.
    until: Instant,
    tell: Tell,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    in_flight: usize,
}

/// Asks the servers.
pub(super) struct Calls {
    servers: Arc<Servers>,
    script: Script,
    /// By worker thread: a call never crosses threads.
    queues: RwLock<HashMap<ThreadId, Arc<Mutex<Queue>>>>,
}

impl Calls {
    pub(super) fn new(servers: Arc<Servers>) -> Arc<Self> {
        Arc::new(Self { servers, script: Script::new(), queues: RwLock::default() })
    }

    /// The answer to `question`, whose keys lie in the slot of `key`. A caller that goes away before its call has left is charged nothing.
    pub(super) async fn ask(self: &Arc<Self>, key: &str, question: Question) -> Result<Value, StoreError> {
        let (until, thread) = (self.servers.until(), thread::current().id());
        if self.servers.are_several() {
            let answers = self.call(key, &[question], thread, until).await?;
            return answers.into_iter().next().unwrap_or_else(|| Err(unanswered()));
        }
        let (tell, told) = oneshot::channel();
        let queue = self.queue(thread);
        let flies = {
            let mut queue = lock(&queue);
            queue.waiting.push_back(Waiting { question, until, tell });
            let flies = queue.in_flight < MOST_IN_FLIGHT;
            queue.in_flight += usize::from(flies);
            flies
        };
        if flies {
            tokio::spawn(Flight { calls: Arc::clone(self), queue, thread, landed: false }.fly());
        }
        told.await.unwrap_or_else(|_| Err(unanswered()))
    }

    /// One call; an answer to each question, or an error that is of all.
    async fn call(
        &self,
        key: &str,
        questions: &[Question],
        thread: ThreadId,
        until: Instant,
    ) -> Result<Vec<Result<Value, StoreError>>, StoreError> {
        let make = |whole| if whole { Script::whole(questions) } else { self.script.by_hash(questions) };
        let answer = self.servers.ask(key, &make, thread, until).await?;
        let one = |answer: Value| answer.extract_error().map_err(|error| store_error(&Failed::sent(error)));
        Ok(script::answers(answer, questions.len())?.into_iter().map(one).collect())
    }

    fn queue(&self, thread: ThreadId) -> Arc<Mutex<Queue>> {
        if let Some(queue) = self.queues.read().unwrap_or_else(PoisonError::into_inner).get(&thread) {
            return Arc::clone(queue);
        }
        Arc::clone(self.queues.write().unwrap_or_else(PoisonError::into_inner).entry(thread).or_default())
    }
}

/// One of the calls that are under way, and then the next, for as long as questions wait.
struct Flight {
    calls: Arc<Calls>,
    queue: Arc<Mutex<Queue>>,
    /// Whose questions they are: they go on its connection, wherever the flight itself runs.
    thread: ThreadId,
    landed: bool,
}

impl Flight {
    async fn fly(mut self) {
        loop {
            let (questions, told, until) = self.take();
            let Some(until) = until else { return };
            match self.calls.call("", &questions, self.thread, until).await {
                Ok(answers) => told.into_iter().zip(answers).for_each(|(tell, answer)| drop(tell.send(answer))),
                Err(error) => told.into_iter().for_each(|tell| drop(tell.send(Err(error.clone())))),
            }
        }
    }

    /// What waits, and until when the first of it can. Nothing: then this flight is over, and whoever comes next begins another.
    fn take(&mut self) -> (Vec<Question>, Vec<Tell>, Option<Instant>) {
        let (mut questions, mut told, mut first) = (Vec::new(), Vec::new(), None);
        let now = Instant::from_std(monotonic());
        let mut queue = lock(&self.queue);
        while questions.len() < MOST_QUESTIONS
            && let Some(Waiting { question, until, tell }) = queue.waiting.pop_front()
        {
            if tell.is_closed() {
                continue;
            }
            if until <= now {
                let _ = tell.send(Err(StoreError::not_run(ErrorKind::Timeout, "it waited for its turn in vain")));
                continue;
            }
            first.get_or_insert(until);
            questions.push(question);
            told.push(tell);
        }
        if first.is_none() {
            queue.in_flight -= 1;
            self.landed = true;
        }
        (questions, told, first)
    }
}

impl Drop for Flight {
    /// The runtime that it flew in has ended.
    fn drop(&mut self) {
        if !self.landed {
            lock(&self.queue).in_flight -= 1;
        }
    }
}

fn unanswered() -> StoreError {
    StoreError::new(ErrorKind::Connection, "the call ended without an answer")
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}
