//! Tests of the tables of what is in flight.

use super::kept::InFlight;
use super::ring::Ring;
use super::slab::RecvSlab;
use super::slot::{Entry, Next, Table};
use crate::identity::{Direction, QueueId, Requests, WrId};

fn queue() -> QueueId {
    QueueId::next().expect("an identity")
}

fn sends(queue: QueueId, capacity: u32) -> Ring {
    Ring::new(queue, Requests::SendTransport, capacity)
}

fn post(table: &mut impl Table, tag: u64) -> WrId {
    let next = Next::of(table).expect("room");
    let wr_id = next.wr_id();
    next.fill(InFlight::NOTHING, tag);
    wr_id
}

/// As a queue pair does.
fn retire(ring: &mut Ring, wr_id: WrId) -> Option<Entry> {
    ring.retire_oldest(wr_id)
        .or_else(|| ring.retire_send(wr_id))
}

fn retire_receive(ring: &mut Ring, wr_id: WrId) -> Option<Entry> {
    ring.retire_oldest(wr_id)
        .or_else(|| ring.retire_receive(wr_id))
}

#[test]
fn one_send_completion_retires_all_before_it() {
    let mut ring = sends(queue(), 5);
    let ids: Vec<WrId> = (0..5).map(|tag| post(&mut ring, tag)).collect();
    assert_eq!(ring.room(), 0);
    assert!(ring.next_place().is_none(), "full");
    assert_eq!(retire(&mut ring, ids[3]).expect("in flight").tag, 3);
    assert_eq!(ring.room(), 4);
    assert!(
        retire(&mut ring, ids[3]).is_none(),
        "a completion retires once"
    );
    assert!(
        retire(&mut ring, ids[1]).is_none(),
        "what a later one retired is gone"
    );
    let mut never = sends(ids[0].queue(), 6);
    let never = (0..6)
        .map(|tag| post(&mut never, tag))
        .last()
        .expect("the sixth");
    assert!(retire(&mut ring, never).is_none(), "never posted");
    assert_eq!(retire(&mut ring, ids[4]).expect("in flight").tag, 4);
}

#[test]
fn a_completion_of_another_queue_or_direction_matches_nothing() {
    let (mine, other) = (queue(), queue());
    let (mut ring, mut foreign) = (sends(mine, 4), sends(other, 4));
    let (mut slab, mut foreign_slab) = (
        RecvSlab::new(mine, Requests::Receives, 4),
        RecvSlab::new(other, Requests::Receives, 4),
    );
    for tag in 0..4 {
        let (sent, posted) = (post(&mut ring, tag), post(&mut slab, tag));
        assert!(retire(&mut ring, post(&mut foreign, tag)).is_none());
        assert!(slab.retire(post(&mut foreign_slab, tag)).is_none());
        assert!(retire(&mut ring, posted).is_none());
        assert!(slab.retire(sent).is_none());
    }
    assert_eq!((ring.room(), slab.room()), (0, 0));
}

#[test]
fn a_ring_works_across_the_wrap_of_its_numbers() {
    let mut ring = sends(queue(), 3);
    // Each place is used more often than there are numbers for it.
    for tag in 0..if cfg!(miri) { 20 } else { 5000 } {
        let old = post(&mut ring, 100);
        let new = post(&mut ring, tag);
        assert_eq!(ring.room(), 1);
        assert_eq!(new.direction(), Direction::Send);
        assert_eq!(retire(&mut ring, new).expect("in flight").tag, tag);
        assert!(retire(&mut ring, old).is_none());
        assert_eq!(ring.room(), 3);
    }
}

#[test]
fn a_number_that_the_provider_was_told_is_not_that_of_the_next_request() {
    let mut ring = sends(queue(), 3);
    let mut slab = RecvSlab::new(queue(), Requests::Receives, 3);
    let (sent, posted) = (
        Next::of(&mut ring).expect("room"),
        Next::of(&mut slab).expect("room"),
    );
    let told = [sent.wr_id(), posted.wr_id()];
    drop((sent, posted));
    assert!(ring.retire_oldest(told[0]).is_none() && slab.retire(told[1]).is_none());
    let next = [post(&mut ring, 1), post(&mut slab, 1)];
    assert!(next[0] != told[0] && next[1] != told[1]);
    assert!(ring.retire_oldest(next[0]).is_some() && slab.retire(next[1]).is_some());
    let aborted = post(&mut ring, 0);
    assert!(ring.pop().is_some() && ring.retire_oldest(aborted).is_none());
    assert_ne!(post(&mut ring, 1), aborted);
}

#[test]
fn requests_that_are_never_posted_bring_no_number_back() {
    let mut ring = sends(queue(), 2);
    let old = [1, 2].map(|tag| post(&mut ring, tag));
    assert_eq!(retire(&mut ring, old[1]).expect("in flight").tag, 2);
    // Once around, to the place of the first.
    post(&mut ring, 3);
    for _ in 0..if cfg!(miri) { 8 } else { 1100 } {
        let refused = Next::of(&mut ring).expect("room");
        assert!(refused.wr_id() != old[0] && refused.wr_id().place() == old[0].place());
        drop(refused);
        assert_ne!(post(&mut ring, 4), old[0]);
        ring.pop().expect("aborted");
        post(&mut ring, 5);
        assert!(retire(&mut ring, old[0]).is_none());
        ring.pop().expect("aborted");
    }
}

#[test]
fn an_aborted_send_leaves_the_ring_as_it_was() {
    let mut ring = sends(queue(), 2);
    let oldest = post(&mut ring, 1);
    post(&mut ring, 2);
    assert_eq!(ring.pop().expect("newest").tag, 2);
    assert_eq!(retire(&mut ring, oldest).expect("oldest").tag, 1);
    assert!(ring.pop().is_none());
}

#[test]
fn receives_retire_in_any_order_and_once() {
    let mut slab = RecvSlab::new(queue(), Requests::Receives, 3);
    let ids: Vec<WrId> = (0..3).map(|tag| post(&mut slab, tag)).collect();
    assert!(slab.next_place().is_none());
    assert_eq!(slab.retire(ids[1]).expect("posted").tag, 1);
    assert!(slab.retire(ids[1]).is_none());
    let again = post(&mut slab, 9);
    assert_ne!(
        again, ids[1],
        "the count of uses tells those of a slot apart"
    );
    assert!(slab.retire(ids[1]).is_none(), "stale");
    assert_eq!(slab.retire(again).expect("posted").tag, 9);
    assert_eq!(slab.drain().len(), 2);
}

#[test]
fn tables_without_places_take_nothing() {
    assert!(sends(queue(), 0).next_place().is_none());
    assert!(
        RecvSlab::new(queue(), Requests::Receives, 0)
            .next_place()
            .is_none()
    );
}

#[test]
fn the_numbers_of_a_table_go_on_when_its_size_changes() {
    let queue = queue();
    let (mut ring, mut recvs) = (sends(queue, 3), Ring::new(queue, Requests::Receives, 3));
    let mut seen = Vec::new();
    for capacity in [3_u32, 9, 2, 0, 5, 9] {
        ring.resize(capacity);
        recvs.resize(capacity);
        assert_eq!(
            (ring.room(), recvs.room(), recvs.capacity()),
            (capacity, capacity, capacity)
        );
        for _ in 0..2 {
            let sends: Vec<WrId> = (0..capacity)
                .map(|tag| post(&mut ring, tag.into()))
                .collect();
            let posted: Vec<WrId> = (0..capacity)
                .map(|tag| post(&mut recvs, tag.into()))
                .collect();
            assert!(
                ring.next_place().is_none() && recvs.next_place().is_none(),
                "full"
            );
            assert!(
                seen.iter()
                    .all(|id| !sends.contains(id) && !posted.contains(id)),
                "each is new"
            );
            for stale in &seen {
                assert!(
                    retire(&mut ring, *stale).is_none()
                        && retire_receive(&mut recvs, *stale).is_none()
                );
            }
            for (tag, (sent, posted)) in (0..).zip(sends.iter().zip(&posted)) {
                assert_eq!(retire(&mut ring, *sent).expect("in flight").tag, tag);
                assert_eq!(
                    retire_receive(&mut recvs, *posted).expect("in flight").tag,
                    tag
                );
            }
            seen.extend(sends.into_iter().chain(posted));
        }
    }
}

#[test]
fn a_receive_that_completes_too_early_leaves_the_others_in_flight() {
    let mut ring = Ring::new(queue(), Requests::Receives, 3);
    let ids: Vec<WrId> = (0..3).map(|tag| post(&mut ring, tag)).collect();
    assert_eq!(retire_receive(&mut ring, ids[1]).expect("in flight").tag, 1);
    assert!(retire_receive(&mut ring, ids[1]).is_none(), "once");
    assert_eq!(ring.room(), 1);
    assert!(
        ring.next_place().is_none(),
        "its place is between two others"
    );
    assert_eq!(retire_receive(&mut ring, ids[0]).expect("in flight").tag, 0);
    assert_eq!(ring.room(), 2);
    let again = [3, 4].map(|tag| post(&mut ring, tag));
    assert!(ring.next_place().is_none(), "full");
    assert_eq!(
        retire_receive(&mut ring, again[1]).expect("in flight").tag,
        4
    );
    assert_eq!(retire_receive(&mut ring, ids[2]).expect("in flight").tag, 2);
    assert_eq!(
        ring.drain()
            .into_iter()
            .map(|entry| entry.tag)
            .collect::<Vec<_>>(),
        [3]
    );
    assert_eq!(ring.room(), 3);
    ring.resize(5);
    assert_eq!((0..5).map(|tag| post(&mut ring, tag)).count(), 5);
}
