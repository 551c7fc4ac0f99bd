//! The state of a walk: all objects and their model.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Duration;

use ibverbs::{Context, Error, ProtectionDomain, RcPath, leaked_objects};
use rdmacm::Listener;
use test_support::random::Random;
use tokio::runtime::Runtime;

use crate::Violation;
use crate::action::{Action, Kind};
use crate::any_qp::with_qp;
use crate::datagrams::{DatagramModel, InTransit};
use crate::link::{CqModel, End, Link, SrqModel};
use crate::memory::{Id, Memory};
use crate::windows::FreeWindow;

/// The device of a walk and its properties.
#[derive(Clone, Debug)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "the properties of a device are independent of each other"
)]
pub struct Setup {
    /// The opened device.
    pub context: Context,
    /// The address of the device, to connect with rdma_cm.
    pub address: Option<IpAddr>,
    /// The path between queue pairs that connect without rdma_cm, which iWARP requires.
    pub path: Option<RcPath>,
    /// The device has UC and atomics.
    pub is_ib: bool,
    /// Sends complete in the order of posting (ci/DRIVERS.md).
    pub in_order: bool,
    /// A send waits if the peer has no receive.
    pub sends_wait: bool,
    /// Time limit for requests to complete.
    pub timeout: Duration,
    /// Sizes of buffers.
    pub buf_sizes: &'static [usize],
}

pub(crate) struct DomainModel {
    pub(crate) id: Id,
    pub(crate) pd: ProtectionDomain,
}

pub(crate) struct World<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) listener: Option<Listener>,
    pub(crate) next_id: Id,
    pub(crate) domains: Vec<DomainModel>,
    pub(crate) memory: Memory,
    pub(crate) cqs: Vec<CqModel>,
    pub(crate) srqs: Vec<SrqModel>,
    pub(crate) links: Vec<Link>,
    pub(crate) datagrams: Vec<DatagramModel>,
    pub(crate) in_transit: Vec<InTransit>,
    /// Windows that are not bound.
    pub(crate) windows: Vec<FreeWindow>,
    /// The runtime of the completion queues that can be awaited.
    pub(crate) runtime: Option<Runtime>,
    /// Number of objects that were leaked before the walk, if a failure is being shrunk.
    leaked: u64,
    /// Number of buffers that can still be forgotten.
    pub(crate) forgotten: usize,
    /// The effects of the last actions.
    pub(crate) log: VecDeque<String>,
}

/// Number of lines of the log that are kept.
const LOG_LINES: usize = 60;

impl<'a> World<'a> {
    pub(crate) fn new(setup: &'a Setup) -> Result<Self, Violation> {
        let listener = match setup.address {
            Some(ip) => Some(Listener::bind((ip, 0).into(), 16)?),
            None => None,
        };
        Ok(Self {
            setup,
            listener,
            next_id: 1,
            domains: Vec::new(),
            memory: Memory::default(),
            cqs: Vec::new(),
            srqs: Vec::new(),
            links: Vec::new(),
            datagrams: Vec::new(),
            in_transit: Vec::new(),
            windows: Vec::new(),
            runtime: None,
            leaked: leaked_objects(),
            forgotten: 1,
            log: VecDeque::new(),
        })
    }

    pub(crate) fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line());
    }

    /// Performs an action and checks the invariants that are cheap to check. Returns `false` if
    /// there was nothing to act on.
    pub(crate) fn act(&mut self, action: Action) -> Result<bool, Violation> {
        let done = self.perform(action)?;
        self.memory.check_pools()?;
        for end in self
            .links
            .iter_mut()
            .flat_map(|link| &mut link.ends)
            .flatten()
        {
            end.check_slots()?;
        }
        self.check_datagrams()?;
        for srq in &self.srqs {
            let expected = srq.capacity - srq.recvs.len();
            let found = srq.srq.recv_slots_free();
            if found != expected {
                return Err(Violation(format!(
                    "shared receive queue {}: {found} free slots, expected {expected}",
                    srq.id
                )));
            }
        }
        match leaked_objects() - self.leaked {
            0 => Ok(done),
            leaked => Err(Violation(format!("{leaked} objects were not destroyed"))),
        }
    }

    pub(crate) fn perform(&mut self, action: Action) -> Result<bool, Violation> {
        let random = &mut action.choices();
        match action.kind {
            Kind::AllocPd => self.alloc_pd(),
            Kind::DropPd => Ok(self.drop_pd(random)),
            Kind::CreatePool => self.create_pool(random),
            Kind::DropPool => Ok(self.drop_pool(random)),
            Kind::CreateRegion => self.create_region(random),
            Kind::DropRegion => Ok(self.drop_region(random)),
            Kind::ReclaimRegion => self.reclaim_region(random),
            Kind::CreateFrozen => Ok(self.create_frozen(random)),
            Kind::DropFrozen => self.drop_frozen(random),
            Kind::CreateSink => self.create_sink(random),
            Kind::DropSink => Ok(self.drop_sink(random)),
            Kind::CreateCq => self.create_cq(random),
            Kind::DropCq => Ok(self.drop_cq(random)),
            Kind::ResizeCq => self.resize_cq(random),
            Kind::CreateSrq => self.create_srq(random),
            Kind::DropSrq => self.drop_srq(random),
            Kind::CreateLink => self.create_link(random),
            Kind::DestroyEnd => self.destroy_end(random),
            Kind::DropEnd => self.drop_end(random),
            Kind::ToError => self.fail_link(random),
            Kind::Reset => self.reset(random),
            Kind::BadRemote => self.bad_remote(random),
            Kind::Hold => self.hold(random),
            Kind::TakeBuf => Ok(self.take_buf(random)),
            Kind::DropBuf => Ok(self.drop_buf(random)),
            Kind::ForgetBuf => Ok(self.forget_buf(random)),
            Kind::WriteRegion => self.write_region(random),
            Kind::CheckMemory => self.check_memory(),
            Kind::Post => self.post(random),
            Kind::PostFetch => self.post_fetch(random),
            Kind::PostBatch => self.post_batch(random),
            Kind::BindWindow => self.bind_window(random),
            Kind::InvalidateWindow => self.invalidate_window(random),
            Kind::InvalidateByPeer => self.invalidate_by_peer(random),
            Kind::CreateDatagram => self.create_datagram(random),
            Kind::DropDatagram => self.drop_datagram(random),
            Kind::ChangeAddress => self.change_address(random),
            Kind::PostDatagram => self.post_datagram(random),
            Kind::PostDatagramRecv => self.post_datagram_recv(random),
            Kind::PostRefused => self.post_refused(random),
            Kind::PostRecv => self.post_recv(random),
            Kind::RecvBatch => self.recv_batch(random),
            Kind::Poll
            | Kind::PollShuffled
            | Kind::PollPartly
            | Kind::RetireWrong
            | Kind::DropCompletion => self.poll_one(action.kind, random),
            Kind::Await => self.wait_for(random),
            Kind::Settle => self.settle(),
            Kind::Scope => self.scope(random, false),
            Kind::ScopePanic => self.scope(random, true),
            Kind::OtherThread => self.other_thread(action),
            Kind::TwoThreads => self.two_threads(random),
        }
    }

    /// Returns a queue pair: the index of its link and its side.
    pub(crate) fn pick_end(&self, random: &mut Random) -> Option<(usize, usize)> {
        let ends: Vec<(usize, usize)> = (0..self.links.len())
            .flat_map(|link| [(link, 0), (link, 1)])
            .filter(|&(link, side)| self.links[link].ends[side].is_some())
            .collect();
        ends.get(random.below(ends.len().max(1))).copied()
    }

    /// Returns a queue pair of a link that has not failed.
    pub(crate) fn pick_working_end(&self, random: &mut Random) -> Option<(usize, usize)> {
        let works = |link: &Link| !link.failed && link.ends.iter().all(Option::is_some);
        let working: Vec<usize> = (0..self.links.len())
            .filter(|&link| works(&self.links[link]))
            .collect();
        let link = *working.get(random.below(working.len().max(1)))?;
        Some((link, random.below(2)))
    }

    pub(crate) fn end(&mut self, (link, side): (usize, usize)) -> &mut End {
        self.links[link].ends[side]
            .as_mut()
            .expect("a queue pair of `pick_end`")
    }

    /// Returns a short name of a queue pair for the log.
    pub(crate) fn name(&self, (link, side): (usize, usize)) -> String {
        format!("link {} side {side}", self.links[link].id)
    }

    /// Drops all objects in random order, and checks that every buffer has returned.
    pub(crate) fn finish(mut self, random: &mut Random) -> Result<(), Violation> {
        self.settle()?;
        self.check_memory()?;
        while let Some(at) = self.pick_end(random) {
            self.remove_end(at, random.below(2) == 0)?;
        }
        while !self.datagrams.is_empty() {
            self.remove_datagram(0, random.below(2) == 0)?;
        }
        self.check_memory()?;
        self.memory.check_pools()?;
        let Self {
            domains,
            memory,
            cqs,
            srqs,
            listener,
            windows,
            runtime,
            ..
        } = self;
        let mut drops: Vec<Box<dyn FnOnce() + 'a>> = vec![
            Box::new(|| drop(domains)),
            Box::new(|| drop(memory)),
            Box::new(|| drop(cqs)),
            Box::new(|| drop(srqs)),
            Box::new(|| drop(listener)),
            Box::new(|| drop(windows)),
            Box::new(|| drop(runtime)),
        ];
        while !drops.is_empty() {
            drops.swap_remove(random.below(drops.len()))();
        }
        Ok(())
    }

    pub(crate) fn check_memory(&mut self) -> Result<bool, Violation> {
        for link in &mut self.links {
            let memory = &mut self.memory;
            link.landing.retain(|&effect| !memory.has_arrived(effect));
        }
        self.memory.check()?;
        Ok(true)
    }

    /// Returns the state of a queue pair for messages.
    pub(crate) fn describe_end(&mut self, at: (usize, usize)) -> String {
        let name = self.name(at);
        let end = self.end(at);
        let state = with_qp!(&mut end.qp, qp => qp.state());
        let state = state.map_or_else(|error| error.to_string(), |state| state.to_string());
        let unretired: Vec<_> = end
            .sends
            .iter()
            .chain(&end.recvs)
            .filter(|entry| entry.in_flight)
            .map(|entry| format!("{} {}", entry.what, entry.tag))
            .collect();
        format!("{name} in {state}: {}", unretired.join(", "))
    }
}

/// Returns a violation for an error that the model does not expect.
pub(crate) fn unexpected(what: &str, error: impl Into<Error>) -> Violation {
    Violation(format!("{what}: {}", error.into()))
}
