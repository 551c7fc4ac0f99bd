//! The state of a walk: all objects and their model.

use std::collections::VecDeque;

use ibverbs::leaked_objects;
use rdmacm::Listener;
use test_support::random::Random;
use tokio::runtime::Runtime;

use crate::model::{
    CqModel, Datagram, DomainModel, End, FreeWindow, Id, Leaked, Link, Memory, QpIndex, SrqModel,
};
use crate::setup::Setup;
use crate::transport::with_qp;
use crate::violation::Violation;

pub(crate) struct World<'a> {
    pub(crate) setup: &'a Setup,
    pub(crate) listener: Option<Listener>,
    next_id: Id,
    pub(crate) domains: Vec<DomainModel>,
    pub(crate) memory: Memory,
    pub(crate) cqs: Vec<CqModel>,
    pub(crate) srqs: Vec<SrqModel>,
    pub(crate) links: Vec<Link>,
    pub(crate) datagrams: Vec<Datagram>,
    /// Windows that are not bound.
    pub(crate) windows: Vec<FreeWindow>,
    /// The runtime of the completion queues that can be awaited.
    pub(crate) runtime: Option<Runtime>,
    /// Queue pairs that could not be destroyed.
    pub(crate) leaked: Vec<Leaked>,
    /// Number of objects that were leaked before the walk.
    leaked_before: u64,
    /// Number of buffers that can still be forgotten.
    pub(crate) forgotten: usize,
    /// The effects of the last actions.
    pub(crate) log: VecDeque<String>,
}

/// Number of lines of the log that are kept.
const LOG_LINES: usize = 60;

/// Returns the index of an element.
pub(crate) fn pick<T>(elements: &[T], random: &mut Random) -> Option<usize> {
    (!elements.is_empty()).then(|| random.below(elements.len()))
}

/// Returns an element.
pub(crate) fn choose<T: Copy>(elements: &[T], random: &mut Random) -> Option<T> {
    pick(elements, random).map(|index| elements[index])
}

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
            windows: Vec::new(),
            runtime: None,
            leaked: Vec::new(),
            leaked_before: leaked_objects(),
            forgotten: 1,
            log: VecDeque::new(),
        })
    }

    pub(crate) fn new_id(&mut self) -> Id {
        self.next_id += 1;
        self.next_id - 1
    }

    /// Returns immediate data that no other message in flight has.
    pub(crate) fn new_imm(&mut self) -> u32 {
        u32::try_from(self.new_id() & 0xffff_ffff).unwrap_or(0)
    }

    pub(crate) fn note(&mut self, line: impl FnOnce() -> String) {
        if self.log.len() == LOG_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line());
    }

    /// Returns all queue pairs.
    pub(crate) fn ends(&self) -> impl Iterator<Item = &End> {
        let links = self.links.iter().flat_map(|link| &link.ends).flatten();
        links.chain(self.datagrams.iter().filter_map(|one| one.end.as_ref()))
    }

    pub(crate) fn ends_mut(&mut self) -> impl Iterator<Item = &mut End> {
        let links = self.links.iter_mut().flat_map(|link| &mut link.ends);
        let datagrams = self.datagrams.iter_mut().map(|one| &mut one.end);
        links.chain(datagrams).flatten()
    }

    /// Returns the indices of all queue pairs.
    pub(crate) fn indices(&self) -> Vec<QpIndex> {
        let links =
            (0..self.links.len()).flat_map(|link| [QpIndex::Link(link, 0), QpIndex::Link(link, 1)]);
        let datagrams = (0..self.datagrams.len()).map(QpIndex::Datagram);
        let all = links.chain(datagrams);
        all.filter(|&at| self.find(at).is_some()).collect()
    }

    /// Returns a queue pair, if it was not destroyed.
    pub(crate) fn find(&self, at: QpIndex) -> Option<&End> {
        match at {
            QpIndex::Link(link, side) => self.links[link].ends[side].as_ref(),
            QpIndex::Datagram(index) => self.datagrams[index].end.as_ref(),
        }
    }

    fn slot(&mut self, at: QpIndex) -> &mut Option<End> {
        match at {
            QpIndex::Link(link, side) => &mut self.links[link].ends[side],
            QpIndex::Datagram(index) => &mut self.datagrams[index].end,
        }
    }

    /// Returns a queue pair that exists.
    pub(crate) fn end(&mut self, at: QpIndex) -> &mut End {
        self.slot(at).as_mut().expect("the queue pair exists")
    }

    /// Takes a queue pair that exists out of the model.
    pub(crate) fn take_end(&mut self, at: QpIndex) -> End {
        self.slot(at).take().expect("the queue pair exists")
    }

    pub(crate) fn put_end(&mut self, at: QpIndex, end: End) {
        *self.slot(at) = Some(end);
    }

    /// Returns the other queue pair of a link, if it was not destroyed.
    pub(crate) fn peer(&self, at: QpIndex) -> Option<&End> {
        match at {
            QpIndex::Link(link, side) => self.links[link].ends[1 - side].as_ref(),
            QpIndex::Datagram(_) => None,
        }
    }

    /// Returns `true` if requests of a queue pair can fail for reasons outside of the model.
    pub(crate) fn has_failed(&self, at: QpIndex) -> bool {
        match at {
            QpIndex::Link(link, _) => self.links[link].failed,
            QpIndex::Datagram(index) => self.datagrams[index].failed,
        }
    }

    pub(crate) fn set_failed(&mut self, at: QpIndex) {
        let ends = match at {
            QpIndex::Link(link, _) => {
                self.links[link].failed = true;
                &self.links[link].ends[..]
            }
            QpIndex::Datagram(index) => {
                self.datagrams[index].failed = true;
                std::slice::from_ref(&self.datagrams[index].end)
            }
        };
        if !self.setup.keeps_failed {
            return;
        }
        // From now on, the device can write to the memory of READs and receives.
        for end in ends.iter().flatten() {
            let reads = end.sends.iter().filter(|entry| entry.fetched.is_some());
            for &effect in reads.chain(&end.recvs).flat_map(|entry| &entry.effects) {
                self.memory.set_unknown(effect);
            }
        }
    }

    /// Returns a queue pair.
    pub(crate) fn pick_end(&self, random: &mut Random) -> Option<QpIndex> {
        choose(&self.indices(), random)
    }

    /// Returns the queue pairs that can send: neither they nor their peers have failed.
    pub(crate) fn working_ends(&self) -> Vec<QpIndex> {
        let works = |at: &QpIndex| {
            let is_whole = matches!(at, QpIndex::Datagram(_)) || self.peer(*at).is_some();
            is_whole && !self.has_failed(*at)
        };
        self.indices().into_iter().filter(works).collect()
    }

    /// Returns a queue pair that can send.
    pub(crate) fn pick_working_end(&self, random: &mut Random) -> Option<QpIndex> {
        choose(&self.working_ends(), random)
    }

    /// Returns a short name of a queue pair for the log.
    pub(crate) fn name(&self, at: QpIndex) -> String {
        match at {
            QpIndex::Link(link, side) => format!("link {} side {side}", self.links[link].id),
            QpIndex::Datagram(index) => {
                let datagram = &self.datagrams[index];
                let transport = if datagram.is_srd() { "SRD" } else { "UD" };
                format!("{transport} {}", datagram.id)
            }
        }
    }

    /// Returns the state of a queue pair for messages.
    pub(crate) fn describe_end(&mut self, at: QpIndex) -> String {
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
        format!(
            "{name} in {state}: {}; incoming: {:?}",
            unretired.join(", "),
            end.incoming
        )
    }

    /// Checks the invariants that are cheap to check.
    pub(crate) fn check(&mut self) -> Result<(), Violation> {
        self.memory.check_pools()?;
        self.ends_mut().try_for_each(End::check_slots)?;
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
        let (found, expected) = (leaked_objects() - self.leaked_before, self.leaked.len());
        if found == expected as u64 {
            return Ok(());
        }
        Err(Violation(format!(
            "{found} objects were not destroyed, expected {expected}"
        )))
    }

    pub(crate) fn check_memory(&mut self) -> Result<bool, Violation> {
        for link in &mut self.links {
            let memory = &mut self.memory;
            link.landing.retain(|&effect| !memory.has_arrived(effect));
        }
        self.memory.check()?;
        Ok(true)
    }

    /// Drops all objects that are not queue pairs, in random order.
    pub(crate) fn drop_rest(self, random: &mut Random) {
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
    }
}
