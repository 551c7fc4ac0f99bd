//! Faults injected by a test.

use std::thread::{self, ThreadId};

/// A verb that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the verb it is named after")]
pub enum Verb {
    GetDeviceList,
    OpenDevice,
    CloseDevice,
    QueryDevice,
    QueryPort,
    QueryGidTable,
    AllocPd,
    DeallocPd,
    RegMr,
    DeregMr,
    ReregMr,
    AllocMw,
    DeallocMw,
    BindMw,
    GetAsyncEvent,
    CreateCompChannel,
    DestroyCompChannel,
    CreateCq,
    CreateCqEx,
    ResizeCq,
    DestroyCq,
    PollCq,
    ReqNotifyCq,
    CreateQp,
    CreateQpEx,
    ModifyQp,
    QueryQp,
    DestroyQp,
    CreateSrq,
    DestroySrq,
    CreateAh,
    DestroyAh,
    OpenXrcd,
    CloseXrcd,
    AllocTd,
    DeallocTd,
    AllocParentDomain,
    CreateFlow,
    DestroyFlow,
}

/// A kind of queue that requests are posted to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
    /// A shared receive queue.
    SharedRecv,
}

/// A failure of the next post to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostFault {
    /// The queue.
    pub queue: Queue,
    /// Index of the failing request in the posted list. The requests before it are posted. The
    /// extended verbs post all requests of a batch or none.
    pub at: usize,
    /// Error number, positive.
    pub errno: i32,
    /// If `true`, the provider sets `bad_wr`. The extended verbs have no such argument.
    pub sets_bad_wr: bool,
    /// If `true`, the failing request is executed although an error is returned. For the extended
    /// verbs, the whole batch is executed.
    pub executed: bool,
}

/// Injected faults that have not occurred.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The verb, the error number, and the thread that injected the fault.
    verbs: Vec<(Verb, i32, ThreadId)>,
    posts: Vec<PostFault>,
    /// Number of completions before a poll fails, and the error number.
    poll: Option<(usize, i32)>,
}

impl Faults {
    pub(crate) fn add(&mut self, verb: Verb, errno: i32) {
        self.verbs.push((verb, errno, thread::current().id()));
    }

    pub(crate) fn add_post(&mut self, fault: PostFault) {
        self.posts.push(fault);
    }

    /// Removes the first fault of `verb` and returns its error number.
    pub(crate) fn take(&mut self, verb: Verb) -> Option<i32> {
        let slot = self.verbs.iter().position(|(due, ..)| *due == verb)?;
        Some(self.verbs.remove(slot).1)
    }

    /// Removes the first fault of `verb` that the calling thread injected. A verb without a device
    /// must not fail for a test on another thread.
    pub(crate) fn take_for_this_thread(&mut self, verb: Verb) -> Option<i32> {
        let here = thread::current().id();
        let slot = self
            .verbs
            .iter()
            .position(|(due, _, by)| *due == verb && *by == here)?;
        Some(self.verbs.remove(slot).1)
    }

    pub(crate) fn take_post(&mut self, queue: Queue) -> Option<PostFault> {
        let slot = self.posts.iter().position(|due| due.queue == queue)?;
        Some(self.posts.remove(slot))
    }

    pub(crate) fn add_poll(&mut self, entries: usize, errno: i32) {
        self.poll = Some((entries, errno));
    }

    /// Counts one completion. Returns an error number if the poll must fail instead.
    pub(crate) fn take_poll(&mut self) -> Option<i32> {
        let (entries, errno) = self.poll.take()?;
        match entries.checked_sub(1) {
            Some(left) => {
                self.poll = Some((left, errno));
                None
            }
            None => Some(errno),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.verbs.is_empty() && self.posts.is_empty() && self.poll.is_none()
    }
}
