//! The completion queue of one messenger or of a group: polling it, giving completions to their
//! messengers, and waiting.

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::thread::{self, Thread};

use ibverbs::{
    CompletionChannel, CompletionQueue, Direction, Errno, QpOptions, QueueId, QueuePair, Rc,
    Result, Retired,
};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use rdmacm::internal::{Deadline, as_millis, failed};
use rdmacm::{EventChannel, IdKey};

use super::emptied::Emptied;
use super::endpoint::Endpoint;
use super::receives::SharedReceives;
use super::state::State;
use super::waiters::Waiters;

const CQ_TOKEN: u64 = 0;
const CM_TOKEN: u64 = 1;

/// A completion queue, its descriptors and its messengers.
pub(crate) struct Driver {
    polled: Mutex<Polled>,
    channel: CompletionChannel,
    /// Readable if the completion queue or the event channel has an event.
    epoll: Epoll,
    waiters: Waiters,
    /// The registration of the descriptor with tokio.
    #[cfg(feature = "tokio")]
    pub(crate) reactor: Mutex<Option<std::sync::Weak<dyn std::any::Any + Send + Sync>>>,
}

struct Polled {
    cq: CompletionQueue,
    /// `true` from arming the queue until its event is read.
    is_armed: bool,
    members: BTreeMap<QueueId, Member>,
    /// The connected members by the keys of their identifiers.
    keys: HashMap<IdKey, Arc<Endpoint>>,
    /// Messengers that the present poll has changed.
    changed: Vec<Arc<Endpoint>>,
    /// The shared receive queue and the event channel of a group.
    group: Option<(Arc<SharedReceives>, EventChannel)>,
}

/// The messenger of a queue pair.
enum Member {
    Connected(Arc<Endpoint>),
    /// A connection of a group that is not established yet, and the messages that it received.
    Connecting(Vec<Retired>),
}

impl Driver {
    pub(crate) fn new(
        cq: CompletionQueue,
        channel: CompletionChannel,
        group: Option<(Arc<SharedReceives>, EventChannel)>,
    ) -> Result<Arc<Self>> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)
            .and_then(|epoll| epoll.add(&channel, readable(CQ_TOKEN)).map(|()| epoll))
            .map_err(|errno| epoll_failed("epoll_create1", errno))?;
        if let Some((_, events)) = &group {
            watch(&epoll, events)?;
        }
        Ok(Arc::new(Self {
            polled: Mutex::new(Polled {
                cq,
                group,
                is_armed: false,
                members: BTreeMap::new(),
                keys: HashMap::new(),
                changed: Vec::new(),
            }),
            channel,
            epoll,
            waiters: Waiters::default(),
            #[cfg(feature = "tokio")]
            reactor: Mutex::default(),
        }))
    }

    /// Waits for events of this channel too.
    pub(crate) fn watch(&self, channel: &EventChannel) -> Result<()> {
        watch(&self.epoll, channel)
    }

    /// Creates a queue pair of a group. Messages that arrive before it is connected are kept.
    pub(crate) fn create_member(
        &self,
        create: impl FnOnce(&CompletionQueue) -> Result<QueuePair<Rc>>,
    ) -> Result<QueuePair<Rc>> {
        let mut polled = self.polled();
        if let Some((receives, _)) = &polled.group {
            if polled.members.is_empty() {
                receives.renew()?;
            }
        }
        let qp = create(&polled.cq)?;
        let member = Member::Connecting(Vec::new());
        polled.members.insert(qp.id(), member);
        Ok(qp)
    }

    /// Moves the events of a member to the group's channel.
    pub(crate) fn migrate(&self, endpoint: &Endpoint) -> Result<()> {
        let polled = self.polled();
        if let Some((_, events)) = &polled.group {
            endpoint.with(|state| state.migrate(events))?;
            polled.check_events()?;
        }
        Ok(())
    }

    /// Waits no longer for events of this channel.
    pub(crate) fn unwatch(&self, channel: &EventChannel) -> Result<()> {
        self.epoll
            .delete(channel.kernel_fd())
            .map_err(|errno| epoll_failed("epoll_ctl", errno))
    }

    pub(crate) fn add(&self, endpoint: &Arc<Endpoint>) {
        let member = Member::Connected(Arc::clone(endpoint));
        let mut polled = self.polled();
        polled.keys.insert(endpoint.key, Arc::clone(endpoint));
        let earlier = polled.members.insert(endpoint.id, member);
        if let Some(Member::Connecting(messages)) = earlier {
            for retired in messages {
                endpoint.with(|state| state.completed(retired));
            }
        }
    }

    /// Removes a messenger, or a connection of a group that was not established. The caller
    /// destroys the queue pair afterwards.
    pub(crate) fn remove(&self, id: QueueId) {
        let mut polled = self.polled();
        if polled.group.is_some() {
            // Some providers, such as mlx5, remove the completions of a destroyed queue pair. The
            // group would lose the buffers of its receives. What fails here fails in the other
            // messengers of the group too, which report it.
            let _ = polled.poll();
        }
        if let Some(Member::Connected(endpoint)) = polled.members.remove(&id) {
            polled.keys.remove(&endpoint.key);
        }
    }

    /// Gives all completions in the queue to their messengers.
    pub(crate) fn poll(&self) -> Result<()> {
        self.polled().poll().map(drop)
    }

    /// Reads pending events, arms the completion queue and polls it once more. Afterwards the
    /// descriptor becomes readable for anything new.
    pub(crate) fn prepare_wait(&self, endpoint: &Endpoint) -> Result<()> {
        let mut polled = self.polled();
        // The leader sleeps on the descriptor and must see its events. It reads them itself.
        if !self.waiters.has_leader() {
            let mut events = [EpollEvent::empty(); 2];
            let count = self.wait(&mut events, EpollTimeout::ZERO)?;
            let tokens = events[..count].iter().map(EpollEvent::data);
            let mut has_cm_event = endpoint.with(|state| state.has_shared_channel());
            for token in tokens {
                match token {
                    CQ_TOKEN if self.channel.try_next()?.is_some() => polled.is_armed = false,
                    CM_TOKEN => has_cm_event = true,
                    _ => {}
                }
            }
            if has_cm_event {
                polled.check_events()?;
            }
        }
        if !polled.is_armed {
            polled.cq.arm(false)?;
            polled.is_armed = true;
        }
        let emptied = polled.poll()?;
        endpoint.with(|state| state.set_drained(&emptied));
        Ok(())
    }

    /// Registers a thread or a task that waits. `is_reliable` is `true` if it ends its registration
    /// when it stops waiting.
    pub(crate) fn enter(self: &Arc<Self>, waker: &Waker, is_reliable: bool) -> Waiting {
        let ticket = self.waiters.enter(waker, is_reliable);
        Waiting {
            driver: Arc::clone(self),
            ticket,
        }
    }

    /// Wakes one of those that wait, which then processes completions and events.
    #[cfg(feature = "tokio")]
    pub(crate) fn wake_one(&self) {
        self.waiters.wake_one();
    }

    /// Wakes all that wait, except a thread that sleeps on the descriptor.
    pub(crate) fn wake_all(&self) {
        self.waiters.wake_all();
    }

    fn wait(&self, events: &mut [EpollEvent], timeout: EpollTimeout) -> Result<usize> {
        match self.epoll.wait(events, timeout) {
            Ok(count) => Ok(count),
            Err(nix::errno::Errno::EINTR) => Ok(0),
            Err(errno) => Err(epoll_failed("epoll_wait", errno)),
        }
    }

    fn polled(&self) -> MutexGuard<'_, Polled> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Polled {
    fn poll(&mut self) -> Result<Emptied> {
        let Self {
            cq,
            members,
            changed,
            group,
            ..
        } = self;
        let emptied = loop {
            let completions = cq.poll()?;
            if let Some(emptied) = Emptied::new(&completions) {
                break emptied;
            }
            for completion in completions {
                let is_shared_receive = completion.direction() == Direction::Recv;
                let shared_receives = group.as_ref().filter(|_| is_shared_receive);
                // Completions of destroyed queue pairs have no member.
                let member = if let Some((receives, _)) = shared_receives {
                    let Some((id, retired)) = receives.retire(completion) else {
                        continue;
                    };
                    match members.get_mut(&id) {
                        None => continue,
                        Some(Member::Connecting(messages)) => {
                            messages.push(retired);
                            continue;
                        }
                        Some(Member::Connected(member)) => {
                            member.with(|state| state.completed(retired));
                            member
                        }
                    }
                } else {
                    let Some(Member::Connected(member)) = members.get(&completion.queue()) else {
                        continue;
                    };
                    member.with(|state| state.complete(completion));
                    member
                };
                if !changed.iter().any(|other| Arc::ptr_eq(other, member)) {
                    changed.push(Arc::clone(member));
                }
            }
        };
        for member in changed.drain(..) {
            member.with(State::pump);
        }
        Ok(emptied)
    }

    /// Lets messengers process their events. In a group only those that have one: looking for the
    /// events of an identifier costs a system call.
    fn check_events(&self) -> Result<()> {
        let Some((_, events)) = &self.group else {
            for member in self.keys.values() {
                member.with(State::check_event);
            }
            return Ok(());
        };
        // A messenger that is being dropped is no member anymore, and keeps its events.
        let mut dropped = HashSet::new();
        while let Some(key) = events.try_next()? {
            match self.keys.get(&key) {
                Some(member) => member.with(State::check_event),
                None if dropped.insert(key) => {}
                None => break,
            }
        }
        Ok(())
    }
}

fn watch(epoll: &Epoll, channel: &EventChannel) -> Result<()> {
    epoll
        .add(channel.kernel_fd(), readable(CM_TOKEN))
        .map_err(|errno| epoll_failed("epoll_ctl", errno))
}

impl AsFd for Driver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiting")
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Driver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Driver")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}

/// Registration of a thread or a task that waits. When it ends, another one takes over.
pub(crate) struct Waiting {
    driver: Arc<Driver>,
    ticket: u64,
}

impl Waiting {
    /// Replaces the waker of a task that was polled again.
    #[cfg(feature = "tokio")]
    pub(crate) fn set_waker(&self, waker: &Waker) {
        self.driver.waiters.set_waker(self.ticket, waker);
    }

    /// Sleeps until there may be something new, or until the deadline. Returns what an attempt
    /// returns that is made before this thread sleeps on the descriptor.
    pub(crate) fn sleep<T>(
        &self,
        endpoint: &Endpoint,
        deadline: Deadline,
        attempt: impl FnOnce() -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        let sleep = || {
            let timeout = endpoint
                .with(|state| state.sleep_timeout(deadline.remaining()))
                .and_then(|remaining| EpollTimeout::try_from(as_millis(remaining)).ok())
                .unwrap_or(EpollTimeout::NONE);
            let slept = self.driver.wait(&mut [EpollEvent::empty(); 2], timeout);
            slept.map(drop)
        };
        let park = || match deadline.remaining() {
            Some(remaining) => thread::park_timeout(remaining),
            None => thread::park(),
        };
        self.driver.waiters.sleep(attempt, sleep, park)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.driver.waiters.leave(self.ticket);
    }
}

/// Returns the options of a queue pair with room for `sends` sends, up to `depth` of them posted
/// with one doorbell.
pub(crate) fn send_options(sends: u32, depth: u16) -> QpOptions {
    let options = QpOptions::new().max_send_wr(sends);
    options.max_batch(options.max_batch.max(depth.into()))
}

/// Returns the waker of the current thread, which unparks it.
pub(crate) fn thread_waker() -> Waker {
    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    thread_local! {
        static WAKER: OnceCell<Waker> = const { OnceCell::new() };
    }
    let create = || Waker::from(Arc::new(Unpark(thread::current())));
    WAKER
        .try_with(|waker| waker.get_or_init(create).clone())
        .unwrap_or_else(|_| create())
}

fn readable(token: u64) -> EpollEvent {
    EpollEvent::new(EpollFlags::EPOLLIN, token)
}

fn epoll_failed(verb: &'static str, errno: nix::errno::Errno) -> ibverbs::Error {
    failed(verb, Errno(errno as i32), &"messenger")
}
