//! Faults that a test orders.

use std::thread::{self, ThreadId};

/// A verb that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is the verb of that name")]
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
    AllocMw,
    DeallocMw,
    BindMw,
    GetAsyncEvent,
    CreateCompChannel,
    DestroyCompChannel,
    CreateCq,
    CreateCqEx,
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

/// Where requests are posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// The send queue.
    Send,
    /// The receive queue.
    Recv,
    /// A shared receive queue.
    SharedRecv,
}

/// How the next post to a queue fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PostFault {
    /// To which queue.
    pub queue: Queue,
    /// The request of the list that fails, from 0; those before it are posted. The extended verbs
    /// post all or nothing.
    pub at: usize,
    /// The error number, positive.
    pub errno: i32,
    /// Whether the provider says which request was not posted, by `bad_wr`. The extended verbs
    /// have no such thing.
    pub says_which: bool,
    /// Whether the failing request (for the extended verbs: all of the batch) is executed all the
    /// same.
    pub executed: bool,
}

/// The faults that are due.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    /// The verb, how it fails, and who ordered it.
    verbs: Vec<(Verb, i32, ThreadId)>,
    posts: Vec<PostFault>,
    /// Entries that polls hand out before one fails, and how.
    poll: Option<(usize, i32)>,
}

impl Faults {
    pub(crate) fn add(&mut self, verb: Verb, errno: i32) {
        self.verbs.push((verb, errno, thread::current().id()));
    }

    pub(crate) fn add_post(&mut self, fault: PostFault) {
        self.posts.push(fault);
    }

    /// The error number that this call of `verb` fails with, if it does.
    pub(crate) fn take(&mut self, verb: Verb) -> Option<i32> {
        let place = self.verbs.iter().position(|(due, ..)| *due == verb)?;
        Some(self.verbs.remove(place).1)
    }

    /// The same for a verb that names no device: it fails for the thread that ordered it, and not
    /// for a test beside it.
    pub(crate) fn take_own(&mut self, verb: Verb) -> Option<i32> {
        let here = thread::current().id();
        let place = self
            .verbs
            .iter()
            .position(|(due, _, by)| *due == verb && *by == here)?;
        Some(self.verbs.remove(place).1)
    }

    pub(crate) fn take_post(&mut self, queue: Queue) -> Option<PostFault> {
        let place = self.posts.iter().position(|due| due.queue == queue)?;
        Some(self.posts.remove(place))
    }

    pub(crate) fn add_poll(&mut self, entries: usize, errno: i32) {
        self.poll = Some((entries, errno));
    }

    /// The error number that handing out one more entry fails with, if it does.
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
