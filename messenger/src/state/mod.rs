//! The state of one messenger: its connection, the protocol, and messages on the way. This file
//! takes completions and events, `post` posts requests, `calls` is what the methods of the
//! messenger call, and `failure` creates their errors.

mod calls;
mod failure;
mod post;

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use ibverbs::{
    Buf, Completion, Direction, ErrorKind, Pool, QueuePair, Rc, Result, Retired, WcStatus,
    device::TransportType,
};
use rdmacm::{Connection, EventChannel};

use self::failure::Failure;
use crate::codec::{GREETING_LEN, Greeting, Header, Kind, Violation};
use crate::emptied::Emptied;
use crate::flow::Flow;
use crate::inbox::{Content, Inbox};
use crate::local_fault::LatestFault;
use crate::receives::SharedReceives;

/// Interval at which a waiting thread checks whether another one has read an event of the
/// connection from a shared channel.
const SHARED_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// The reason why a task or a thread waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Side {
    Recv,
    Send,
    Requests,
    /// The task that posts the rest of a message.
    #[cfg(feature = "tokio")]
    Rest,
}

impl Side {
    pub(crate) const COUNT: usize = 4;
}

/// The next item of the peer's stream.
pub(crate) enum Received {
    Message(Content<Buf>),
    End,
}

/// Buffer pools of a messenger.
#[derive(Clone, Debug)]
pub(crate) struct Pools {
    pub(crate) recv: Pool,
    pub(crate) send: Pool,
    /// For greetings and control messages.
    pub(crate) control: Pool,
}

/// The state of one messenger.
#[allow(
    clippy::struct_excessive_bools,
    reason = "each is a condition of its own"
)]
pub(crate) struct State {
    /// `None` after the messenger was dropped.
    connection: Option<Connection>,
    pools: Pools,
    /// The shared receive queue of the group.
    receives: Option<Arc<SharedReceives>>,
    /// Maximum number of data messages posted but not completed, and their number.
    depth: usize,
    sends_in_flight: usize,
    flow: Flow,
    greeting: Greeting,
    greeting_is_due: bool,
    /// The peer's greeting, once it has arrived.
    peer: Option<Greeting>,

    inbox: Inbox<Buf>,
    /// Number of receives posted and not completed. Not counted in a group.
    receives_posted: u32,
    /// `true` if more receives may be needed than were last posted.
    must_refill: bool,
    /// Number of data receives to be reported to the peer once they are posted.
    released: u32,

    /// A message that is being sent, and the number of its bytes that were posted.
    outgoing: Option<(Vec<u8>, usize)>,
    /// `true` while a task posts the rest of a message.
    #[cfg(feature = "tokio")]
    has_rest_task: bool,
    /// Number of control messages posted but not completed.
    controls_in_flight: usize,
    /// Completed requests that the application posted itself.
    completed_requests: VecDeque<Retired>,

    failure: Option<Failure>,
    latest_fault: LatestFault,
    /// `true` after the event that the connection has ended.
    is_over: bool,
    /// `true` once all completions from before that event were taken.
    is_drained: bool,
    wakers: [Option<Waker>; Side::COUNT],
}

impl State {
    pub(crate) fn new(
        connection: Connection,
        pools: Pools,
        receives: Option<Arc<SharedReceives>>,
        depth: u16,
        greeting: Greeting,
        is_active: bool,
    ) -> Self {
        let flow = Flow::new(greeting.receives);
        Self {
            connection: Some(connection),
            receives_posted: flow.receives_needed(),
            pools,
            receives,
            depth: depth.into(),
            sends_in_flight: 0,
            flow,
            greeting,
            greeting_is_due: is_active,
            peer: None,
            inbox: Inbox::new(greeting.max_len),
            must_refill: false,
            released: 0,
            outgoing: None,
            #[cfg(feature = "tokio")]
            has_rest_task: false,
            controls_in_flight: 0,
            completed_requests: VecDeque::new(),
            failure: None,
            latest_fault: LatestFault::default(),
            is_over: false,
            is_drained: false,
            wakers: [const { None }; Side::COUNT],
        }
    }

    /// Moves the queue pair of a group to the error state, so that it receives nothing before it is
    /// destroyed. On iWARP that would end the connection before the last messages have arrived.
    pub(crate) fn stop_receiving(&mut self) {
        let (Some(connection), Some(receives)) = (&mut self.connection, &self.receives) else {
            return;
        };
        if connection.transport() != TransportType::IWARP {
            if !self.flow.peer_has_ended() {
                receives.set_may_lack();
            }
            // A queue pair that cannot change its state receives nothing either.
            let _ = connection.qp_mut().to_error();
        }
    }

    /// Destroys what the messenger owns. Only messages of the application refer to it afterwards.
    pub(crate) fn close(&mut self) {
        self.is_over = true;
        self.wake_all();
        self.connection = None;
        self.inbox = Inbox::new(0);
        if let Some(receives) = &self.receives {
            // Another thread may have renewed the queue while the queue pair kept its receives.
            let _ = receives.refill();
        }
    }

    pub(crate) fn describe(&self) -> String {
        match &self.connection {
            Some(connection) => format!(
                "{} over {}",
                connection.peer_addr(),
                connection.device_name()
            ),
            None => "closed messenger".to_owned(),
        }
    }

    /// Calls a function on the queue pair.
    pub(crate) fn with_connection<R>(&mut self, f: impl FnOnce(&mut Connection) -> R) -> Option<R> {
        self.connection.as_mut().map(f)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Records that all completions from before the end of the connection were taken.
    pub(crate) fn set_drained(&mut self, _: &Emptied) {
        self.is_drained = self.is_over;
    }

    /// Returns `true` if other threads may read the events of the connection. Only its driver reads
    /// the channel of a group.
    pub(crate) fn has_shared_channel(&self) -> bool {
        self.connection
            .as_ref()
            .filter(|_| self.receives.is_none())
            .is_some_and(|connection| connection.channel().is_shared())
    }

    /// Returns after what time to look for events that another thread has read from a shared
    /// channel, at most `timeout`.
    pub(crate) fn sleep_timeout(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.has_shared_channel() {
            let timeout = timeout.unwrap_or(SHARED_CHECK_INTERVAL);
            Some(timeout.min(SHARED_CHECK_INTERVAL))
        } else {
            timeout
        }
    }

    pub(crate) fn migrate(&mut self, to: &EventChannel) -> Result<()> {
        match &mut self.connection {
            Some(connection) => connection.migrate(to),
            None => Ok(()),
        }
    }

    pub(crate) fn set_waker(&mut self, side: Side, waker: &Waker) {
        match &mut self.wakers[side as usize] {
            Some(old) if old.will_wake(waker) => {}
            slot => *slot = Some(waker.clone()),
        }
    }

    fn wake(&mut self, side: Side) {
        if let Some(waker) = self.wakers[side as usize].take() {
            waker.wake();
        }
    }

    fn wake_all(&mut self) {
        for waker in self.wakers.iter_mut().filter_map(Option::take) {
            waker.wake();
        }
    }

    /// Takes the completion of a request of this messenger's queue pair.
    pub(crate) fn complete(&mut self, completion: Completion<'_>) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        if let Ok(retired) = connection.qp_mut().retire(completion) {
            self.completed(retired);
        }
    }

    /// Takes a retired request.
    pub(crate) fn completed(&mut self, retired: Retired) {
        let outcome = retired.check();
        let is_flushed = retired.status() == WcStatus::WR_FLUSH_ERR;
        if retired.direction() == Direction::Recv {
            self.receives_posted = self.receives_posted.saturating_sub(1);
        }
        match (retired.direction(), outcome) {
            (Direction::Recv, Ok(())) => {
                if let Some(buf) = retired.into_buf() {
                    self.receive(buf);
                }
            }
            // Flushed: the disconnect event has the reason.
            (Direction::Recv, Err(_)) if is_flushed || self.is_over => {}
            (Direction::Recv, Err(error)) => {
                self.fail_with_completion(&error);
                self.disconnect();
            }
            (Direction::Send, _) if retired.tag() != 0 => {
                self.completed_requests.push_back(retired);
                self.wake(Side::Requests);
            }
            (Direction::Send, outcome) => {
                let buf = retired.into_buf();
                if buf.is_some_and(|buf| buf.capacity() == GREETING_LEN) {
                    self.controls_in_flight = self.controls_in_flight.saturating_sub(1);
                    self.wake(Side::Recv);
                } else {
                    self.sends_in_flight = self.sends_in_flight.saturating_sub(1);
                }
                match outcome {
                    Ok(()) => self.wake(Side::Send),
                    // Flushed, like a receive.
                    Err(_) if is_flushed || self.is_over => {}
                    Err(error) => self.fail_with_completion(&error),
                }
            }
        }
    }

    /// Takes a message of the peer.
    fn receive(&mut self, buf: Buf) {
        self.must_refill = true;
        if self.failure.is_some() {
            return;
        }
        let outcome = match self.peer {
            None => self.receive_greeting(&buf),
            Some(_) => self.receive_message(buf),
        };
        if let Err(violation) = outcome {
            self.fail(
                ErrorKind::Malformed,
                format!("the peer violates the protocol: {violation}").into(),
                Some("use a messenger of the same version on both sides"),
            );
            self.disconnect();
        }
    }

    fn receive_greeting(&mut self, buf: &[u8]) -> Result<(), Violation> {
        let greeting = Greeting::decode(buf)?;
        self.flow.receive_greeting(&greeting)?;
        self.peer = Some(greeting);
        // The passive side answers. On iWARP it cannot send before.
        self.greeting_is_due |= !self.flow.greeting_is_sent();
        self.wake_all();
        Ok(())
    }

    fn receive_message(&mut self, buf: Buf) -> Result<(), Violation> {
        let header = Header::decode(&buf)?;
        self.inbox.check(&header)?;
        self.flow.receive(&header)?;
        if header.kind == Kind::Data {
            self.inbox.push(&header, buf);
            self.assemble();
        }
        if header.kind == Kind::Data || self.flow.peer_has_ended() {
            self.wake(Side::Recv);
        }
        self.wake(Side::Send);
        Ok(())
    }

    /// Joins fragments, and posts the receives of joined ones again.
    fn assemble(&mut self) {
        match self.inbox.assemble() {
            0 => {}
            released => self.release(released),
        }
    }

    /// Processes events of the connection manager.
    pub(crate) fn check_event(&mut self) {
        let Some(connection) = &mut self.connection else {
            return;
        };
        let outcome = loop {
            match connection.try_event() {
                Ok(Some(_)) => {}
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if connection.is_disconnected() && !self.is_over {
            self.is_over = true;
            self.wake_all();
        }
        if let Err(error) = outcome {
            self.fail_with(&error);
        }
    }

    /// Records that the application returned `count` buffers of data messages to their pool.
    pub(crate) fn release(&mut self, count: u32) {
        self.released += count;
        self.must_refill = true;
    }

    /// Keeps the memory of a message that the application has dropped.
    pub(crate) fn recycle(&mut self, bytes: Vec<u8>) {
        self.inbox.recycle(bytes);
    }

    fn disconnect(&mut self) {
        if let Some(connection) = &mut self.connection {
            // If it fails, dropping the connection ends it.
            let _ = connection.disconnect();
        }
    }

    /// Calls a function of the application on the queue pair.
    pub(crate) fn with_qp<R>(&mut self, f: impl FnOnce(&mut QueuePair<Rc>) -> R) -> Option<R> {
        let qp = self.connection.as_mut()?.qp_mut();
        let id = qp.id();
        let value = f(qp);
        if qp.is_destroyed() || qp.id() != id {
            self.fail(
                ErrorKind::Disconnected,
                "the application has replaced the queue pair, or a scope has destroyed it".into(),
                Some("post requests with lent memory to a queue pair of your own"),
            );
            self.disconnect();
        }
        Some(value)
    }
}
