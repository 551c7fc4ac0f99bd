//! Datagrams on the fake device: address handles that are held, drop orders, what a panic or an
//! error leaves behind.

mod fake;

use std::panic::{AssertUnwindSafe, catch_unwind};

use fake::{PROFILES, open, small};
use fake_provider::{Fake, Live, Profile};
use ibverbs::{
    AddressHandle, AhAttr, CompletionQueue, CqOptions, Direction, Error, ErrorKind, GRH_LEN,
    PostError, ProtectionDomain, Psn, Qkey, QueuePair, Retired, Ud, UdSource,
    wr::{self, Destination},
};

const QKEY: Qkey = Qkey(7);

struct Datagrams {
    a: QueuePair<Ud>,
    b: QueuePair<Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    fake: Fake,
}

impl Datagrams {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions {
                depth: 63,
                extended: profile.extended_cq,
                ..CqOptions::default()
            })
            .expect("completion queue");
        let make = || {
            let mut qp = pd.create_qp::<Ud>(&cq, &cq, small()).expect("queue pair");
            qp.start(1, 0, QKEY, Psn(0)).expect("RTS state");
            qp
        };
        let (a, b) = (make(), make());
        Self { a, b, cq, pd, fake }
    }

    fn handle(&self) -> AddressHandle {
        let own = self.pd.context().gids(1).expect("GID table")[0];
        self.pd
            .create_ah(&AhAttr::for_gid(1, own.index, own.gid))
            .expect("address handle")
    }

    /// From `a` to `b`.
    fn there(&mut self) -> Destination {
        let handle = self.handle();
        Destination {
            address: self.a.hold_address(&handle).expect("hold"),
            qpn: self.b.qp_num(),
            qkey: QKEY,
        }
    }

    /// What was received by either, with where it came from; sends are retired on the way.
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
            retired.ok().expect("success");
            if retired.direction() == Direction::Recv {
                all.push((source, retired));
            }
        }
        all
    }

    fn finish(self) {
        let Self { a, b, cq, pd, fake } = self;
        drop((a, b, cq, pd));
        fake.assert_clean();
    }
}

#[test]
fn a_datagram_arrives_after_its_header_and_can_be_answered() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there();
        both.b
            .post_recv(wr::recv(both.pd.buf(64).expect("buffer")))
            .expect("receive");
        both.a
            .post_send(wr::send_to_with_imm(wr::Inline(b"ping"), there, 9))
            .expect("send");
        let (source, retired) = both.received().pop().expect("received");
        assert_eq!((source.qpn, retired.imm_data()), (both.a.qp_num(), Some(9)));
        let bytes = retired.into_buf().expect("posted with a buffer");
        assert_eq!(&bytes[GRH_LEN..], b"ping");

        let handle = both
            .pd
            .create_ah_from_wc(1, &source, &bytes)
            .expect("address handle of the source");
        let back = Destination {
            address: both.b.hold_address(&handle).expect("hold"),
            qpn: source.qpn,
            qkey: QKEY,
        };
        both.a
            .post_recv(wr::recv(both.pd.buf(64).expect("buffer")))
            .expect("receive");
        let mut pong = both.pd.buf(4).expect("buffer");
        pong.copy_from_slice(b"pong");
        both.b.post_send(wr::send_to(pong, back)).expect("send");
        let (_, retired) = both.received().pop().expect("received");
        assert_eq!(
            &retired.into_buf().expect("posted with a buffer")[GRH_LEN..],
            b"pong"
        );
        drop((bytes, handle));
        both.finish();
    }
}

#[test]
fn what_nobody_waits_for_or_knows_the_key_of_is_lost_and_the_send_is_done() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there();
        both.a
            .post_send(wr::send_to(wr::Inline(b"nobody"), there))
            .expect("send");
        both.b
            .post_recv(wr::recv(both.pd.buf(64).expect("buffer")))
            .expect("receive");
        let stranger = Destination {
            qkey: Qkey(8),
            ..there
        };
        both.a
            .post_send(wr::send_to(wr::Inline(b"stranger"), stranger))
            .expect("send");
        assert!(both.received().is_empty());
        assert_eq!(
            both.a.send_slots_free(),
            usize::try_from(both.a.caps().max_send_wr).expect("small")
        );
        both.finish();
    }
}

#[test]
fn a_held_address_outlives_its_handle_and_what_is_in_flight_to_it() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there(); // the handle is dropped in there
        assert_eq!(both.fake.live().ahs, 1);
        both.fake.stall();
        both.a
            .post_send(wr::send_to(both.pd.buf(8).expect("buffer"), there))
            .expect("send");
        assert_eq!(
            both.a.release_addresses().expect_err("in flight").kind(),
            ErrorKind::QueueFull
        );
        let Datagrams { a, b, cq, pd, fake } = both;
        // Everything else goes first: the queue pair keeps it all.
        drop((b, cq, pd));
        assert_eq!(
            fake.live(),
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
        drop(a);
        fake.assert_clean();
    }
}

#[test]
fn a_token_works_on_its_queue_pair_and_until_it_is_released() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there();
        let rejected = both
            .b
            .post_send(wr::send_to(wr::Empty, there))
            .expect_err("held by the other queue pair");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        both.a.release_addresses().expect("nothing is in flight");
        assert_eq!(both.fake.live().ahs, 0);
        let rejected = both
            .a
            .post_send(wr::send_to(wr::Empty, there))
            .expect_err("released");
        assert_eq!(rejected.error(), PostError::WrongQueue);
        both.finish();
    }
}

#[test]
fn a_panic_in_a_batch_of_datagrams_posts_none_and_gives_the_buffers_back() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there();
        let pool = both.pd.pool(2, 8).expect("pool");
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            both.a.batch(|batch| -> Result<(), Error> {
                batch.send(wr::send_to(pool.take().expect("a free buffer"), there))?;
                batch.send(wr::send_to(pool.take().expect("a free buffer"), there))?;
                panic!("in the middle");
            })
        }));
        assert!(panicked.is_err());
        assert_eq!(pool.available(), 2);
        both.a
            .post_send(wr::send_to(wr::Inline(b"after"), there))
            .expect("the queue pair goes on");
        assert!(both.received().is_empty());
        drop(pool);
        both.finish();
    }
}

#[test]
#[allow(clippy::forget_non_drop, reason = "forgetting it is what is tested")]
fn a_forgotten_completion_costs_its_place_and_no_more() {
    for profile in PROFILES {
        let mut both = Datagrams::new(profile);
        let there = both.there();
        let pool = both.pd.pool(2, 8).expect("pool");
        both.a
            .post_send(wr::send_to(pool.take().expect("a free buffer"), there))
            .expect("send");
        std::mem::forget(both.cq.poll().expect("poll").next());
        assert_eq!(pool.available(), 1);
        both.a
            .post_send(wr::send_to(pool.take().expect("a free buffer"), there))
            .expect("send");
        assert!(both.received().is_empty());
        assert_eq!(pool.available(), 2, "the later one retired both");
        drop(pool);
        both.finish();
    }
}
