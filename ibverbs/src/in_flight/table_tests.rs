//! Tests of the tables of requests in flight.

use super::check_memory;
use super::request::{InFlight, Owned, Request};
use super::ring::{CompletionOrder, Ring};
use super::slab::RecvSlab;
use super::table::RequestTable;
use crate::identity::{Direction, QueueId};
use crate::wr_id::{RequestKind, WrId};

fn queue() -> QueueId {
    QueueId::next().expect("an identity")
}

fn send_ring(queue: QueueId, capacity: u32) -> Ring {
    Ring::new(queue, RequestKind::Send, CompletionOrder::InOrder, capacity)
}

fn recv_ring(queue: QueueId, capacity: u32) -> Ring {
    Ring::new(queue, RequestKind::Recv, CompletionOrder::Any, capacity)
}

#[test]
fn queues_that_exceed_the_memory_are_errors() {
    check_memory("ibv_create_qp", 1024, 4096).expect("memory");
    let error = check_memory("ibv_create_qp", u32::MAX, u64::MAX).expect_err("too large");
    assert!(error.to_string().contains("not enough memory"), "{error}");
}

fn post(table: &mut impl RequestTable, tag: u64) -> WrId {
    let mut table = table.as_any();
    let vacant = table.vacant().expect("a vacant slot");
    let wr_id = vacant.wr_id();
    vacant.fill(Request {
        owned: Owned::new(None),
        tag,
    });
    wr_id
}

fn fail_post(table: &mut impl RequestTable) -> WrId {
    let mut table = table.as_any();
    let vacant = table.vacant().expect("a vacant slot");
    let wr_id = vacant.wr_id();
    vacant.skip();
    wr_id
}

#[test]
fn a_send_completion_retires_all_older_sends() {
    let mut ring = send_ring(queue(), 5);
    let ids: Vec<WrId> = (0..5).map(|tag| post(&mut ring, tag)).collect();
    assert_eq!(ring.slots_free(), 0);
    assert!(ring.vacant().is_none(), "full");
    assert_eq!(ring.retire(ids[3]).expect("in flight").tag, 3);
    assert_eq!(ring.slots_free(), 4);
    assert!(ring.retire(ids[3]).is_none(), "a request is retired once");
    assert!(
        ring.retire(ids[1]).is_none(),
        "retired by a later completion"
    );
    let mut longer = send_ring(ids[0].queue(), 6);
    let beyond = (0..6).map(|tag| post(&mut longer, tag)).last();
    let beyond = beyond.expect("six requests");
    assert!(ring.retire(beyond).is_none(), "the slot does not exist");
    assert_eq!(ring.retire(ids[4]).expect("in flight").tag, 4);
}

#[test]
fn other_queues_and_directions_match_nothing() {
    let (own, other) = (queue(), queue());
    let (mut ring, mut foreign) = (send_ring(own, 4), send_ring(other, 4));
    let (mut slab, mut foreign_slab) = (
        RecvSlab::new(own, RequestKind::Recv, 4),
        RecvSlab::new(other, RequestKind::Recv, 4),
    );
    for tag in 0..4 {
        let (sent, posted) = (post(&mut ring, tag), post(&mut slab, tag));
        assert!(ring.retire(post(&mut foreign, tag)).is_none());
        assert!(slab.retire(post(&mut foreign_slab, tag)).is_none());
        assert!(ring.retire(posted).is_none());
        assert!(slab.retire(sent).is_none());
    }
    assert_eq!((ring.slots_free(), slab.slots_free()), (0, 0));
}

#[test]
fn a_ring_works_after_its_generations_wrap() {
    let mut ring = send_ring(queue(), 3);
    // Each slot has 1024 generations.
    for tag in 0..if cfg!(miri) { 20 } else { 5000 } {
        let old = post(&mut ring, 100);
        let new = post(&mut ring, tag);
        assert_eq!(ring.slots_free(), 1);
        assert_eq!(new.direction(), Direction::Send);
        assert_eq!(ring.retire(new).expect("in flight").tag, tag);
        assert!(ring.retire(old).is_none());
        assert_eq!(ring.slots_free(), 3);
    }
}

#[test]
fn a_vacant_slot_matches_no_generation() {
    let mut ring = send_ring(queue(), 2);
    let mut slab = RecvSlab::new(queue(), RequestKind::Recv, 2);
    let mut sent = post(&mut ring, 0);
    let mut posted = post(&mut slab, 0);
    assert!(ring.retire(sent).is_some() && slab.retire(posted).is_some());
    for _ in 0..if cfg!(miri) { 32 } else { 1024 } {
        (sent, posted) = (sent.next_generation(), posted.next_generation());
        assert!(ring.retire(sent).is_none());
        assert!(slab.retire(posted).is_none());
    }
}

#[test]
fn the_wr_id_of_a_failed_post_is_not_used_again() {
    let mut ring = send_ring(queue(), 3);
    let mut slab = RecvSlab::new(queue(), RequestKind::Recv, 3);
    let failed = [fail_post(&mut ring), fail_post(&mut slab)];
    // Posted before the completions are retired, which would change the `wr_id` too.
    let next = [post(&mut ring, 1), post(&mut slab, 1)];
    assert!(next[0] != failed[0] && next[1] != failed[1]);
    assert!(ring.retire(failed[0]).is_none() && slab.retire(failed[1]).is_none());
    assert!(ring.retire(next[0]).is_some() && slab.retire(next[1]).is_some());

    let aborted = [post(&mut ring, 0), post(&mut slab, 0)];
    assert!(ring.pop().is_some() && slab.take_back(aborted[1]).is_some());
    let next = [post(&mut ring, 1), post(&mut slab, 1)];
    assert!(next[0] != aborted[0] && next[1] != aborted[1]);
    assert!(ring.retire(aborted[0]).is_none() && slab.retire(aborted[1]).is_none());
}

#[test]
fn failed_posts_do_not_bring_back_a_wr_id() {
    let mut ring = send_ring(queue(), 1);
    let mut slab = RecvSlab::new(queue(), RequestKind::Recv, 1);
    let (sent, received) = (post(&mut ring, 1), post(&mut slab, 1));
    assert!(ring.retire(sent).is_some() && slab.retire(received).is_some());
    for _ in 0..if cfg!(miri) { 8 } else { 1100 } {
        fail_post(&mut ring);
        assert_ne!(post(&mut ring, 2), sent);
        assert!(ring.retire(sent).is_none());
        ring.pop().expect("aborted");

        fail_post(&mut slab);
        let posted = post(&mut slab, 2);
        assert_ne!(posted, received);
        assert!(slab.retire(received).is_none());
        slab.take_back(posted).expect("aborted");
    }
}

#[test]
fn an_aborted_send_leaves_older_ones_in_flight() {
    let mut ring = send_ring(queue(), 2);
    let oldest = post(&mut ring, 1);
    post(&mut ring, 2);
    assert_eq!(ring.pop().expect("newest").tag, 2);
    assert_eq!(ring.retire(oldest).expect("oldest").tag, 1);
    assert!(ring.pop().is_none());
}

#[test]
fn a_slab_retires_receives_in_any_order_and_once() {
    let mut slab = RecvSlab::new(queue(), RequestKind::Recv, 3);
    let ids: Vec<WrId> = (0..3).map(|tag| post(&mut slab, tag)).collect();
    assert!(slab.vacant().is_none());
    assert_eq!(slab.retire(ids[1]).expect("in flight").tag, 1);
    assert!(slab.retire(ids[1]).is_none());
    let again = post(&mut slab, 9);
    assert_ne!(again, ids[1], "another generation of the slot");
    assert!(slab.retire(ids[1]).is_none(), "stale");
    assert_eq!(slab.retire(again).expect("in flight").tag, 9);
    assert_eq!(slab.slots_free(), 1);
}

#[test]
fn empty_tables_are_full() {
    assert!(send_ring(queue(), 0).vacant().is_none());
    assert!(
        RecvSlab::new(queue(), RequestKind::Recv, 0)
            .vacant()
            .is_none()
    );
}

#[test]
fn a_ring_keeps_its_generations_when_it_is_resized() {
    let queue = queue();
    let (mut ring, mut recvs) = (send_ring(queue, 3), recv_ring(queue, 3));
    let mut seen = Vec::new();
    for capacity in [3_u32, 5, 2, 0, 4, 5] {
        ring.resize(capacity);
        recvs.resize(capacity);
        assert_eq!(
            (ring.slots_free(), recvs.slots_free(), recvs.capacity()),
            (capacity as usize, capacity as usize, capacity)
        );
        for _ in 0..2 {
            let sends: Vec<WrId> = (0..capacity)
                .map(|tag| post(&mut ring, tag.into()))
                .collect();
            let posted: Vec<WrId> = (0..capacity)
                .map(|tag| post(&mut recvs, tag.into()))
                .collect();
            assert!(ring.vacant().is_none() && recvs.vacant().is_none(), "full");
            assert!(
                seen.iter()
                    .all(|id| !sends.contains(id) && !posted.contains(id)),
                "each is new"
            );
            for stale in &seen {
                assert!(ring.retire(*stale).is_none() && recvs.retire(*stale).is_none());
            }
            for (tag, (sent, posted)) in (0..).zip(sends.iter().zip(&posted)) {
                assert_eq!(ring.retire(*sent).expect("in flight").tag, tag);
                assert_eq!(recvs.retire(*posted).expect("in flight").tag, tag);
            }
            seen.extend(sends.into_iter().chain(posted));
        }
    }
}

#[test]
fn an_early_completion_leaves_older_requests() {
    let mut ring = recv_ring(queue(), 3);
    let ids: Vec<WrId> = (0..3).map(|tag| post(&mut ring, tag)).collect();
    assert_eq!(ring.retire(ids[1]).expect("in flight").tag, 1);
    assert!(ring.retire(ids[1]).is_none(), "once");
    assert_eq!(
        ring.slots_free(),
        0,
        "its slot is between two requests in flight"
    );
    assert!(ring.vacant().is_none());
    assert_eq!(ring.retire(ids[0]).expect("in flight").tag, 0);
    assert_eq!(ring.slots_free(), 2);
    let again = [3, 4].map(|tag| post(&mut ring, tag));
    assert!(ring.vacant().is_none(), "full");
    assert_eq!(ring.retire(again[1]).expect("in flight").tag, 4);
    assert_eq!(ring.retire(ids[2]).expect("in flight").tag, 2);
    assert_eq!(
        ring.drain()
            .into_iter()
            .map(|request| request.tag)
            .collect::<Vec<_>>(),
        [3]
    );
    assert_eq!(ring.slots_free(), 3);
    ring.resize(5);
    assert_eq!((0..5).map(|tag| post(&mut ring, tag)).count(), 5);
}

/// Posts an unsignaled request.
fn post_unsignaled(ring: &mut Ring, tag: u64) -> WrId {
    let vacant = ring.vacant().expect("a vacant slot");
    let wr_id = vacant.wr_id();
    vacant.fill(Request {
        owned: Owned::new(Some(InFlight::Marker)),
        tag,
    });
    wr_id
}

fn iwarp_ring(capacity: u32) -> Ring {
    let order = CompletionOrder::Unsignaled;
    Ring::new(queue(), RequestKind::Send, order, capacity)
}

#[test]
fn a_completion_retires_only_the_unsignaled_older_sends() {
    let mut ring = iwarp_ring(8);
    let before = post_unsignaled(&mut ring, 0);
    let read = post(&mut ring, 1);
    let between = [post_unsignaled(&mut ring, 2), post_unsignaled(&mut ring, 3)];
    let write = post(&mut ring, 4);
    let later = post_unsignaled(&mut ring, 5);
    assert_eq!(ring.retire(write).expect("in flight").tag, 4);
    for retired in [before, between[0], between[1], write] {
        assert!(ring.retire(retired).is_none(), "retired already");
    }
    assert_eq!(ring.slots_free(), 3, "the READ is the oldest in flight");
    assert_eq!(ring.retire(read).expect("in flight").tag, 1);
    assert_eq!(ring.slots_free(), 7, "nothing is left before the last one");
    // An unsignaled request that failed has a completion.
    assert_eq!(ring.retire(later).expect("in flight").tag, 5);
    assert!(ring.is_empty());
}

#[test]
fn unsignaled_sends_fill_a_ring_until_a_completion() {
    let mut ring = iwarp_ring(5);
    for round in 0..if cfg!(miri) { 5 } else { 1000 } {
        let unsignaled = [0, 1, 2].map(|tag| post_unsignaled(&mut ring, tag));
        let read = post(&mut ring, 3);
        let write = post(&mut ring, 4);
        assert!(ring.vacant().is_none(), "full");
        let order = if round % 2 == 0 {
            [write, read]
        } else {
            [read, write]
        };
        for completed in order {
            assert!(ring.retire(completed).is_some(), "in flight");
        }
        assert_eq!(ring.slots_free(), 5);
        assert!(unsignaled.iter().all(|id| ring.retire(*id).is_none()));
    }
}

/// Compares a ring with a list of requests, in random order.
#[test]
fn a_ring_with_unsignaled_sends_matches_a_simple_model() {
    let mut ring = iwarp_ring(7);
    // The requests in flight, with `true` if the request is signaled, and those that completed
    // after an older one.
    let mut model: Vec<(WrId, bool, bool)> = Vec::new();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) as usize % below
    };
    for tag in 0..if cfg!(miri) { 100 } else { 20_000 } {
        let completes = model
            .iter()
            .filter(|(_, signaled, done)| *signaled && !*done);
        let completes: Vec<WrId> = completes.map(|(id, ..)| *id).collect();
        let is_full = ring.vacant().is_none();
        assert_eq!(is_full, model.len() == 7);
        if (is_full || random(2) == 0) && !completes.is_empty() {
            let id = completes[random(completes.len())];
            assert!(ring.retire(id).is_some());
            let index = model.iter().position(|(other, ..)| *other == id);
            let index = index.expect("in the model");
            model[index].2 = true;
            for (_, signaled, done) in &mut model[..index] {
                *done |= !*signaled;
            }
            let oldest = model.iter().position(|(.., done)| !*done);
            model.drain(..oldest.unwrap_or(model.len()));
        } else if !is_full {
            // The last free slot is for a signaled request.
            let signaled = model.len() == 6 || random(3) == 0;
            let id = if signaled {
                post(&mut ring, tag)
            } else {
                post_unsignaled(&mut ring, tag)
            };
            model.push((id, signaled, false));
        }
        assert_eq!(ring.slots_free(), 7 - model.len());
    }
}
