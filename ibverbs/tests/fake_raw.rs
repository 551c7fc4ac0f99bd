//! Raw packets on the fake device: frames arrive where a rule says so, and rules end before their
//! queue pair.

mod fake;

use fake::{PROFILES, bytes, open, small};
use fake_provider::{Fake, Profile, Verb};
use ibverbs::{
    CompletionQueue, CqOptions, ErrorKind, Pool, QueuePair, RawPacket, Rc,
    flow::{FlowRule, FlowSpec},
    wr,
};

const MINE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const YOURS: [u8; 6] = [2, 0, 0, 0, 0, 2];

struct Wire {
    sender: QueuePair<RawPacket>,
    receivers: [QueuePair<RawPacket>; 2],
    cq: CompletionQueue,
    pool: Pool,
    fake: Fake,
}

impl Wire {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(Profile {
            more_verbs: true,
            ..profile
        });
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions {
                depth: 31,
                ..CqOptions::default()
            })
            .expect("completion queue");
        let qp = || {
            let mut qp = pd
                .create_qp::<RawPacket>(&cq, &cq, small())
                .expect("queue pair");
            qp.start(1).expect("RTS state");
            qp
        };
        let (sender, receivers) = (qp(), [qp(), qp()]);
        let pool = pd.pool(8, 64).expect("pool");
        Self {
            sender,
            receivers,
            cq,
            pool,
            fake,
        }
    }

    fn receives(&mut self) {
        for qp in &mut self.receivers {
            qp.post_recv(wr::recv(self.pool.take().expect("a free buffer")))
                .expect("a free slot");
        }
    }

    fn send(&mut self, to: [u8; 6], text: &[u8]) {
        let mut frame = self.pool.take().expect("a free buffer");
        frame.set_len(6 + text.len());
        frame[..6].copy_from_slice(&to);
        frame[6..].copy_from_slice(text);
        self.sender.post_send(wr::send(frame)).expect("send");
    }

    /// What arrived, and at which receiver.
    fn arrived(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        for completion in self.cq.poll().expect("poll") {
            match self
                .receivers
                .iter()
                .position(|qp| qp.id() == completion.queue())
            {
                Some(place) => {
                    let retired = self.receivers[place].retire(completion).expect("in flight");
                    all.push((place, bytes(retired)[6..].to_vec()));
                }
                None => self
                    .sender
                    .retire(completion)
                    .expect("in flight")
                    .ok()
                    .expect("success"),
            }
        }
        all
    }

    fn finish(self) {
        let Self {
            sender,
            receivers,
            cq,
            pool,
            fake,
        } = self;
        drop((sender, receivers, cq, pool));
        fake.assert_clean();
    }
}

#[test]
fn a_frame_arrives_where_a_rule_says_so_and_is_lost_elsewhere() {
    for profile in PROFILES {
        let mut wire = Wire::new(profile);
        wire.receives();
        wire.send(MINE, b"nobody listens");
        assert!(wire.arrived().is_empty());
        for (qp, mac) in wire.receivers.iter_mut().zip([MINE, YOURS]) {
            qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_mac(mac)]))
                .expect("rule");
        }
        wire.send(YOURS, b"two");
        wire.send(MINE, b"one");
        assert_eq!(wire.arrived(), [(1, b"two".to_vec()), (0, b"one".to_vec())]);
        wire.finish();
    }
}

#[test]
fn a_rule_ends_when_it_is_destroyed_and_once() {
    for profile in PROFILES {
        let mut wire = Wire::new(profile);
        let all = FlowRule::new(1, []);
        let first = wire.receivers[0].create_flow(&all).expect("rule");
        wire.receivers[1].create_flow(&all).expect("rule");
        assert_eq!(
            wire.receivers[1]
                .destroy_flow(first)
                .expect_err("another's")
                .kind(),
            ErrorKind::InvalidInput
        );
        wire.receivers[0].destroy_flow(first).expect("it is there");
        assert_eq!(
            wire.receivers[0]
                .destroy_flow(first)
                .expect_err("gone")
                .kind(),
            ErrorKind::InvalidInput
        );
        wire.receives();
        wire.send(MINE, b"one left");
        assert_eq!(wire.arrived(), [(1, b"one left".to_vec())]);
        wire.finish();
    }
}

#[test]
fn rules_end_with_their_queue_pair_and_buffers_come_back() {
    for profile in PROFILES {
        let mut wire = Wire::new(profile);
        wire.receives();
        for _ in 0..3 {
            wire.receivers[0]
                .create_flow(&FlowRule::new(1, [FlowSpec::dst_mac(MINE)]))
                .expect("rule");
        }
        let Wire {
            sender,
            receivers: [first, second],
            cq,
            pool,
            fake,
        } = wire;
        assert_eq!((fake.live().flows, pool.available()), (3, 6));
        let reclaimed = first.destroy().expect("destroyed");
        assert_eq!((fake.live().flows, reclaimed.recvs.len()), (0, 1));
        drop((second, reclaimed));
        assert_eq!(pool.available(), 8);
        drop((sender, cq, pool));
        fake.assert_clean();
    }
}

#[test]
fn a_rule_that_the_driver_refuses_leaves_nothing() {
    let mut wire = Wire::new(PROFILES[0]);
    wire.fake.fail_next(Verb::CreateFlow, libc::EPERM);
    let error = wire.receivers[0]
        .create_flow(&FlowRule::new(1, []))
        .expect_err("no right");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    let many = FlowRule::new(1, vec![FlowSpec::dst_udp_port(9); 300]);
    assert_eq!(
        wire.receivers[0]
            .create_flow(&many)
            .expect_err("too many")
            .kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(wire.fake.live().flows, 0);
    wire.finish();
}

#[test]
fn a_device_without_raw_packets_says_so() {
    let fake = Fake::extended();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    assert!(
        pd.create_qp::<RawPacket>(&cq, &cq, small())
            .expect_err("none")
            .is_unsupported()
    );
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    assert!(
        qp.create_flow(&FlowRule::new(1, []))
            .expect_err("none")
            .is_unsupported()
    );
    drop((qp, cq, pd, context));
    fake.assert_clean();
}
