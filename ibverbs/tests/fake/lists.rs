//! Scatter lists on the fake device: lists of buffers, which move, and lists of held memory.

use crate::fixture::{self, PROFILES, Pair, small};
use fake_provider::Profile;
use ibverbs::{AccessFlags, BufList, CqOptions, Error, ErrorKind, PostError, Rc, mw::Type2, wr};

/// Creates a [`Pair`] with queue pairs that accept lists of three entries.
fn pair(profile: Profile) -> Pair {
    let mut pair = Pair::new(profile);
    let options = small().max_send_sge(3).max_recv_sge(3);
    let cq_options = CqOptions::new().depth(63);
    let cq = pair
        .context
        .create_cq(cq_options)
        .expect("completion queue");
    pair.a = pair.pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
    pair.b = pair.pd.create_qp::<Rc>(&cq, &cq, options).expect("b");
    pair.cq = cq;
    fixture::connect(&mut pair.a, &mut pair.b);
    pair
}

impl Pair {
    /// Returns a list of buffers with these contents.
    fn list(&self, parts: &[&[u8]]) -> BufList {
        BufList::new(parts.iter().map(|part| self.buf(part)).collect())
    }

    /// Returns a list of empty buffers of these sizes.
    fn targets(&self, sizes: &[usize]) -> BufList {
        BufList::new(
            sizes
                .iter()
                .map(|&size| self.pd.buf(size).expect("buffer"))
                .collect(),
        )
    }
}

#[test]
fn empty_parts_of_lists_do_not_reach_soft_iwarp() {
    let mut pair = pair(Profile::SIW);
    let frozen = pair.buf(b"gathered").freeze();
    let held = pair.a.hold(&frozen).expect("hold");
    let pieces = [0..3, 3..3, 3..8].map(|range| held.slice(range).expect("within"));
    let list = pair.a.hold_list(&pieces).expect("hold");
    let targets = [pair.targets(&[64]), pair.targets(&[64])];
    for target in targets {
        pair.b.post_recv(wr::recv(target)).expect("receive");
    }
    pair.a.post_send(wr::send(list)).expect("send");
    let parts = pair.list(&[b"gat", b"", b"hered"]);
    pair.a.post_send(wr::send(parts)).expect("send");
    let (sent, received) = pair.retire();
    assert_eq!((sent.len(), received.len()), (2, 2));
    for received in received {
        let list = received.into_list().expect("a list");
        assert_eq!(&*list[0], b"gathered");
    }
}

#[test]
fn a_list_is_gathered_scattered_and_returned() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let targets = pair.targets(&[2, 5, 64]);
        pair.b.post_recv(wr::recv(targets)).expect("receive");
        let parts = pair.list(&[b"gat", b"", b"hered"]);
        pair.a.post_send(wr::send(parts)).expect("send");
        let (mut sent, mut received) = pair.retire();
        assert_eq!(
            sent.pop()
                .and_then(ibverbs::Retired::into_list)
                .expect("a list")
                .len(),
            3
        );
        let list = received
            .pop()
            .and_then(ibverbs::Retired::into_list)
            .expect("a list");
        let parts: Vec<&[u8]> = list.iter().map(|buf| &buf[..]).collect();
        assert_eq!(parts, [&b"ga"[..], b"there", b"d"]);
    }
}

#[test]
fn every_operation_sends_the_current_buffers_of_a_list() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let region = pair
            .pd
            .shared(64, AccessFlags::MW_BIND | AccessFlags::REMOTE_WRITE)
            .expect("region");
        let window = pair.pd.alloc_mw::<Type2>().expect("window");
        let (bound, binding) = window
            .bind(&region, AccessFlags::REMOTE_WRITE)
            .expect("binding");
        pair.b.post_send(wr::bind(binding)).expect("bind");
        pair.post_recvs(3);
        let retire_and_replace = |pair: &mut Pair, next: &[u8]| {
            let list = pair.retire().0.pop().and_then(ibverbs::Retired::into_list);
            let mut list = list.expect("a list");
            list[1] = pair.buf(next);
            list
        };
        let list = pair.list(&[b"now, ", b"and"]);
        pair.a.post_send(wr::send(list)).expect("send");
        let list = retire_and_replace(&mut pair, b"2nd");
        pair.a.post_send(wr::send_with_imm(list, 1)).expect("send");
        let list = retire_and_replace(&mut pair, b"3rd");
        pair.a
            .post_send(wr::write(
                list,
                region.remote().slice(0..8).expect("in range"),
            ))
            .expect("write");
        let list = retire_and_replace(&mut pair, b"4th");
        pair.a
            .post_send(wr::send_with_inv(list, bound.remote().rkey))
            .expect("send");
        let mut received = pair.retire().1;
        let received = received.pop().expect("received");
        assert_eq!(received.invalidated_rkey(), Some(bound.remote().rkey));
        assert_eq!(fixture::buf_bytes(received), b"now, 4th");
    }
}

#[test]
fn a_batch_mixes_lists_buffers_and_inline_bytes() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        pair.post_recvs(4);
        let frozen = [pair.buf(b"held "), pair.buf(b"list")].map(ibverbs::Buf::freeze);
        let tokens = frozen
            .each_ref()
            .map(|memory| pair.a.hold(memory).expect("hold"));
        let held = pair.a.hold_list(&tokens).expect("list");
        let (list, single) = (pair.list(&[b"a ", b"list"]), pair.buf(b"single"));
        pair.a
            .batch(|batch| -> ibverbs::Result<()> {
                batch.send(wr::send(list))?;
                batch.send(wr::send(single))?;
                batch.send(wr::send(held))?;
                batch.send(wr::send(wr::Inline(b"inline")))?;
                Ok(())
            })
            .expect("batch");
        let texts: Vec<Vec<u8>> = pair
            .retire()
            .1
            .into_iter()
            .map(fixture::buf_bytes)
            .collect();
        assert_eq!(texts, [&b"a list"[..], b"single", b"held list", b"inline"]);
        // Work requests are reused. Entries of an earlier list must not remain in them.
        pair.post_recvs(1);
        let single = pair.buf(b"again");
        pair.a
            .batch(|batch| -> ibverbs::Result<()> { Ok(batch.send(wr::send(single))?) })
            .expect("batch");
        assert_eq!(
            pair.retire()
                .1
                .into_iter()
                .map(fixture::buf_bytes)
                .next()
                .expect("a receive"),
            b"again"
        );
    }
}

#[test]
fn destroying_or_dropping_returns_lists_in_flight() {
    for profile in PROFILES {
        for destroyed in [true, false] {
            let mut pair = pair(profile);
            pair.fake.stall();
            let (list, targets) = (pair.list(&[b"one", b"two"]), pair.list(&[b"to", b"write"]));
            pair.a.post_send(wr::send(list).tag(4)).expect("send");
            pair.b.post_recv(wr::recv(targets)).expect("receive");
            let Pair { a, b, .. } = pair;
            if destroyed {
                let reclaimed = a.destroy().expect("destroyed");
                assert_eq!(
                    reclaimed
                        .sends
                        .iter()
                        .map(|(tag, buf)| (*tag, buf.len()))
                        .collect::<Vec<_>>(),
                    [(4, 3); 2]
                );
            } else {
                drop(a);
            }
            drop(b);
            assert_eq!(pair.pool.available(), 16);
        }
    }
}

#[test]
fn invalid_lists_are_rejected_and_returned() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let list = pair.list(&[b"1", b"2", b"3", b"4"]);
        let rejected = pair
            .a
            .post_send(wr::send(list))
            .expect_err("more than 3 entries");
        assert_eq!(
            rejected.error(),
            PostError::TooManyPieces { count: 4, max: 3 }
        );
        assert_eq!(rejected.into_payload().expect("the rejected list").len(), 4);
        let other = pair.context.alloc_pd().expect("protection domain");
        let mixed = BufList::new(vec![pair.buf(b"local"), other.buf(8).expect("buffer")]);
        let rejected = pair
            .a
            .post_send(wr::send(mixed))
            .expect_err("buffers of two domains");
        assert_eq!(rejected.error(), PostError::WrongDomain);
        drop((rejected, other));
        // An empty list is an empty message.
        pair.post_recvs(1);
        pair.a
            .post_send(wr::send(BufList::new(Vec::new())))
            .expect("send");
        assert_eq!(
            pair.retire()
                .1
                .into_iter()
                .map(fixture::buf_bytes)
                .next()
                .expect("a receive"),
            b""
        );
    }
}

#[test]
fn a_changed_list_is_posted_with_its_new_buffers() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let free = pair.pool.available();
        // A request that was taken apart has no effect. The list that is posted has other buffers
        // than the request was made with, and these are free.
        let mut list = wr::recv(pair.targets(&[2, 3])).into_payload();
        let mut other = pair.buf(b"other");
        std::mem::swap(&mut list[0], &mut other);
        drop(other);
        pair.b.post_recv(wr::recv(list)).expect("receive");
        let mut list = wr::send(pair.list(&[b"old", b"lo"])).into_payload();
        let mut hel = pair.buf(b"hel");
        std::mem::swap(&mut list[0], &mut hel);
        hel.fill(b'x');
        pair.a.post_send(wr::send(list)).expect("send");
        let (sent, mut received) = pair.retire();
        let list = received.remove(0).into_list().expect("a list");
        assert_eq!((&*list[0], list[1].len()), (&b"hello"[..], 0));
        drop((sent, list, hel));
        assert_eq!(pair.pool.available(), free);
    }
}

/// Miri detects tokens that become invalid when the queue pair holds more lists.
#[test]
fn equal_lists_are_held_once() {
    const LISTS: usize = if cfg!(miri) { 40 } else { 1 << 16 };
    let mut pair = pair(PROFILES[0]);
    let frozen = pair.pd.buf(LISTS).expect("buffer").freeze();
    let held = pair.a.hold(&frozen).expect("the same domain");
    let slice = |len| held.slice(0..len).expect("in range");
    let first = pair.a.hold_list(&[slice(2), slice(3)]).expect("list");
    for _ in 0..=LISTS {
        pair.a
            .hold_list(&[slice(2), slice(3)])
            .expect("an equal list");
    }
    for len in 1..LISTS {
        pair.a.hold_list(&[slice(len)]).expect("list");
    }
    if !cfg!(miri) {
        let error = pair
            .a
            .hold_list(&[slice(1), slice(1)])
            .expect_err("more lists than a queue pair holds");
        assert_eq!(error.kind(), ErrorKind::LimitReached);
        assert!(
            error
                .to_string()
                .contains("65536 different lists, the maximum"),
            "{error}"
        );
        pair.a.hold_list(&[slice(2)]).expect("an equal list");
    }
    pair.post_recvs(1);
    pair.a.post_send(wr::send(first)).expect("send");
    let (_, mut received) = pair.retire();
    assert_eq!(fixture::buf_bytes(received.remove(0)), [0; 5]);
}

#[test]
fn receives_with_too_many_pieces_are_rejected() {
    for profile in PROFILES {
        let mut pair = pair(profile);
        let list = pair.targets(&[8; 4]);
        let rejected = pair.b.post_recv(wr::recv(list)).expect_err("4 entries");
        let expected = PostError::TooManyPieces { count: 4, max: 3 };
        assert_eq!(rejected.error(), expected);
        let list = rejected.into_payload().expect("the rejected list");
        let batch = pair.b.recv_batch(|batch| {
            let rejected = batch.recv(wr::recv(list)).expect_err("4 entries");
            assert_eq!(rejected.error(), expected);
            Ok::<_, Error>(())
        });
        batch.expect("an empty batch");
        assert!(pair.b.is_idle());
    }
}
