//! Requests that a program stores in a struct and posts later.

use std::collections::VecDeque;

use crate::fixture::{PROFILES, Pair, buf_bytes, pairs};
use ibverbs::{AccessFlags, Buf, QueuePair, Rc, wr};

/// Requests that wait for free slots of a queue pair.
#[derive(Default)]
struct Backlog {
    sends: VecDeque<wr::SendRequest<wr::Send, Buf>>,
    recvs: VecDeque<wr::RecvRequest<Buf>>,
}

impl Backlog {
    /// Posts as many stored sends as the queue pair has slots for.
    fn post_sends(&mut self, qp: &mut QueuePair<Rc>) {
        while qp.send_slots_free() > 0 {
            let Some(request) = self.sends.pop_front() else {
                return;
            };
            qp.post_send(request).expect("send");
        }
    }

    /// Posts as many stored receives as the queue pair has slots for.
    fn post_recvs(&mut self, qp: &mut QueuePair<Rc>) {
        while qp.recv_slots_free() > 0 {
            let Some(request) = self.recvs.pop_front() else {
                return;
            };
            qp.post_recv(request).expect("receive");
        }
    }
}

/// One stored request of each operation on the peer's memory.
struct OneSided {
    write: wr::SendRequest<wr::RdmaWrite, Buf>,
    write_with_imm: wr::SendRequest<wr::RdmaWriteWithImm, Buf>,
    read: wr::SendRequest<wr::RdmaRead, Buf>,
    compare_swap: wr::SendRequest<wr::CompareSwap, Buf>,
    fetch_add: wr::SendRequest<wr::FetchAdd, Buf>,
}

#[test]
fn stored_requests_are_posted_in_order_as_slots_free_up() {
    const MESSAGES: u8 = 8; // more than the 7 slots of each queue
    for mut pair in pairs(PROFILES) {
        let mut backlog = Backlog::default();
        for number in 0..MESSAGES {
            let request = wr::send(pair.buf(&[number])).tag(number.into());
            backlog.sends.push_back(request);
            let request = wr::recv(pair.buf(&[])).tag(u64::from(number) + 100);
            backlog.recvs.push_back(request);
        }
        let mut received = Vec::new();
        let mut next_tag = 0;
        while received.len() < MESSAGES.into() {
            backlog.post_recvs(&mut pair.b);
            backlog.post_sends(&mut pair.a);
            let (sends, recvs) = pair.retire();
            assert!(!recvs.is_empty(), "no progress after {received:?}");
            for send in sends {
                assert_eq!(send.tag(), next_tag);
                next_tag += 1;
            }
            for recv in recvs {
                assert_eq!(recv.tag(), received.len() as u64 + 100);
                received.extend(buf_bytes(recv));
            }
        }
        assert_eq!(received, (0..MESSAGES).collect::<Vec<_>>());
        assert!(backlog.sends.is_empty() && backlog.recvs.is_empty());
    }
}

#[test]
fn stored_requests_that_are_not_posted_return_their_buffers() {
    let pair = Pair::new(PROFILES[0]);
    let free = pair.pool.available();
    let backlog = Backlog {
        sends: [wr::send(pair.buf(b"never sent"))].into(),
        recvs: [wr::recv(pair.buf(&[]))].into(),
    };
    assert_eq!(pair.pool.available(), free - 2);
    drop(backlog);
    assert_eq!(pair.pool.available(), free);
}

#[test]
fn stored_one_sided_requests_reach_the_peers_memory() {
    for mut pair in pairs(PROFILES) {
        let all = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_ATOMIC;
        let region = pair.pd.shared(64, all).expect("region");
        let at = |offset| region.remote().slice(offset..offset + 8).expect("in range");
        let zeros = [0; 8];
        let stored = OneSided {
            write: wr::write(pair.buf(&5_u64.to_ne_bytes()), at(0)),
            write_with_imm: wr::write_with_imm(pair.buf(b"announce"), at(8), 42),
            read: wr::read(pair.buf(&zeros), at(8)),
            compare_swap: wr::compare_swap(pair.buf(&zeros), at(0), 5, 7),
            fetch_add: wr::fetch_add(pair.buf(&zeros), at(0), 3),
        };
        pair.post_recvs(1);
        pair.a.post_send(stored.write).expect("write");
        pair.a.post_send(stored.write_with_imm).expect("write");
        pair.a.post_send(stored.read.fenced(true)).expect("read");
        pair.a.post_send(stored.compare_swap).expect("swap");
        pair.a.post_send(stored.fetch_add).expect("add");
        let (sends, recvs) = pair.retire();
        assert_eq!(recvs[0].imm_data(), Some(42));
        drop(recvs);
        let mut results = sends.into_iter().skip(2).map(buf_bytes);
        assert_eq!(results.next().as_deref(), Some(&b"announce"[..]));
        assert_eq!(results.next().as_deref(), Some(&5_u64.to_ne_bytes()[..]));
        assert_eq!(results.next().as_deref(), Some(&7_u64.to_ne_bytes()[..]));
        let mut word = [0; 8];
        region.read(0, &mut word).expect("in range");
        assert_eq!(u64::from_ne_bytes(word), 10);
    }
}
