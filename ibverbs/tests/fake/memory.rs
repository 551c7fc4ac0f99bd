//! Memory types on the fake provider: reclaiming, slices and errors.

use std::borrow::BorrowMut;
use std::collections::HashSet;
use std::error::Error as _;
use std::io::{Cursor, Read, Write};

use crate::fixture::{self, Fake, IN_ORDER, PROFILES, Pair, open, pairs};
use fake_provider::{Profile, Verb};
use ibverbs::mr::{Advice, Backing};
use ibverbs::{AccessFlags, Buf, CqOptions, ErrorKind, Frozen, MemoryOptions, Rc, wr};

const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

#[test]
fn a_reclaimed_region_is_a_buffer_without_rkey() {
    for mut pair in pairs(IN_ORDER) {
        let region = pair.pd.shared(40, REMOTE_RW).expect("region");
        let remote = region.remote();
        pair.a
            .post_send(wr::write(pair.buf(b"from the peer"), remote))
            .expect("write");
        drop(pair.retire());
        let held = pair.a.hold(&region).expect("hold");
        assert_eq!(held.len(), 40);
        let not_reclaimed = region.try_into_buf().expect_err("queue pairs exist");
        assert_eq!(not_reclaimed.error().kind(), ErrorKind::Mismatch);
        drop((pair.a, pair.b));
        let mut buf = not_reclaimed
            .into_region()
            .try_into_buf()
            .expect("the last reference");
        assert_eq!(&buf[..13], b"from the peer");
        buf.fill(1);
        // The device can write to it.
        let cq = pair.pd.context().create_cq(CqOptions::new());
        let mut cq = cq.expect("completion queue");
        let create = || pair.pd.create_qp::<Rc>(&cq, &cq, fixture::small());
        let (mut a, mut b) = (create().expect("a"), create().expect("b"));
        fixture::connect(&mut a, &mut b);
        b.post_recv(wr::recv(buf)).expect("receive");
        a.post_send(wr::send(wr::Inline(b"received")))
            .expect("send");
        let mut completions = cq.poll().expect("poll");
        assert!(completions.all(|completion| completion.is_success()));
        drop((a, b, cq));
    }
}

#[test]
fn peers_address_zero_based_memory_from_0() {
    for mut pair in pairs(IN_ORDER) {
        let options = || MemoryOptions::new().zero_based(true);
        let region = pair.pd.shared_with(64, REMOTE_RW, options());
        let region = region.expect("region");
        let again = region.register_in(&pair.pd, REMOTE_RW).expect("region");
        for (region, text) in [(&region, b"once"), (&again, b"more")] {
            let target = region.remote().slice(8..12).expect("in range");
            assert_eq!(target.addr, 8);
            let write = wr::write(pair.buf(text), target);
            pair.a.post_send(write).expect("write");
            let (written, _) = pair.retire();
            written[0].check().expect("written");
            let mut seen = [0; 4];
            region.read(8, &mut seen).expect("in range");
            assert_eq!(&seen, text);
        }
        let pool = pair.pd.pool_with(1, 64, options()).map(drop);
        let sink = pair.pd.sink_with(64, options()).map(drop);
        for result in [pool, sink] {
            let error = result.expect_err("peers have no access").to_string();
            assert!(error.contains("only valid for a SharedRegion"), "{error}");
        }
    }
}

#[test]
fn advice_needs_memory_for_on_demand_paging() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..Profile::RXE
    });
    let pd = open(&fake).alloc_pd().expect("protection domain");
    let options = MemoryOptions::new().on_demand(true);
    let paged = pd.shared_with(64, REMOTE_RW, options).expect("region");
    let pinned = pd.shared(64, REMOTE_RW).expect("region");
    for advice in [Advice::PREFETCH, Advice::PREFETCH_WRITE] {
        paged.advise(advice, true).expect("advice");
        let slice = paged.slice(8..64).expect("in range");
        slice.advise(advice, false).expect("advice");
        let error = pinned.advise(advice, true).expect_err("pinned");
        assert!(error.help().is_some_and(|help| help.contains("on_demand")));
    }
    fake.set(|profile| profile.more_verbs = false);
    let error = paged.advise(Advice::PREFETCH, true).expect_err("no verb");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn memory_of_two_devices_is_freed_after_the_last_one() {
    let mut pair = Pair::new(Profile::RXE);
    let other = Fake::new(Profile::RXE);
    let other_pd = open(&other).alloc_pd().expect("protection domain");
    let first = other_pd.shared(64, REMOTE_RW).expect("region");
    let half = first.slice(32..64).expect("in range");
    let second = half.register_in(&pair.pd, REMOTE_RW).expect("region");
    assert_eq!(second.remote().len, 32);
    assert_eq!(second.remote().addr, half.remote().addr);
    pair.a
        .post_send(wr::write(pair.buf(b"from the peer"), second.remote()))
        .expect("write");
    drop(pair.retire());
    let mut seen = [0; 13];
    first.read(32, &mut seen).expect("in range");
    assert_eq!(&seen, b"from the peer");
    drop((first, half, other_pd));
    other.assert_clean();
    seen.fill(0);
    second.read(0, &mut seen).expect("in range");
    assert_eq!(&seen, b"from the peer", "the memory is still allocated");
    drop((pair.a, pair.b));
    let kept = second.try_into_buf().expect_err("was registered twice");
    assert_eq!(kept.error().kind(), ErrorKind::Mismatch);
}

#[test]
fn memory_read_after_deregistration_has_one_device() {
    let fakes = [Profile::RXE, Profile::SIW].map(Fake::new);
    let [rxe, siw] = fakes
        .each_ref()
        .map(|fake| open(fake).alloc_pd().expect("protection domain"));
    let write = AccessFlags::REMOTE_WRITE;
    let region = rxe.shared(64, write).expect("region");
    let error = region.register_in(&siw, REMOTE_RW).expect_err("is read");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    drop(region.register_in(&siw, write).expect("written only"));
    let region = siw.shared(64, REMOTE_RW).expect("region");
    let error = region.register_in(&rxe, write).expect_err("is read");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_failed_reclaim_leaves_the_region_unchanged() {
    let fake = Fake::new(Profile::RXE);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let region = pd.shared(64, REMOTE_RW).expect("region");
    let remote = region.remote();
    region.write(3, b"kept").expect("in range");
    let slice = region.slice(3..7).expect("in range");
    drop(region);
    let mut slice = slice;
    for (verb, errno) in [(Verb::RegMr, libc::EFAULT), (Verb::DeregMr, libc::EBUSY)] {
        fake.fail_next(verb, errno);
        let not_reclaimed = slice.try_into_buf().expect_err("injected error");
        assert_eq!(
            not_reclaimed.error().errno().map(|errno| errno.0),
            Some(errno)
        );
        assert!(not_reclaimed.source().is_some());
        slice = not_reclaimed.into_region();
        assert_eq!(
            slice.remote(),
            remote.slice(3..7).expect("in range"),
            "the same slice with the same rkey"
        );
        assert_eq!(fake.live().mrs, 1);
    }
    let buf = slice.try_into_buf().expect("the last reference");
    assert_eq!((buf.len(), &buf[3..7]), (64, &b"kept"[..]));
}

#[test]
fn frozen_shared_memory_is_read_locally_and_by_peers() {
    for mut pair in pairs(PROFILES) {
        let frozen = pair
            .pd
            .frozen_shared(24, MemoryOptions::default(), |bytes| bytes.fill(9))
            .expect("frozen");
        let remote = frozen.remote().expect("remotely readable");
        pair.a
            .post_send(wr::read(pair.pool.take().expect("a free buffer"), remote))
            .expect("read");
        let (mut read, _) = pair.retire();
        assert_eq!(fixture::buf_bytes(read.remove(0)), [9; 24]);
        let held = pair.a.hold(&frozen).expect("hold");
        pair.post_recvs(1);
        pair.a
            .post_send(wr::send(held.slice(20..24).expect("in range")))
            .expect("send");
        let (_, mut received) = pair.retire();
        assert_eq!(fixture::buf_bytes(received.remove(0)), [9; 4]);
        let _frozen = frozen.try_thaw().expect_err("peers know the rkey");
    }
}

#[test]
fn slices_are_bounded_and_share_the_region() {
    let fake = Fake::new(Profile::RXE);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let region = pd
        .shared_with(100, REMOTE_RW, MemoryOptions::new().backing(Backing::Heap))
        .expect("region");
    // The ends of the slices are at and between word boundaries. Miri is slow and runs fewer cases.
    let starts = if cfg!(miri) { 9 } else { 20 };
    for start in 0..starts {
        for end in (start..20).step_by(if cfg!(miri) { 5 } else { 1 }) {
            let slice = region
                .slice(40..80)
                .and_then(|part| part.slice(start..end))
                .expect("in range");
            let bytes: Vec<u8> = (0..slice.len())
                .map(|index| u8::try_from(index).expect("small") + 1)
                .collect();
            region.write(0, &[0; 100]).expect("in range");
            slice.write(0, &bytes).expect("in range");
            let mut all = [0; 100];
            region.read(0, &mut all).expect("in range");
            assert_eq!(all[40 + start..40 + end], bytes);
            assert!(
                all[..40 + start]
                    .iter()
                    .chain(&all[40 + end..])
                    .all(|&byte| byte == 0)
            );
            slice
                .read(1, &mut all[..end - start])
                .expect_err("one byte beyond the end");
        }
    }
    #[allow(
        clippy::reversed_empty_ranges,
        reason = "the test passes an invalid range"
    )]
    let backwards = region.slice(5..4);
    assert!(
        backwards.is_none() && region.slice(0..101).is_none() && region.slice(101..101).is_none()
    );
}

#[test]
fn buffers_work_with_the_byte_traits_of_std() {
    fn sum(bytes: impl AsRef<[u8]>) -> u32 {
        bytes.as_ref().iter().map(|&byte| u32::from(byte)).sum()
    }
    let fake = Fake::new(Profile::RXE);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let mut buf = pd.buf(8).expect("buffer");
    buf.as_mut().fill(1);
    for byte in &mut buf {
        *byte += 1;
    }
    (&mut &mut buf[..]).write_all(b"abc").expect("room");
    buf.set_len(4);
    assert_eq!(buf, b"abc\x02");
    assert_eq!(buf, [97, 98, 99, 2]);
    assert_eq!(buf, &b"abc\x02"[..]);
    assert_eq!(buf, *b"abc\x02".as_slice());
    assert_ne!(buf, b"abc");
    assert_eq!(sum(&*buf), 296);
    assert_eq!((&buf).into_iter().count(), 4);

    let frozen = Frozen::from(buf);
    assert_eq!(sum(frozen.clone()), 296);
    #[allow(
        clippy::mutable_key_type,
        reason = "only the bytes are hashed, and they do not change"
    )]
    let set = HashSet::from([frozen.clone()]);
    assert!(set.contains(&b"abc\x02"[..]), "hashes like the slice");
    assert!(set.contains(&frozen));
    let frozen = Buf::try_from(frozen).expect_err("the set has a clone");
    drop(set);
    let buf = Buf::try_from(frozen).expect("the last reference");
    let mut text = String::new();
    let mut reader = Cursor::new(buf);
    reader.set_position(1);
    reader.read_to_string(&mut text).expect("ASCII");
    assert_eq!(text, "bc\x02");
}

#[test]
fn a_buffer_is_never_longer_than_its_memory() {
    let fake = Fake::extended();
    let pd = open(&fake).alloc_pd().expect("domain");
    let pool = pd.pool(2, 16).expect("pool");
    let mut buf = pool.take().expect("a free buffer");
    let max = buf.capacity();
    assert!(max >= 16);
    for len in [max, max + 1, u32::MAX as usize + 1, usize::MAX] {
        buf.set_len(len);
        assert_eq!(buf.len(), max, "{len}");
    }
    buf.set_len(3);
    assert_eq!(buf.len(), 3);
}

/// A queue pair keeps all of the memory that it holds, not only the first of a kind.
#[test]
fn each_held_memory_stays_registered() {
    let mut pair = Pair::new(Profile::RXE);
    let before = pair.fake.live().mrs;
    for round in 1..=2 {
        let frozen = pair.pd.buf(1).expect("buf").freeze();
        let sink = pair.pd.sink(1).expect("sink");
        let region = pair.pd.shared(8, REMOTE_RW).expect("region");
        for _ in 0..2 {
            assert!(!pair.a.hold(&frozen).expect("hold").is_empty());
            assert!(!pair.a.hold(&sink).expect("hold").is_empty());
            assert!(!pair.a.hold(&region).expect("hold").is_empty());
        }
        drop((frozen, sink, region));
        assert_eq!(pair.fake.live().mrs, before + 3 * round);
    }
}

#[test]
fn sizes_are_those_of_the_memory() {
    let mut pair = Pair::new(Profile::RXE);
    let pool = pair.pd.pool(2, 48).expect("pool");
    assert_eq!((pool.buf_size(), pool.available()), (48, 2));
    let mut buf = pool.take().expect("buf");
    buf.set_len(0);
    assert!(buf.is_empty());
    let frozen = buf.freeze();
    let held = pair.a.hold(&frozen).expect("hold");
    assert!(held.is_empty());
    let list = pair.a.hold_list(&[held, held]).expect("list");
    assert_eq!((list.len(), list.is_empty()), (0, true));
    assert_eq!(pair.pd.sink(24).expect("sink").size(), 24);
    let region = pair.pd.shared(8, REMOTE_RW).expect("region");
    let swap = |expected, new| region.compare_exchange(0, expected, new).expect("a word");
    assert_eq!(
        [swap(1, 7), swap(0, 7), swap(0, 8)],
        [Err(0), Ok(0), Err(7)]
    );
    let held = pair.a.hold(&region).expect("hold");
    let list = pair.a.hold_list(&[held, held]).expect("list");
    assert_eq!((list.len(), list.is_empty()), (16, false));
    let mut buf = pool.take().expect("buf");
    let bytes: &mut [u8] = buf.borrow_mut();
    bytes.fill(7);
    assert_eq!(buf[..], [7; 48]);
}

#[test]
fn a_region_is_accessible_by_its_new_rights_and_keys() {
    for profile in IN_ORDER {
        let mut pair = Pair::new(Profile {
            more_verbs: true,
            ..profile
        });
        let region = pair.pd.shared(40, AccessFlags::empty()).expect("region");
        let before = region.remote().rkey;
        pair.fake.fail_next(Verb::ReregMr, libc::EOPNOTSUPP);
        let failed = region.rereg(REMOTE_RW).expect_err("injected error");
        assert_eq!(failed.error().kind(), ErrorKind::Unsupported);
        assert!(failed.source().is_some());
        let region = failed.into_region().expect("unchanged");
        let rights = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
        let region = region.rereg(AccessFlags::REMOTE_WRITE).expect("changed");
        assert_eq!(region.access(), rights);
        let remote = region.remote();
        assert_ne!(remote.rkey, before);
        let write = wr::write(wr::Inline(b"new rights"), remote);
        pair.a.post_send(write).expect("write");
        let (written, _) = pair.retire();
        written[0].check().expect("success");
        let kept = region.try_into_buf().expect_err("queue pairs exist");
        let region = kept.into_region();
        pair.fake.fail_next(Verb::ReregMr, libc::EIO);
        let failed = region.rereg(REMOTE_RW).expect_err("injected error");
        assert!(failed.into_region().is_none(), "it is unusable");
        assert_eq!(pair.fake.live().mrs, 1, "only the pool");
    }
}
