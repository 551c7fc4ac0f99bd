//! Completion channels: armed queues report, once, and events are acknowledged.

mod fake;

use std::time::Duration;

use fake::{FORMS, connect, open, small};
use fake_provider::{Fake, Verb};
use ibverbs::{CqOptions, Rc, wr};

#[test]
fn an_armed_queue_reports_once() {
    for form in FORMS {
        let fake = Fake::new(form);
        let context = open(&fake);
        let channel = context.create_comp_channel().expect("channel");
        let pd = context.alloc_pd().expect("domain");
        let options = CqOptions {
            channel: Some(&channel),
            extended: form.extended_cq,
            ..CqOptions::default()
        };
        let mut cq = context.create_cq(options).expect("queue");
        let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
        connect(&mut a, &mut b);
        assert_eq!(channel.try_get().expect("no event"), None);
        for _ in 0..4 {
            b.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        a.post_send(wr::send(wr::Empty)).expect("send");
        assert_eq!(channel.try_get().expect("not armed"), None);
        cq.arm(false).expect("arm");
        a.post_send(wr::send(wr::Empty)).expect("send");
        a.post_send(wr::send(wr::Empty)).expect("send");
        assert_eq!(channel.try_get().expect("an event"), Some(cq.id()));
        assert_eq!(channel.try_get().expect("one shot"), None);
        cq.arm(true).expect("arm");
        a.post_send(wr::send(wr::Empty)).expect("not solicited");
        assert_eq!(channel.try_get().expect("none"), None);
        b.to_error().expect("ERR");
        a.to_error().expect("ERR");
        fake.fail_next(Verb::ReqNotifyCq, libc::EIO);
        assert!(cq.arm(true).is_err());
        // The queue goes with events on the channel that nobody took, and the channel's owner goes
        // first.
        drop((channel, a, b, cq, pd, context));
        fake.assert_clean();
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn waiting_ends_with_an_event_or_with_the_time() {
    let fake = Fake::extended();
    let context = open(&fake);
    let channel = context.create_comp_channel().expect("channel");
    let pd = context.alloc_pd().expect("domain");
    let mut cq = context
        .create_cq(CqOptions {
            channel: Some(&channel),
            ..CqOptions::default()
        })
        .expect("queue");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    cq.arm(false).expect("arm");
    assert_eq!(
        channel
            .wait(Some(Duration::from_millis(5)))
            .expect("in time"),
        None
    );
    b.post_recv(wr::recv(wr::Empty)).expect("receive");
    let sender = std::thread::spawn(move || {
        a.post_send(wr::send(wr::Empty)).expect("send");
        a
    });
    assert_eq!(channel.wait(None).expect("an event"), Some(cq.id()));
    drop((
        sender.join().expect("no panic"),
        b,
        cq,
        channel,
        pd,
        context,
    ));
    fake.assert_clean();
}

#[test]
fn a_channel_of_another_opening_is_refused() {
    let fake = Fake::extended();
    let (one, two) = (open(&fake), open(&fake));
    let channel = one.create_comp_channel().expect("channel");
    let error = two
        .create_cq(CqOptions {
            channel: Some(&channel),
            ..CqOptions::default()
        })
        .expect_err("mismatch");
    assert_eq!(error.kind(), ibverbs::ErrorKind::Mismatch);
    drop((channel, one, two));
    fake.assert_clean();
}
