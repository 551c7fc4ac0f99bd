//! Moving objects to other threads, and using them at the same time.

use std::thread::{self, ScopedJoinHandle};

use ibverbs::{Pool, wr};
use test_support::random::Random;

use crate::action::{Action, Kind};
use crate::model::{BufModel, Entry, Id, data};
use crate::transport::{AnyQp, with_qp};
use crate::violation::Violation;
use crate::world::{World, pick};

impl World<'_> {
    /// Moves all objects to another thread for one action.
    pub(crate) fn other_thread(&mut self, action: Action) -> Result<bool, Violation> {
        let kinds = Kind::supported(self.setup);
        let mut inner = Action::random(&kinds, &mut action.choices());
        if matches!(inner.kind, Kind::OtherThread) {
            inner.kind = Kind::Poll;
        }
        let world = self;
        thread::scope(|scope| {
            scope
                .spawn(move || world.perform(inner))
                .join()
                .expect("no panic")
        })
    }

    /// Posts receives on two queue pairs at the same time, from one pool.
    pub(crate) fn two_threads(&mut self, random: &mut Random) -> Result<bool, Violation> {
        let (Some(one), Some(two)) = (self.pick_working_end(random), self.pick_working_end(random))
        else {
            return Ok(false);
        };
        let index = pick(&self.memory.pools, random);
        let Some(index) = index.filter(|_| one != two) else {
            return Ok(false);
        };
        let model = &self.memory.pools[index];
        let (pool, owner, size) = (
            model.pool.clone(),
            (model.id, model.pd),
            model.pool.buf_size(),
        );
        for at in [one, two] {
            let end = self.end(at);
            let waiting = end.incoming.len() > end.unpolled_recvs.len();
            let fits = end.pd == owner.1 && end.min_recv <= size && end.recv_slots_free() > 0;
            // The peer of a link can have sent a message that needs a longer receive.
            let waits = end.min_recv == 0 && waiting;
            let too_long = end.incoming.iter().any(|message| message.is_too_long);
            if !fits || waits || too_long || end.srq.is_some() {
                return Ok(false);
            }
        }
        let mut ends = [one, two].map(|at| self.take_end(at));
        let jobs = [(); 2].map(|()| ([self.new_id(), self.new_id()], random.next_u64() >> 1));
        let posted: Vec<Result<Vec<Entry>, Violation>> = thread::scope(|scope| {
            let threads = ends.iter_mut().zip(jobs).map(|(end, (tags, pattern))| {
                let (pool, free) = (pool.clone(), end.recv_slots_free());
                let qp = &mut end.qp;
                scope.spawn(move || post_recvs(qp, &pool, free, owner, tags, pattern))
            });
            let threads: Vec<_> = threads.collect();
            let join = threads.into_iter().map(ScopedJoinHandle::join);
            join.map(|joined| joined.expect("no panic")).collect()
        });
        for (at, end) in [one, two].into_iter().zip(ends) {
            self.put_end(at, end);
        }
        for (entries, at) in posted.into_iter().zip([one, two]) {
            let entries = entries?;
            self.memory.pools[index].taken += entries.len();
            let end = self.end(at);
            end.unpolled_recvs
                .extend(entries.iter().map(|entry| entry.tag));
            end.recvs.extend(entries);
        }
        Ok(true)
    }
}

fn post_recvs(
    qp: &mut AnyQp,
    pool: &Pool,
    free: usize,
    (id, pd): (Id, Id),
    tags: [u64; 2],
    pattern: u64,
) -> Result<Vec<Entry>, Violation> {
    let mut entries = Vec::new();
    for tag in tags.into_iter().take(free) {
        let Some(mut buf) = pool.take() else {
            break;
        };
        let pattern = pattern ^ tag;
        data::fill(pattern, &mut buf);
        let mut entry = Entry::without_memory(tag, "receive");
        entry.capacity = buf.capacity();
        entry.bufs.push(BufModel {
            pool: Some(id),
            pd,
            pattern,
            len: buf.len(),
        });
        with_qp!(&mut *qp, qp => qp.post_recv(wr::recv(buf).tag(tag)))
            .map_err(|error| Violation(format!("receive on a thread: {error}")))?;
        entries.push(entry);
    }
    Ok(entries)
}
