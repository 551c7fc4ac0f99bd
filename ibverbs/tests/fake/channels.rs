//! Completion channels: an armed queue reports one event, and events are acknowledged.

#![allow(unsafe_code, reason = "polls a descriptor")]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

#[cfg(all(feature = "tokio", not(miri)))]
use crate::fixture::path;
use crate::fixture::{Fake, PROFILES, connect, open, small};
use fake_provider::Verb;
use ibverbs::{CompletionChannel, CqOptions, Rc, wr};

#[test]
fn an_armed_queue_reports_once() {
    for profile in PROFILES {
        let fake = Fake::new(profile);
        let context = open(&fake);
        let channel = context.create_comp_channel().expect("channel");
        let pd = context.alloc_pd().expect("protection domain");
        let options = CqOptions::new().channel(&channel);
        let mut cq = context.create_cq(options).expect("completion queue");
        let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
        let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
        connect(&mut a, &mut b);
        assert_eq!(channel.try_next().expect("poll the channel"), None);
        for _ in 0..4 {
            b.post_recv(wr::recv(wr::Empty)).expect("receive");
        }
        a.post_send(wr::send(wr::Empty)).expect("send");
        assert_eq!(channel.try_next().expect("poll the channel"), None);
        cq.arm(false).expect("arm");
        a.post_send(wr::send(wr::Empty)).expect("send");
        a.post_send(wr::send(wr::Empty)).expect("send");
        assert_eq!(channel.try_next().expect("poll the channel"), Some(cq.id()));
        assert_eq!(channel.try_next().expect("poll the channel"), None);
        cq.arm(true).expect("arm");
        a.post_send(wr::send(wr::Empty)).expect("unsolicited send");
        assert_eq!(channel.try_next().expect("poll the channel"), None);
        b.post_recv(wr::recv(wr::Empty)).expect("receive");
        a.post_send(wr::send(wr::Empty).solicited(true))
            .expect("send");
        assert_eq!(channel.try_next().expect("poll the channel"), Some(cq.id()));
        b.to_error().expect("ERR state");
        a.to_error().expect("ERR state");
        fake.fail_next(Verb::ReqNotifyCq, libc::EIO);
        assert!(cq.arm(true).is_err());
        // The queue is destroyed with unread events on the channel, after the channel's handle.
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no ppoll")]
fn a_wait_ends_with_an_event_or_its_timeout() {
    let fake = Fake::extended();
    let context = open(&fake);
    let channel = context.create_comp_channel().expect("channel");
    let pd = context.alloc_pd().expect("protection domain");
    let mut cq = context
        .create_cq(CqOptions::new().channel(&channel))
        .expect("completion queue");
    let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
    let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
    connect(&mut a, &mut b);
    cq.arm(false).expect("arm");
    assert_eq!(
        channel.wait(Some(Duration::from_millis(5))).expect("wait"),
        None
    );
    b.post_recv(wr::recv(wr::Empty)).expect("receive");
    let sender = thread::spawn(move || {
        a.post_send(wr::send(wr::Empty)).expect("send");
        a
    });
    assert_eq!(channel.wait(None).expect("wait"), Some(cq.id()));
    drop((
        sender.join().expect("no panic"),
        b,
        cq,
        channel,
        pd,
        context,
    ));
}

#[test]
#[cfg_attr(miri, ignore = "Miri has no poll")]
fn a_queue_is_destroyed_while_another_thread_reads_its_event() {
    let fake = Fake::extended();
    let context = open(&fake);
    let channel = context.create_comp_channel().expect("channel");
    let pd = context.alloc_pd().expect("protection domain");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                channel.try_next().expect("read");
            }
        });
        for _ in 0..10_000 {
            let options = CqOptions::new().channel(&channel);
            let mut cq = context.create_cq(options).expect("completion queue");
            let mut a = pd.create_qp::<Rc>(&cq, &cq, small()).expect("a");
            let mut b = pd.create_qp::<Rc>(&cq, &cq, small()).expect("b");
            connect(&mut a, &mut b);
            b.post_recv(wr::recv(wr::Empty)).expect("receive");
            cq.arm(false).expect("arm");
            a.post_send(wr::send(wr::Empty)).expect("send");
            drop((a, b));
            // The other thread has begun to read the event, and may not have acknowledged it.
            while is_readable(&channel) && !reader.is_finished() {
                thread::yield_now();
            }
            drop(cq);
        }
        is_over.store(true, Ordering::Relaxed);
    });
}

fn is_readable(channel: &CompletionChannel) -> bool {
    let mut fd = libc::pollfd {
        fd: channel.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: `fd` is an array of one element.
    unsafe { libc::poll(&raw mut fd, 1, 0) == 1 }
}

#[test]
fn a_channel_of_another_context_is_rejected() {
    let fake = Fake::extended();
    let (one, two) = (open(&fake), open(&fake));
    let channel = one.create_comp_channel().expect("channel");
    let error = two
        .create_cq(CqOptions::new().channel(&channel))
        .expect_err("a channel of another context");
    assert_eq!(error.kind(), ibverbs::ErrorKind::Mismatch);
}

#[test]
#[cfg(all(feature = "tokio", not(miri)))]
fn an_awaited_queue_is_resized_moderated_and_awaited() {
    let fake = Fake::extended();
    let context = open(&fake);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("runtime");
    let _guard = runtime.enter();
    let options = CqOptions::new().depth(15);
    let mut cq = ibverbs::AsyncCompletionQueue::new(&context, options).expect("queue");
    cq.resize(100).expect("resize");
    assert_eq!(cq.depth(), 127);
    let moderated = cq.moderate(8, Duration::from_micros(16));
    assert!(moderated.expect_err("the device has none").is_unsupported());
    let pd = context.alloc_pd().expect("protection domain");
    let mut qp = pd.create_qp::<Rc>(&cq, &cq, small()).expect("qp");
    qp.init(&path()).expect("INIT state");
    qp.post_recv(wr::recv(wr::Empty)).expect("receive");
    let mut is_first = true;
    let mut awaited = Box::pin(cq.completions());
    let completions = runtime.block_on(std::future::poll_fn(|task| {
        let state = awaited.as_mut().poll(task);
        if std::mem::take(&mut is_first) {
            assert!(state.is_pending());
            qp.to_error().expect("ERR state");
        }
        state
    }));
    assert_eq!(completions.expect("flushed").len(), 1);
}
