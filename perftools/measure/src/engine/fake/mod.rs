//! A data path within the process, for tests. Like iWARP, it breaks when a message arrives and no
//! receive is posted.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use base::error::{Error, Result};

use crate::engine::{DataPath, DataPathCounts, ExposedMemory, Peer};
use crate::spec::test::Test;
use crate::spec::{Limit, Shape};

#[derive(Clone, Copy, Debug)]
enum Message {
    /// A data message with its number.
    Data(u64),
    /// A credit for the messages before this number.
    Credit(u64),
}

#[derive(Debug, Default)]
struct Inbox {
    receives: u32,
    messages: VecDeque<Message>,
    broken: bool,
    finished: Option<u64>,
    failure: Option<Error>,
}

type Shared = Arc<(Mutex<Inbox>, Condvar)>;

/// One end of a fake connection.
#[derive(Debug)]
pub struct FakeDataPath {
    mine: Shared,
    theirs: Shared,
    shape: Shape,
    signalled: u64,
    posted: u64,
    used: u32,
    counts: DataPathCounts,
    /// Every message whose number is a multiple of this is lost; 0 loses none.
    pub loses: u64,
    /// This message and all later ones are lost.
    pub mute_after: u64,
    /// Time until which no send completes.
    pub completes_after: Option<Instant>,
    /// This message arrives when the next one is sent.
    pub late: Option<u64>,
}

/// The control connection of a fake end.
#[derive(Debug, Clone)]
pub struct FakePeer {
    mine: Shared,
    theirs: Shared,
}

/// Returns the shape of a test with messages of 100 bytes.
pub fn shape(test: Test, depth: u32, limit: Limit) -> Shape {
    let batch = (depth / 4).max(1);
    let plan = test.plan().unwrap();
    let credited = plan.verb.takes_receives();
    Shape {
        tuning: crate::spec::tuning::Tuning::default(),
        plan,
        msg_size: 100,
        threads: 1,
        flip: false,
        receivers: 1,
        infiniband: true,
        heartbeat: Duration::from_millis(20),
        qps: 1,
        depth,
        batch,
        signal_every: if plan.is_round_trip() { 1 } else { batch },
        credited,
        confirms_writes: false,
        limit,
        verify: false,
    }
}

/// Returns two connected ends.
pub fn pair(shape: &Shape) -> [(FakeDataPath, FakePeer); 2] {
    let (a, b) = (Shared::default(), Shared::default());
    [(a.clone(), b.clone()), (b, a)].map(|(mine, theirs)| {
        let data_path = FakeDataPath {
            mine: mine.clone(),
            theirs: theirs.clone(),
            shape: *shape,
            signalled: 0,
            posted: 0,
            used: 0,
            counts: DataPathCounts::default(),
            loses: 0,
            mute_after: u64::MAX,
            completes_after: None,
            late: None,
        };
        (data_path, FakePeer { mine, theirs })
    })
}

impl FakeDataPath {
    fn deliver(&self, message: Message) -> Result<()> {
        let mut inbox = self.theirs.0.lock().unwrap();
        if inbox.receives == 0 && !self.shape.is_reliable() {
            return Ok(());
        }
        if inbox.receives == 0 {
            inbox.broken = true;
            return Err(Error::device("a message arrived without a posted receive"));
        }
        inbox.receives -= 1;
        inbox.messages.push_back(message);
        self.theirs.1.notify_all();
        Ok(())
    }
}

impl DataPath for FakeDataPath {
    fn exposed(&self) -> Option<ExposedMemory> {
        None
    }

    fn peer_exposes(&mut self, _: ExposedMemory) {}

    fn send(&mut self, first: u64, count: u32, last: u64) -> Result<()> {
        for n in first..first + u64::from(count) {
            let lost = self.loses > 0 && n % self.loses == 0;
            if self.late.is_some_and(|late| late + 1 == n) {
                self.deliver(Message::Data(n - 1))?;
            }
            let arrives = n < self.mute_after && !lost && self.late != Some(n);
            if arrives && self.shape.plan.has_receiver() {
                self.deliver(Message::Data(n))?;
            }
            self.posted += 1;
            if self.posted % u64::from(self.shape.signal_every) == 0 || n + 1 >= last {
                self.signalled = self.posted;
            }
        }
        Ok(())
    }

    fn send_credit(&mut self, next_expected: u64) -> Result<bool> {
        self.signalled = self.posted;
        self.deliver(Message::Credit(next_expected))?;
        Ok(true)
    }

    fn post_receives(&mut self) -> Result<()> {
        self.mine.0.lock().unwrap().receives += self.shape.receives();
        Ok(())
    }

    fn repost(&mut self) -> Result<()> {
        let count = self.used - self.used % self.shape.repost_batch();
        self.used -= count;
        self.mine.0.lock().unwrap().receives += count;
        Ok(())
    }

    fn poll(&mut self) -> Result<u32> {
        let mut inbox = self.mine.0.lock().unwrap();
        if inbox.broken {
            return Err(Error::device("the connection broke"));
        }
        let (mut completions, counts) = (0, &mut self.counts);
        let completes = self
            .completes_after
            .is_none_or(|time| Instant::now() >= time);
        if completes && self.signalled > counts.sent {
            counts.sent = self.signalled;
            completions = 1;
        }
        for message in inbox.messages.drain(..) {
            completions += 1;
            self.used += 1;
            match message {
                Message::Data(number) => {
                    counts.arrived.msgs += 1;
                    counts.arrived.bytes += u64::from(self.shape.msg_size);
                    counts.next_expected = number + 1;
                }
                Message::Credit(next_expected) => counts.acked = next_expected,
            }
        }
        Ok(completions)
    }

    fn counts(&self) -> &DataPathCounts {
        &self.counts
    }

    fn arm(&mut self, _: bool) -> Result<()> {
        Ok(())
    }

    fn sleep(&mut self, limit: Duration) -> Result<()> {
        let inbox = self.mine.0.lock().unwrap();
        if inbox.messages.is_empty() {
            drop(
                self.mine
                    .1
                    .wait_timeout(inbox, limit.min(Duration::from_millis(2)))
                    .unwrap(),
            );
        }
        Ok(())
    }

    fn check(&mut self, _: Instant) -> Result<()> {
        Ok(())
    }

    fn verify_final(&mut self, _: u64) -> Result<()> {
        Ok(())
    }

    fn verified(&self) -> u64 {
        0
    }
}

#[cfg(test)]
impl FakePeer {
    pub(crate) fn fail_other(&self, error: Error) {
        self.theirs.0.lock().unwrap().failure = Some(error);
    }
}

impl Peer for FakePeer {
    fn finish(&self, sent: u64) -> Result<()> {
        self.theirs.0.lock().unwrap().finished = Some(sent);
        self.theirs.1.notify_all();
        Ok(())
    }

    fn finished(&self) -> Option<u64> {
        self.mine.0.lock().unwrap().finished
    }

    fn failure(&self) -> Option<Error> {
        self.mine.0.lock().unwrap().failure.clone()
    }

    fn explain(&self, error: Error) -> Error {
        error
    }
}
