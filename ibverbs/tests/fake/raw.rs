//! Raw packets on the fake device: flow rules steer frames, and end before their queue pair.

use crate::fixture::{Fake, PROFILES, buf_bytes, open, parents, small};
use fake_provider::{Profile, Verb};
use ibverbs::{
    CompletionQueue, CqOptions, ErrorKind, Frozen, Pool, PostError, QueuePair, RawPacket, Rc,
    flow::{FlowRule, FlowSpec},
    wr,
};

/// Length of an Ethernet header.
const HEADER: usize = 14;
const MAC_0: [u8; 6] = [2, 0, 0, 0, 0, 1];
const MAC_1: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// A raw packet sender and two receivers on one port.
struct Setup {
    sender: QueuePair<RawPacket>,
    receivers: [QueuePair<RawPacket>; 2],
    cq: CompletionQueue,
    pool: Pool,
    fake: Fake,
}

impl Setup {
    fn new(profile: Profile) -> Self {
        let fake = Fake::new(Profile {
            more_verbs: true,
            ..profile
        });
        let context = open(&fake);
        let pd = context.alloc_pd().expect("protection domain");
        let cq = context
            .create_cq(CqOptions::new().depth(31))
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

    /// Posts one receive on each receiver.
    fn post_recvs(&mut self) {
        for qp in &mut self.receivers {
            qp.post_recv(wr::recv(self.pool.take().expect("a free buffer")))
                .expect("a free slot");
        }
    }

    /// Sends a frame with destination address `to`.
    fn send(&mut self, to: [u8; 6], text: &[u8]) {
        let mut frame = self.pool.take().expect("a free buffer");
        frame.set_len(HEADER + text.len());
        frame[..6].copy_from_slice(&to);
        frame[HEADER..].copy_from_slice(text);
        self.sender.post_send(wr::send(frame)).expect("send");
    }

    /// Retires all requests. Returns the index of the receiver and the payload of each frame.
    fn received(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut all = Vec::new();
        for completion in self.cq.poll().expect("poll") {
            match self
                .receivers
                .iter()
                .position(|qp| qp.id() == completion.queue())
            {
                Some(index) => {
                    let retired = self.receivers[index].retire(completion).expect("in flight");
                    all.push((index, buf_bytes(retired)[HEADER..].to_vec()));
                }
                None => self
                    .sender
                    .retire(completion)
                    .expect("in flight")
                    .check()
                    .expect("success"),
            }
        }
        all
    }
}

#[test]
fn flow_rules_steer_frames_and_others_are_dropped() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs();
        setup.send(MAC_0, b"no rule");
        assert!(setup.received().is_empty());
        for (qp, mac) in setup.receivers.iter_mut().zip([MAC_0, MAC_1]) {
            qp.create_flow(&FlowRule::new(1, [FlowSpec::dst_mac(mac)]))
                .expect("rule");
        }
        setup.send(MAC_1, b"two");
        setup.send(MAC_0, b"one");
        assert_eq!(
            setup.received(),
            [(1, b"two".to_vec()), (0, b"one".to_vec())]
        );
    }
}

/// libmlx4 and libmlx5 read the header with the processor.
#[test]
fn a_raw_packet_has_a_header_in_its_first_entry() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let sender = &mut setup.sender;
        let mut short = setup.pool.take().expect("a free buffer");
        short.set_len(HEADER - 1);
        let rejected = sender.post_send(wr::send(short)).expect_err("too short");
        assert_eq!(rejected.error(), PostError::ShortPacket);
        assert!(rejected.into_payload().is_some());
        let empty = sender.post_send(wr::send(wr::Empty)).expect_err("empty");
        assert_eq!(empty.error(), PostError::ShortPacket);
        let inline = sender.post_send(wr::send(wr::Inline(&[0; HEADER - 1])));
        assert_eq!(inline.expect_err("short").error(), PostError::ShortPacket);
        let none = sender.hold_list::<Frozen>(&[]).expect("an empty list");
        let rejected = sender.post_send(wr::send(none)).expect_err("empty");
        assert_eq!(rejected.error(), PostError::ShortPacket);
        let inline = sender.post_send(wr::send(wr::Inline(&[0; HEADER])));
        inline.expect("a header is enough");
        assert_eq!(setup.received().len(), 0);
    }
}

#[test]
fn a_flow_rule_is_destroyed_once_by_its_queue_pair() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        let all = FlowRule::new(1, []);
        let first = setup.receivers[0].create_flow(&all).expect("rule");
        setup.receivers[1].create_flow(&all).expect("rule");
        assert_eq!(
            setup.receivers[1]
                .destroy_flow(first)
                .expect_err("a rule of the other queue pair")
                .kind(),
            ErrorKind::InvalidInput
        );
        setup.receivers[0].destroy_flow(first).expect("destroy");
        assert_eq!(
            setup.receivers[0]
                .destroy_flow(first)
                .expect_err("already destroyed")
                .kind(),
            ErrorKind::InvalidInput
        );
        setup.post_recvs();
        setup.send(MAC_0, b"remaining rule");
        assert_eq!(setup.received(), [(1, b"remaining rule".to_vec())]);
    }
}

#[test]
fn destroying_a_queue_pair_destroys_its_flow_rules() {
    for profile in PROFILES {
        let mut setup = Setup::new(profile);
        setup.post_recvs();
        for _ in 0..3 {
            setup.receivers[0]
                .create_flow(&FlowRule::new(1, [FlowSpec::dst_mac(MAC_0)]))
                .expect("rule");
        }
        let [first, second] = setup.receivers;
        let (fake, pool) = (&setup.fake, &setup.pool);
        assert_eq!((fake.live().flows, pool.available()), (3, 6));
        let reclaimed = first.destroy().expect("destroyed");
        assert_eq!((fake.live().flows, reclaimed.recvs.len()), (0, 1));
        drop((second, reclaimed));
        assert_eq!(pool.available(), 8);
    }
}

#[test]
fn a_rejected_flow_rule_creates_nothing() {
    let mut setup = Setup::new(PROFILES[0]);
    setup.fake.fail_next(Verb::CreateFlow, libc::EPERM);
    let error = setup.receivers[0]
        .create_flow(&FlowRule::new(1, []))
        .expect_err("no permission");
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
    let too_many = FlowRule::new(1, vec![FlowSpec::dst_udp_port(9); 300]);
    assert_eq!(
        setup.receivers[0]
            .create_flow(&too_many)
            .expect_err("too many")
            .kind(),
        ErrorKind::InvalidInput
    );
    assert_eq!(setup.fake.live().flows, 0);
}

#[test]
fn missing_raw_packet_support_is_reported() {
    let fake = Fake::extended();
    let (_, pd, cq) = parents(&fake);
    assert!(
        pd.create_qp::<RawPacket>(&cq, &cq, small())
            .expect_err("unsupported")
            .is_unsupported()
    );
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    assert!(
        qp.create_flow(&FlowRule::new(1, []))
            .expect_err("unsupported")
            .is_unsupported()
    );
}
