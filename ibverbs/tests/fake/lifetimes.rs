//! Objects keep their parents alive. After a queue pair is destroyed, the device no longer accesses
//! the memory of its requests.

use std::time::{Duration, Instant};

use crate::fixture::{PROFILES, Pair, connect, open, order_of_six, small};
use fake_provider::{Fake, Live, Profile};
use ibverbs::{AccessFlags, CqOptions, ErrorKind, Rc, wr};

/// Creates every kind of object, optionally with requests in flight. Each is boxed to be dropped
/// separately.
fn everything(fake: &Fake, in_flight: bool) -> Vec<Option<Box<dyn Send>>> {
    let context = open(fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    let pool = pd.pool(4, 64).expect("pool");
    let frozen = pool.take().expect("a free buffer").freeze();
    if in_flight {
        let held = a.hold(&frozen).expect("hold");
        fake.stall();
        b.post_recv(wr::recv(pool.take().expect("a free buffer")))
            .expect("receive");
        a.post_send(wr::send(held)).expect("send");
        a.post_send(wr::send(pool.take().expect("a free buffer")))
            .expect("send");
    }
    vec![
        Some(Box::new((a, b))),
        Some(Box::new(cq)),
        Some(Box::new(pool)),
        Some(Box::new(frozen)),
        Some(Box::new(pd)),
        Some(Box::new(context)),
    ]
}

#[test]
fn objects_may_be_dropped_in_any_order() {
    // Each order with and without requests in flight. Miri is slow, so it runs nine cases.
    let step = if cfg!(miri) { 163 } else { 1 };
    for case in (0..2 * 720).step_by(step) {
        let fake = Fake::extended();
        let mut objects = everything(&fake, case % 2 == 0);
        for object in order_of_six(case / 2) {
            drop(objects[object].take());
        }
        fake.assert_clean();
    }
}

#[test]
fn a_buffer_keeps_its_region_and_a_region_its_domain() {
    let fake = Fake::extended();
    let mut buf = open(&fake)
        .alloc_pd()
        .expect("protection domain")
        .buf(64)
        .expect("buffer");
    buf.fill(7);
    assert_eq!(
        fake.live(),
        Live {
            contexts: 1,
            pds: 1,
            mrs: 1,
            ..Live::default()
        }
    );
    let frozen = buf.freeze();
    let region = open(&fake)
        .alloc_pd()
        .expect("protection domain")
        .shared(8, AccessFlags::REMOTE_READ)
        .expect("region");
    assert_eq!(frozen[63], 7);
    drop(region);
    drop(frozen);
    fake.assert_clean();
}

#[test]
fn destroying_a_queue_pair_returns_buffers_in_flight() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.fake.stall();
        pair.post_recvs(3);
        for byte in [b"0", b"1"] {
            let buf = pair.buf(byte);
            pair.a
                .post_send(wr::send(buf).tag(9).signaled(false))
                .expect("send");
        }
        pair.a.post_send(wr::send(wr::Inline(b"2"))).expect("send");
        let (a, b, parents) = pair.split();
        let (of_a, of_b) = (a.destroy().expect("a"), b.destroy().expect("b"));
        assert_eq!(
            of_a.sends
                .iter()
                .map(|(tag, buf)| (*tag, buf[0]))
                .collect::<Vec<_>>(),
            [(9, b'0'), (9, b'1')]
        );
        assert_eq!(of_b.recvs.len(), 3);
        // The device must not access the buffers after the queue pair is destroyed.
        let mut bufs: Vec<_> = of_a
            .sends
            .into_iter()
            .chain(of_b.recvs)
            .map(|(_, buf)| buf)
            .collect();
        for buf in &mut bufs {
            buf.fill(5);
        }
        parents.fake.resume();
        assert!(bufs.iter().all(|buf| buf.iter().all(|byte| *byte == 5)));
        drop(bufs);
        parents.finish();
    }
}

#[test]
fn dropping_a_queue_pair_returns_buffers_to_the_pool() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        let free = pair.pool.available();
        pair.fake.stall();
        pair.post_recvs(3);
        let buf = pair.buf(b"x");
        pair.a.post_send(wr::send(buf)).expect("send");
        assert_eq!(pair.pool.available(), free - 4);
        let parents = pair.drop_queue_pairs();
        assert_eq!(parents.pool.available(), free);
        parents.finish();
    }
}

#[test]
fn frozen_memory_thaws_only_when_no_queue_pair_holds_it() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.post_recvs(1);
        let frozen = pair.buf(b"frozen").freeze();
        let held = pair.a.hold(&frozen).expect("hold");
        pair.a.hold(&frozen).expect("second hold");
        pair.a.post_send(wr::send(held)).expect("send");
        drop(pair.retire());
        let frozen = frozen.try_thaw().expect_err("held, with nothing in flight");
        let (a, b, parents) = pair.split();
        drop(a);
        let clone = frozen.clone();
        let frozen = frozen.try_thaw().expect_err("a clone exists");
        drop(clone);
        let mut buf = frozen.try_thaw().expect("the last reference");
        buf[0] = b'F';
        assert_eq!(&buf[..], b"Frozen");
        drop((buf, b));
        parents.finish();
    }
}

#[test]
fn a_reposted_buffer_has_its_full_capacity() {
    for profile in PROFILES {
        let mut pair = Pair::new(profile);
        pair.post_recvs(1);
        for round in 0..10_u8 {
            let length = usize::from(round) % 7;
            pair.a
                .post_send(wr::send(wr::Inline(&vec![round; length])))
                .expect("send");
            let (_, mut received) = pair.retire();
            let buf = received.remove(0).into_buf().expect("posted with a buffer");
            assert_eq!((&buf[..], buf.capacity()), (&vec![round; length][..], 64));
            pair.b.post_recv(wr::recv(buf)).expect("receive");
        }
        pair.finish();
    }
}

#[test]
fn draining_ends_at_its_timeout() {
    let mut pair = Pair::new(Profile::SIW);
    pair.b.to_error().expect("ERR state");
    // Soft-iWARP never completes it.
    let receive = wr::recv(pair.buf(b""));
    pair.b.post_recv(receive).expect("receive");
    let timeout = Duration::from_millis(1);
    let start = Instant::now();
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout, |_| ());
    let error = drained.expect_err("a receive is in flight");
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!(start.elapsed() > timeout);
    assert_eq!(pair.b.destroy().expect("destroyed").recvs.len(), 1);
    drop((pair.a, pair.pool, pair.cq, pair.pd, pair.context));
    pair.fake.assert_clean();

    let mut pair = Pair::new(Profile::RXE);
    pair.post_recvs(2);
    let mut retired = 0;
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout * 5000, |each| {
        retired += usize::from(each.is_ok());
    });
    drained.expect("drained");
    assert_eq!(retired, 3, "two receives and the last send");
    pair.finish();

    let mut pair = Pair::new(Profile::RXE);
    let drained = pair.b.drain(&mut [&mut pair.cq], timeout, |_| {
        panic!("an idle queue pair posts nothing")
    });
    drained.expect("drained");
    pair.finish();
}
