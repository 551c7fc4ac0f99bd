//! Optional fields of completions, on a fake device that supports them. Software devices do not.

use std::time::Duration;

use crate::fixture::{Fake, connect, open, path, small};
use fake_provider::Profile;
use ibverbs::{
    AhAttr, Completion, CqOptions, DatagramAttr, Direction, ErrorKind, Qkey, Rc, Ud, WcOpcode,
    WcStatus,
    cq_ex::CqFields,
    group::ThreadGroup,
    wr::{self, Destination},
};

/// A device with timestamps, VLAN tags and flow tags.
const ALL_FIELDS: Profile = Profile {
    extra_fields: true,
    ..Profile::RXE
};

#[test]
fn completions_have_the_enabled_fields() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let options = CqOptions::new().depth(63);
    let fields = CqFields::new().timestamp().wallclock().cvlan().flow_tag();
    let mut recv_cq = context.create_cq_ex(options, fields).expect("all fields");
    let mut send_cq = context
        .create_cq_ex(options, CqFields::new().timestamp())
        .expect("one field");
    let mut a = pd.create_qp::<Rc>(&send_cq, &send_cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&recv_cq, &recv_cq, small()).expect("b");
    connect(&mut a, &mut b);
    for round in 0..3 {
        for length in 0..4 {
            b.post_recv(wr::recv(pd.buf(64).expect("buffer")))
                .expect("receive");
            a.post_send(wr::send(wr::Inline(&[round; 8][..length])))
                .expect("send");
        }
        // Takes one completion per poll. The next poll returns the others first.
        for length in 0..4 {
            let completion = recv_cq.poll().expect("poll").next().expect("received");
            assert_eq!(completion.timestamp(), 1_000 + length);
            assert_eq!(completion.wallclock(), Duration::from_nanos(2_000 + length));
            assert_eq!(
                (completion.cvlan(), completion.flow_tag()),
                (42, 0x0012_3456)
            );
            assert_eq!(completion.queue(), b.id());
            let retired = b.retire(completion.into()).expect("in flight");
            retired.check().expect("success");
            assert_eq!(
                retired.into_buf().expect("posted with a buffer").len() as u64,
                length
            );
        }
        assert_eq!(recv_cq.poll().expect("poll").len(), 0);
        let sent = send_cq.poll().expect("poll");
        assert_eq!(sent.len(), 4);
        for completion in sent {
            assert!(completion.timestamp() >= 1_000);
            a.retire(Completion::from(completion))
                .expect("in flight")
                .check()
                .expect("success");
        }
    }
    b.post_recv(wr::recv(wr::Empty)).expect("receive");
    b.to_error().expect("ERR state");
    let flushed = recv_cq.poll().expect("poll").next().expect("flushed");
    assert_eq!(
        (flushed.status(), flushed.cvlan()),
        (WcStatus::WR_FLUSH_ERR, 0),
        "a flushed request has no packet fields"
    );
    b.retire(flushed.into()).expect("in flight");
}

#[test]
fn a_poll_error_is_reported_after_earlier_entries() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let mut cq = context
        .create_cq_ex(CqOptions::default(), CqFields::new().timestamp())
        .expect("completion queue");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    qp.init(&path()).expect("INIT state");
    for tag in 0..2 {
        qp.post_recv(wr::recv(wr::Empty).tag(tag)).expect("receive");
    }
    qp.to_error().expect("ERR state");
    fake.fail_poll_after(2, libc::EIO);
    for tag in 0..2 {
        let flushed = cq.poll().expect("poll").next().expect("flushed");
        assert_eq!(qp.retire(flushed.into()).expect("in flight").tag(), tag);
    }
    assert_eq!(cq.poll().expect_err("poll error").kind(), ErrorKind::Os);
    assert!(cq.poll().expect("reported once").is_empty());
}

#[test]
fn completions_with_fields_have_all_other_data() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let options = CqOptions::new().depth(255);
    let mut cq = context
        .create_cq_ex(options, CqFields::new().timestamp())
        .expect("completion queue");
    let options = small().max_send_wr(31).max_recv_wr(31);
    let mut a = pd.create_qp::<Rc>(&cq, &cq, options).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, options).expect("b");
    connect(&mut a, &mut b);
    // More completions than one poll returns, with and without immediate data.
    for tag in 0..20 {
        b.post_recv(wr::recv(pd.buf(8).expect("buffer")).tag(tag))
            .expect("receive");
        if tag % 2 == 0 {
            a.post_send(wr::send_with_imm(wr::Inline(b"even"), 7).tag(tag))
        } else {
            a.post_send(wr::send_with_imm(wr::Inline(b"od"), 9).tag(tag))
        }
        .expect("send");
    }
    let (mut sent, mut received) = (0, 0);
    while sent < 20 || received < 20 {
        let completions = cq.poll().expect("poll");
        assert!((1..=32).contains(&completions.len()));
        for completion in completions {
            assert!(completion.is_success());
            if completion.queue() == a.id() {
                assert_eq!(completion.opcode(), WcOpcode::SEND);
                assert_eq!(completion.qp_num(), a.qp_num());
                assert_eq!(
                    (completion.imm_data(), completion.received_len()),
                    (None, 0)
                );
                assert_eq!(a.retire(completion.into()).expect("in flight").tag(), sent);
                sent += 1;
                continue;
            }
            assert_eq!(completion.opcode(), WcOpcode::RECV);
            assert_eq!(completion.qp_num(), b.qp_num());
            let (imm, text): (_, &[u8]) = if received % 2 == 0 {
                (7, b"even")
            } else {
                (9, b"od")
            };
            assert_eq!(completion.imm_data(), Some(imm));
            let retired = b.retire(completion.into()).expect("in flight");
            assert_eq!(
                (retired.tag(), retired.received_len()),
                (received, text.len())
            );
            assert_eq!(retired.into_buf().expect("the buffer"), *text);
            received += 1;
        }
    }
}

#[test]
fn a_datagram_with_fields_has_its_source() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let mut cq = context
        .create_cq_ex(CqOptions::default(), CqFields::new().timestamp())
        .expect("completion queue");
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, small()).expect("qp");
    qp.start(&DatagramAttr::new(1, Qkey(1))).expect("RTS state");
    let own = context.gids(1).expect("GID table")[0];
    let handle = pd
        .create_ah(&AhAttr::for_gid(1, own.index, own.gid))
        .expect("address handle");
    let destination = Destination {
        address: qp.hold_address(&handle).expect("held"),
        qpn: qp.qp_num(),
        qkey: Qkey(1),
    };
    let buf = pd.buf(ibverbs::GRH_LEN + 8).expect("buffer");
    qp.post_recv(wr::recv(buf)).expect("receive");
    qp.post_send(wr::send(wr::Inline(b"x")).to(destination))
        .expect("send");
    let mut sources = Vec::new();
    for completion in cq.poll().expect("poll") {
        if completion.direction() == Direction::Recv {
            sources.push(completion.source());
        }
        let retired = qp.retire(completion.into()).expect("in flight");
        retired.check().expect("success");
    }
    assert_eq!(sources.len(), 1);
    assert!(sources[0].has_grh);
    assert_eq!(sources[0].qpn, qp.qp_num());
}

#[test]
fn a_queue_without_fields_is_an_error() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let error = context
        .create_cq_ex(CqOptions::default(), CqFields::new())
        .expect_err("no field");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.help().is_some_and(|help| help.contains("create_cq")));
}

#[test]
fn unsupported_fields_are_named_in_the_error() {
    for profile in [
        Profile::RXE,
        Profile {
            extended_cq: false,
            ..ALL_FIELDS
        },
    ] {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let error = context
            .create_cq_ex(CqOptions::default(), CqFields::new().timestamp().cvlan())
            .expect_err("unsupported");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("timestamp, VLAN tag"), "{error}");
    }
}

/// The methods of the queues that wrap another one call the provider.
#[test]
fn extended_queues_are_armed_and_resized() {
    let fake = Fake::new(ALL_FIELDS);
    let context = open(&fake);
    let channel = context.create_comp_channel().expect("channel");
    let options = CqOptions::new().depth(15).channel(&channel);
    let fields = CqFields::new().timestamp();
    let mut cq = context.create_cq_ex(options, fields).expect("queue");
    assert!(cq.poll().expect("poll").is_empty());
    let pd = context.alloc_pd().expect("domain");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    b.post_recv(wr::recv(wr::Empty)).expect("receive");
    cq.arm(false).expect("arm");
    a.post_send(wr::send(wr::Empty)).expect("send");
    let event = channel.wait(Some(Duration::ZERO)).expect("wait");
    assert_eq!(event, Some(cq.id()));
    let completions = cq.poll().expect("poll");
    assert!(!completions.is_empty());
    for completion in completions {
        let qp = if completion.queue() == a.id() {
            &mut a
        } else {
            &mut b
        };
        drop(qp.retire(completion.into()).expect("in flight"));
    }
    cq.resize(40).expect("resize");
    assert!(cq.depth() >= 40);
    let error = cq.moderate(4, Duration::from_micros(9));
    assert_eq!(error.expect_err("no verb").kind(), ErrorKind::Unsupported);
}

#[test]
fn a_completion_queue_needs_an_existing_vector() {
    let fake = Fake::new(Profile {
        more_verbs: true,
        ..ALL_FIELDS
    });
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let group = ThreadGroup::new(&pd).expect("group");
    let options = CqOptions::new().comp_vector(context.num_comp_vectors());
    let fields = CqFields::new().timestamp();
    let created = [
        context.create_cq(options).map(drop),
        context.create_cq_ex(options, fields).map(drop),
        group.create_cq(options).map(drop),
    ];
    for result in created {
        let error = result.expect_err("no such vector");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
