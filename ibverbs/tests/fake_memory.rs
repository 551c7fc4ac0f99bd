//! Memory types on the fake provider: reclaiming, slices and errors.

mod fake;

use fake::{PROFILES, Pair, open};
use fake_provider::{Fake, Profile, Verb};
use ibverbs::{AccessFlags, ErrorKind, MemoryOptions, mr::Backing, wr};

const REMOTE_RW: AccessFlags = AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE);

#[test]
fn a_reclaimed_region_is_a_buffer_without_rkey() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
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
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        drop((a, b));
        let mut buf = not_reclaimed
            .into_region()
            .try_into_buf()
            .expect("the last reference");
        assert_eq!(&buf[..13], b"from the peer");
        buf.fill(1);
        drop(buf);
        drop((cq, pool, pd, context));
        fake.assert_clean();
    }
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
        slice = not_reclaimed.into_region();
        assert_eq!(
            slice.remote(),
            remote.slice(3, 4).expect("in range"),
            "the same slice with the same rkey"
        );
        assert_eq!(fake.live().mrs, 1);
    }
    let buf = slice.try_into_buf().expect("the last reference");
    assert_eq!((buf.len(), &buf[3..7]), (64, &b"kept"[..]));
    drop((buf, pd, context));
    fake.assert_clean();
}

#[test]
fn frozen_shared_memory_is_read_locally_and_by_peers() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let frozen = pair
            .pd
            .frozen_shared(24, MemoryOptions::default(), |bytes| bytes.fill(9))
            .expect("frozen");
        let remote = frozen.remote().expect("remotely readable");
        pair.a
            .post_send(wr::read(pair.pool.take().expect("a free buffer"), remote))
            .expect("read");
        let (mut read, _) = pair.retire();
        assert_eq!(fake::buf_bytes(read.remove(0)), [9; 24]);
        let held = pair.a.hold(&frozen).expect("hold");
        pair.post_recvs(1);
        pair.a
            .post_send(wr::send(held.slice(20..24).expect("in range")))
            .expect("send");
        let (_, mut received) = pair.retire();
        assert_eq!(fake::buf_bytes(received.remove(0)), [9; 4]);
        let frozen = frozen.try_thaw().expect_err("peers know the rkey");
        drop((frozen, read));
        pair.finish();
    }
}

#[test]
fn slices_are_bounded_and_share_the_region() {
    let fake = Fake::new(Profile::RXE);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let region = pd
        .shared_with(
            100,
            REMOTE_RW,
            MemoryOptions {
                backing: Backing::Heap,
                ..Default::default()
            },
        )
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
    drop((region, pd, context));
    fake.assert_clean();
}
