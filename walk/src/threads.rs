//! Moving objects to other threads, and using them at the same time.

use std::thread;

use ibverbs::{Pool, wr};
use test_support::random::Random;

use crate::action::{Action, Kind};
use crate::any_qp::{AnyQp, with_qp};
use crate::link::Entry;
use crate::memory::BufModel;
use crate::world::World;
use crate::{Violation, data};

impl World<'_> {
    /// Moves all objects to another thread for one action.
    pub(crate) fn other_thread(&mut self, action: Action) -> Result<bool, Violation> {
        let mut inner = Action::random(&mut action.choices());
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
        let index = crate::objects::pick(&self.memory.pools, random);
        let Some(index) = index.filter(|_| one.0 != two.0) else {
            return Ok(false);
        };
        let (pool, id, pd) = {
            let model = &self.memory.pools[index];
            (model.pool.clone(), model.id, model.pd)
        };
        for at in [one, two] {
            let end = self.end(at);
            let waiting = end.incoming.len() > end.unpolled_recvs.len();
            if end.pd != pd || end.srq.is_some() || waiting || end.recv_slots_free() == 0 {
                return Ok(false);
            }
        }
        let jobs =
            [one, two].map(|at| (at, [self.new_id(), self.new_id()], random.next_u64() >> 1));
        let (low, high) = self.links.split_at_mut(one.0.max(two.0));
        let (one_link, two_link) = if one.0 < two.0 {
            (&mut low[one.0], &mut high[0])
        } else {
            (&mut high[0], &mut low[two.0])
        };
        let ends = [&mut one_link.ends[one.1], &mut two_link.ends[two.1]];
        let posted = thread::scope(|scope| {
            let [a, b] = ends;
            let (pool_a, pool_b) = (pool.clone(), pool.clone());
            let a = a.as_mut().expect("picked");
            let b = b.as_mut().expect("picked");
            let (free_a, free_b) = (a.recv_slots_free(), b.recv_slots_free());
            let (qp_a, qp_b) = (&mut a.qp, &mut b.qp);
            let (_, tags_a, pattern_a) = jobs[0];
            let (_, tags_b, pattern_b) = jobs[1];
            let owner = (id, pd);
            let first =
                scope.spawn(move || post_recvs(qp_a, &pool_a, free_a, owner, tags_a, pattern_a));
            let second =
                scope.spawn(move || post_recvs(qp_b, &pool_b, free_b, owner, tags_b, pattern_b));
            [
                first.join().expect("no panic"),
                second.join().expect("no panic"),
            ]
        });
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
    (id, pd): (u64, u64),
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
            pool: id,
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
