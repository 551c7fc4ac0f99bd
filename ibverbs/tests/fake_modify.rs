//! What not every device can change of a queue pair, on the fake device: the length of its queues,
//! and its path.

mod fake;

use fake::{PROFILES, Pair, bytes, open, path, small};
use fake_provider::{Fake, Profile, Verb};
use ibverbs::{
    AhAttr, CqOptions, Error, ErrorKind, GidIndex, Lid, PostError, QpState, Rc,
    qp::{AlternatePath, MigState, QpChange},
    wr,
};

fn all_verbs(profile: Profile) -> Profile {
    Profile {
        more_verbs: true,
        ..profile
    }
}

fn lengths(send: u32, recv: u32) -> QpChange {
    QpChange {
        max_send_wr: Some(send),
        max_recv_wr: Some(recv),
        ..QpChange::default()
    }
}

/// Sends and receives so many messages, and says how many more there was room for.
fn exchange(pair: &mut Pair, count: usize) -> (usize, usize) {
    let room = (
        pair.a.send_slots_free() - count,
        pair.b.recv_slots_free() - count,
    );
    pair.receives(count);
    for number in 0..count {
        pair.a
            .post_send(wr::send(wr::Inline(&[u8::try_from(number).expect("few")])))
            .expect("a free slot");
    }
    let (sent, received) = pair.retire();
    assert_eq!(sent.len(), count);
    let received: Vec<_> = received.into_iter().map(bytes).collect();
    assert_eq!(
        received,
        (0..count)
            .map(|number| vec![u8::try_from(number).expect("few")])
            .collect::<Vec<_>>()
    );
    room
}

#[test]
fn queues_get_longer_and_shorter_between_requests() {
    for profile in PROFILES {
        let mut pair = Pair::new(all_verbs(profile));
        assert_eq!(exchange(&mut pair, 5), (2, 2));
        for (asked, given) in [(15, 15), (3, 3), (7, 7), (12, 15)] {
            pair.a
                .modify(&lengths(asked, asked))
                .expect("the device can");
            pair.b
                .modify(&lengths(asked, asked))
                .expect("the device can");
            assert_eq!(
                (pair.a.caps().max_send_wr, pair.b.caps().max_recv_wr),
                (given, given)
            );
            assert_eq!(pair.b.query().expect("query").max_recv_wr, given);
            let count = usize::try_from(given.min(12)).expect("few");
            let rest = given as usize - count;
            assert_eq!(exchange(&mut pair, count), (rest, rest));
        }
        pair.finish();
    }
}

#[test]
fn a_completion_from_before_a_change_matches_nothing_after_it() {
    for profile in PROFILES {
        let mut pair = Pair::new(all_verbs(profile));
        let region = pair.pd.shared(8, path().access).expect("region");
        for _ in 0..2 {
            pair.a
                .post_send(wr::write(wr::Empty, region.remote()))
                .expect("send");
        }
        let mut completions = pair.cq.poll().expect("poll");
        let (first, second) = (
            completions.next().expect("one"),
            completions.next().expect("two"),
        );
        pair.a
            .retire(second)
            .expect("in flight")
            .ok()
            .expect("success"); // and the first with it
        pair.a
            .modify(&QpChange {
                max_send_wr: Some(31),
                ..QpChange::default()
            })
            .expect("idle");
        pair.fake.stall();
        pair.a
            .post_send(wr::send(pair.pool.take().expect("a free buffer")))
            .expect("send");
        pair.a
            .retire(first)
            .expect_err("it is none of those in flight now");
        assert_eq!(pair.pool.available(), 15, "the buffer stays in flight");
        let Pair {
            a,
            b,
            cq,
            pool,
            pd,
            context,
            fake,
        } = pair;
        drop((a, b, cq, pool, region, pd, context));
        fake.assert_clean();
    }
}

#[test]
fn queues_with_requests_in_flight_keep_their_length() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    pair.fake.stall();
    pair.receives(2);
    assert_eq!(
        pair.b
            .modify(&lengths(15, 15))
            .expect_err("receives")
            .kind(),
        ErrorKind::QueueFull
    );
    pair.a.post_send(wr::send(wr::Empty)).expect("send");
    assert_eq!(
        pair.a.modify(&lengths(15, 15)).expect_err("a send").kind(),
        ErrorKind::QueueFull
    );
    pair.fake.resume();
    drop(pair.retire());
    pair.a.modify(&lengths(15, 15)).expect("idle");
    let error = pair
        .a
        .modify(&lengths(u32::MAX, 15))
        .expect_err("more than there can be");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    pair.finish();
}

#[test]
fn a_length_that_the_driver_refuses_changes_nothing() {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    pair.fake.fail_next(Verb::ModifyQp, libc::ENOMEM);
    pair.a
        .modify(&lengths(63, 63))
        .expect_err("the driver refuses");
    assert_eq!(
        (pair.a.caps().max_send_wr, pair.a.send_slots_free()),
        (7, 7)
    );
    for _ in 0..7 {
        pair.a.post_send(wr::send(wr::Empty)).expect("a free slot");
    }
    let full = pair.a.post_send(wr::send(wr::Empty)).expect_err("full");
    assert_eq!(full.error(), PostError::QueueFull { capacity: 7 });
    pair.finish();
}

#[test]
fn a_device_that_cannot_says_so() {
    let mut pair = Pair::new(PROFILES[0]);
    let error = pair.a.modify(&lengths(15, 15)).expect_err("fixed");
    assert!(error.is_unsupported(), "{error}");
    let alternate = AlternatePath {
        address: AhAttr::for_lid(1, Lid(7)),
        pkey_index: 0,
        timeout: 14,
    };
    let change = QpChange {
        alternate: Some(alternate),
        ..QpChange::to(QpState::RTS)
    };
    let error = pair.a.modify(&change).expect_err("an Ethernet link");
    assert!(
        error.is_unsupported() && error.to_string().contains("InfiniBand links only"),
        "{error}"
    );
    pair.finish();
}

#[test]
fn an_alternate_path_is_set_armed_and_taken() -> Result<(), Error> {
    let mut pair = Pair::new(all_verbs(PROFILES[0]));
    assert_eq!(pair.a.query()?.alternate, None);
    let peer = pair.context.gid(1, GidIndex(1))?.gid;
    let alternate = AlternatePath {
        address: AhAttr::for_gid(1, GidIndex(1), peer),
        pkey_index: 0,
        timeout: 9,
    };
    pair.a.modify(&QpChange {
        alternate: Some(alternate),
        ..QpChange::default()
    })?;
    pair.a.modify(&QpChange {
        path_mig_state: Some(MigState::REARM),
        ..QpChange::default()
    })?;
    let attr = pair.a.query()?;
    assert_eq!(
        (attr.alternate, attr.path_mig_state),
        (Some(alternate), MigState::ARMED)
    );
    pair.a.modify(&QpChange {
        path_mig_state: Some(MigState::MIGRATED),
        ..QpChange::default()
    })?;
    assert_eq!(pair.a.query()?.path_mig_state, MigState::MIGRATED);
    pair.finish();
    Ok(())
}

#[test]
fn a_transition_without_paths_is_named_in_the_error() {
    let fake = Fake::extended();
    let context = open(&fake);
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context
        .create_cq(CqOptions::default())
        .expect("completion queue");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("queue pair");
    let (access, pkey_index, port_num) = (Some(path().access), Some(0), Some(1));
    let init = QpChange {
        access,
        pkey_index,
        port_num,
        ..QpChange::to(QpState::INIT)
    };
    let state = QpChange {
        path_mig_state: Some(MigState::REARM),
        ..init
    };
    let error = qp.modify(&state).expect_err("not in this step");
    assert!(
        error
            .to_string()
            .contains("RESET to INIT does not allow path_mig_state"),
        "{error}"
    );
    drop((qp, cq, pd, context));
    fake.assert_clean();
}
