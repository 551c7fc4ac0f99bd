//! Performing actions: each file has the actions on one kind of object.

mod addresses;
mod datagrams;
mod destroy;
mod fetch;
mod futures;
mod links;
mod objects;
mod payload;
mod poll;
mod post;
mod prepare;
mod recv;
mod refused;
mod scope;
mod settle;
mod threads;
mod windows;

use test_support::random::Random;

use crate::action::{Action, Kind};
use crate::violation::Violation;
use crate::world::World;

impl World<'_> {
    /// Performs an action and checks the invariants that are cheap to check. Returns `false` if
    /// there was nothing to act on.
    pub(crate) fn act(&mut self, action: Action) -> Result<bool, Violation> {
        let done = self.perform(action)?;
        self.check()?;
        Ok(done)
    }

    fn perform(&mut self, action: Action) -> Result<bool, Violation> {
        let random = &mut action.choices();
        match action.kind {
            Kind::AllocPd => self.alloc_pd(),
            Kind::DropPd => Ok(self.drop_pd(random)),
            Kind::CreatePool => self.create_pool(random),
            Kind::DropPool => Ok(self.drop_pool(random)),
            Kind::CreateRegion => self.create_region(random),
            Kind::DropRegion => Ok(self.drop_region(random)),
            Kind::ReclaimRegion => self.reclaim_region(random),
            Kind::CreateFrozen => self.create_frozen(random),
            Kind::DropFrozen => self.drop_frozen(random),
            Kind::CreateSink => self.create_sink(random),
            Kind::DropSink => Ok(self.drop_sink(random)),
            Kind::CreateCq => self.create_cq(random),
            Kind::DropCq => Ok(self.drop_cq(random)),
            Kind::ResizeCq => self.resize_cq(random),
            Kind::CreateSrq => self.create_srq(random),
            Kind::DropSrq => self.drop_srq(random),
            Kind::CreateLink => self.create_link(random),
            Kind::DestroyEnd => self.destroy_end(random, true),
            Kind::DropEnd => self.destroy_end(random, false),
            Kind::ReplaceEnd => self.replace_end(random),
            Kind::ToError => self.fail_end(random),
            Kind::Reset => self.reset(random),
            Kind::BadRemote => self.bad_remote(random),
            Kind::Hold => self.hold(random),
            Kind::Release => self.release(random),
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
            Kind::ChangeAddress => self.change_address(random),
            Kind::PostRefused => self.post_refused(random),
            Kind::PostForeign => self.post_foreign(random),
            Kind::OutOfBounds => self.use_out_of_bounds(random),
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

    /// Destroys all objects in random order, and checks that every buffer has returned.
    pub(crate) fn finish(mut self, random: &mut Random) -> Result<(), Violation> {
        self.settle()?;
        self.check_memory()?;
        while let Some(at) = self.pick_end(random) {
            self.remove_end(at, random.below(2) == 0)?;
        }
        self.check_memory()?;
        self.memory.check_pools()?;
        self.drop_rest(random);
        Ok(())
    }
}
