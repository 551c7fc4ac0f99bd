//! Setup on the fake device: held address handles, drop orders, panics and errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::fixture::{Fake, PROFILES, in_order, open, small};
use fake_provider::{Live, Profile};
use ibverbs::{
    AddressHandle, AhAttr, CompletionQueue, CqOptions, DatagramAttr, Direction, Error, ErrorKind,
    GRH_LEN, Gid, Lid, PostError, ProtectionDomain, Qkey, Qpn, QueuePair, Retired, Ud, UdSource,
    wr::{self, Destination},
};

const QKEY: Qkey = Qkey(7);

/// Two UD queue pairs in RTS that share a completion queue.
struct Setup {
    a: QueuePair<Ud>,
    b: QueuePair<Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    fake: Fake,
}

impl Setup {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::new().depth(63))
            .expect("completion queue");
        let create = || {
            let mut qp = pd.create_qp::<Ud>(&cq, &cq, small()).expect("queue pair");
            qp.start(&DatagramAttr::new(1, QKEY)).expect("RTS state");
            qp
        };
        let (a, b) = (create(), create());
        Self { a, b, cq, pd, fake }
    }

    /// Creates an address handle for the device's first GID.
    fn address_handle(&self) -> AddressHandle {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        self.pd
            .create_ah(&AhAttr::for_gid(1, own.index, own.gid))
            .expect("address handle")
    }

    /// Posts a receive on `b`, sends a datagram to a group from `a`, and returns `true` if it
    /// arrives.
    fn reaches_b(&mut self, group: Gid) -> bool {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        let attr = AhAttr::for_gid(1, own.index, group);
        let to = self.a.destination(&attr, Qpn::MULTICAST, QKEY);
        let to = to.expect("address handle");
        let buf = self.pd.buf(64).expect("buffer");
        self.b.post_recv(wr::recv(buf)).expect("receive");
        let send = wr::send(wr::Inline(b"all")).to(to);
        self.a.post_send(send).expect("send");
        !self.received().is_empty()
    }

    /// Returns `b` as the destination of sends from `a`.
    fn destination_b(&mut self) -> Destination {
        let handle = self.address_handle();
        Destination {
            address: self.a.hold_address(&handle).expect("hold"),
            qpn: self.b.qp_num(),
            qkey: QKEY,
        }
    }

    /// Retires all requests and returns the receives with their sources.
    fn received(&mut self) -> Vec<(UdSource, Retired)> {
        let mut all = Vec::new();
        for completion in self.cq.poll().expect("poll") {
            let source = completion.source();
            let qp = if completion.queue() == self.a.id() {
                &mut self.a
            } else {
                &mut self.b
            };
            let retired = qp.retire(completion).expect("in flight");
            retired.check().expect("success");
            if retired.direction() == Direction::Recv {
                all.push((source, retired));
            }
        }
        all
    }
}

#[test]
fn a_datagram_follows_its_grh_and_can_be_answered() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b();
        setup
            .b
            .post_recv(wr::recv(setup.pd.buf(64).expect("buffer")))
            .expect("receive");
        setup
            .a
            .post_send(wr::send_with_imm(wr::Inline(b"ping"), 9).to(to_b))
            .expect("send");
        let (source, retired) = setup.received().pop().expect("received");
        assert_eq!(
            (source.qpn, retired.imm_data()),
            (setup.a.qp_num(), Some(9))
        );
        let bytes = retired.into_buf().expect("posted with a buffer");
        assert_eq!(&bytes[GRH_LEN..], b"ping");

        let handle = setup
            .pd
            .create_ah_from_wc(1, &source, &bytes)
            .expect("address handle of the source");
        let to_a = Destination {
            address: setup.b.hold_address(&handle).expect("hold"),
            qpn: source.qpn,
            qkey: QKEY,
        };
        setup
            .a
            .post_recv(wr::recv(setup.pd.buf(64).expect("buffer")))
            .expect("receive");
        let mut pong = setup.pd.buf(4).expect("buffer");
        pong.copy_from_slice(b"pong");
        setup.b.post_send(wr::send(pong).to(to_a)).expect("send");
        let (_, retired) = setup.received().pop().expect("received");
        assert_eq!(
            &retired.into_buf().expect("posted with a buffer")[GRH_LEN..],
            b"pong"
        );
    }
}

#[test]
fn a_datagram_without_receive_or_qkey_match_is_dropped() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b();
        setup
            .a
            .post_send(wr::send(wr::Inline(b"no receive")).to(to_b))
            .expect("send");
        setup
            .b
            .post_recv(wr::recv(setup.pd.buf(64).expect("buffer")))
            .expect("receive");
        let wrong_qkey = Destination {
            qkey: Qkey(8),
            ..to_b
        };
        setup
            .a
            .post_send(wr::send(wr::Inline(b"wrong Q_Key")).to(wrong_qkey))
            .expect("send");
        assert!(setup.received().is_empty());
        assert_eq!(
            setup.a.send_slots_free(),
            usize::try_from(setup.a.caps().max_send_wr).expect("small")
        );
    }
}

#[test]
fn a_member_receives_from_its_groups_until_it_detaches() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let [first, second, third] =
            ["ff0e::ffff:239.1.2.3", "ff0e::1", "ff0e::2"].map(|gid| gid.parse().expect("a GID"));
        let error = setup.b.attach_mcast(Gid::default(), Lid(0));
        let error = error.expect_err("not the address of a group");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for group in [first, second] {
            setup.b.attach_mcast(group, Lid(0)).expect("attach");
        }
        assert!(setup.reaches_b(first) && setup.reaches_b(second));
        assert!(!setup.reaches_b(third));
        for (group, lid) in [(third, 0), (second, 1)] {
            let error = setup.b.detach_mcast(group, Lid(lid));
            let error = error.expect_err("not attached");
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
        setup.b.detach_mcast(first, Lid(0)).expect("detach");
        assert!(!setup.reaches_b(first) && setup.reaches_b(second));
        // Destroying the queue pair detaches it from the second group.
    }
}

#[test]
fn a_held_address_outlives_its_handle_and_its_requests() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b(); // The address handle is dropped.
        assert_eq!(setup.fake.live().ahs, 1);
        setup.fake.stall();
        setup
            .a
            .post_send(wr::send(setup.pd.buf(8).expect("buffer")).to(to_b))
            .expect("send");
        assert_eq!(
            setup.a.release_addresses().expect_err("in flight").kind(),
            ErrorKind::Busy
        );
        // The queue pair keeps everything else alive.
        drop((setup.b, setup.cq, setup.pd));
        assert_eq!(
            setup.fake.live(),
            Live {
                contexts: 1,
                pds: 1,
                mrs: 1,
                cqs: 1,
                qps: 1,
                ahs: 1,
                ..Live::default()
            }
        );
    }
}

#[test]
fn an_address_token_is_valid_until_its_release() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b();
        let rejected = setup
            .b
            .post_send(wr::send(wr::Empty).to(to_b))
            .expect_err("held by the other queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        setup
            .a
            .release_addresses()
            .expect("release with nothing in flight");
        assert_eq!(setup.fake.live().ahs, 0);
        let rejected = setup
            .a
            .post_send(wr::send(wr::Empty).to(to_b))
            .expect_err("released");
        assert_eq!(rejected.error(), PostError::WrongQueue);
    }
}

#[test]
fn a_panic_in_a_batch_of_datagrams_posts_none() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b();
        let pool = setup.pd.pool(2, 8).expect("pool");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            setup.a.batch(|batch| -> Result<(), Error> {
                batch.send(wr::send(pool.take().expect("a free buffer")).to(to_b))?;
                batch.send(wr::send(pool.take().expect("a free buffer")).to(to_b))?;
                panic!("inside the batch");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(pool.available(), 2);
        setup
            .a
            .post_send(wr::send(wr::Inline(b"after")).to(to_b))
            .expect("the queue pair is still usable");
        assert!(setup.received().is_empty());
    }
}

#[test]
#[allow(clippy::forget_non_drop, reason = "the test forgets a completion")]
fn a_forgotten_completion_only_delays_its_slot() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let to_b = setup.destination_b();
        let pool = setup.pd.pool(2, 8).expect("pool");
        setup
            .a
            .post_send(wr::send(pool.take().expect("a free buffer")).to(to_b))
            .expect("send");
        std::mem::forget(setup.cq.poll().expect("poll").next());
        assert_eq!(pool.available(), 1);
        setup
            .a
            .post_send(wr::send(pool.take().expect("a free buffer")).to(to_b))
            .expect("send");
        assert!(setup.received().is_empty());
        assert_eq!(
            pool.available(),
            1 + usize::from(in_order(&profile)),
            "in order, the later completion retired both requests"
        );
    }
}
