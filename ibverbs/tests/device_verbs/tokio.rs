//! Awaiting completions: wakeups, cancellation, two tasks.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context as TaskContext, Poll, Waker, ready};

use ibverbs::{AsyncCompletionQueue, Context, CqOptions, ErrorKind, QueuePair, Rc, wr};
use tokio::runtime::{Builder, Runtime};

use crate::lab::{self, devices, path, roce};

fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_io()
        .build()
        .expect("runtime")
}

/// Returns a queue to await and a queue pair that is connected to itself.
fn loopback_qp(context: &Context) -> (AsyncCompletionQueue, QueuePair<Rc>) {
    let cq = AsyncCompletionQueue::new(context, CqOptions::default()).expect("completion queue");
    let pd = context.alloc_pd().expect("protection domain");
    let mut qp = lab::qp::<Rc>(&pd, &cq);
    let path = path(context);
    qp.init(&path).expect("INIT state");
    qp.connect(&path, &qp.endpoint(&path).expect("endpoint"))
        .expect("connected to itself");
    (cq, qp)
}

/// Posts a receive and a send that matches it.
fn post_message(qp: &mut QueuePair<Rc>) {
    qp.post_recv(wr::recv(wr::Empty)).expect("receive");
    qp.post_send(wr::send(wr::Empty)).expect("send");
}

/// Awaits completions until `count` requests have been retired.
async fn retire(cq: &mut AsyncCompletionQueue, qp: &mut QueuePair<Rc>, count: usize) {
    let mut retired = 0;
    while retired < count {
        let completions = cq.completions().await.expect("await");
        assert!(!completions.is_empty(), "woken without completions");
        for completion in completions {
            qp.retire(completion)
                .expect("in flight")
                .check()
                .expect("success");
            retired += 1;
        }
    }
}

/// Does the same as [`retire`] in a future that is polled by hand.
async fn retire_polled(cq: &mut AsyncCompletionQueue, qp: &mut QueuePair<Rc>, count: usize) {
    let mut retired = 0;
    let poll = |cx: &mut TaskContext<'_>| {
        while retired < count {
            for completion in ready!(cq.poll_completions(cx)).expect("poll") {
                let request = qp.retire(completion).expect("in flight");
                request.check().expect("success");
                retired += 1;
            }
        }
        Poll::Ready(())
    };
    poll_fn(poll).await;
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn task_wakes_on_completion() {
    for context in roce() {
        runtime().block_on(async {
            let (mut cq, mut qp) = loopback_qp(&context);
            for round in 0..50 {
                for _ in 0..=round % 3 {
                    post_message(&mut qp);
                }
                let count = 2 * (round % 3 + 1);
                if round % 2 == 0 {
                    retire(&mut cq, &mut qp, count).await;
                } else {
                    retire_polled(&mut cq, &mut qp, count).await;
                }
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn cancelled_wait_loses_no_completion() {
    for context in roce() {
        runtime().block_on(async {
            let (mut cq, mut qp) = loopback_qp(&context);
            for round in 0..50 {
                // The future is dropped while it is pending: before the post, after it, or both.
                for when in [0, 1] {
                    if when == round % 2 {
                        post_message(&mut qp);
                    }
                    let waiting = pin!(cq.completions());
                    match waiting.poll(&mut TaskContext::from_waker(Waker::noop())) {
                        Poll::Pending => {}
                        Poll::Ready(completions) => drop(completions.expect("poll")),
                    }
                }
                retire(&mut cq, &mut qp, 2).await;
            }
            assert!(qp.is_idle());
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn two_tasks_await_two_queues() {
    for context in roce() {
        let runtime = runtime();
        let task = || {
            let context = context.clone();
            async move {
                let (mut cq, mut qp) = loopback_qp(&context);
                for _ in 0..50 {
                    post_message(&mut qp);
                    retire(&mut cq, &mut qp, 2).await;
                    tokio::task::yield_now().await;
                }
            }
        };
        let tasks = [runtime.spawn(task()), runtime.spawn(task())];
        runtime.block_on(async {
            for task in tasks {
                task.await.expect("no panic");
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn missing_runtime_is_reported() {
    for context in devices() {
        println!("device: {}", context.device_name());
        let error =
            AsyncCompletionQueue::new(&context, CqOptions::default()).expect_err("no runtime");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(
            error.help().is_some_and(|hint| hint.contains("tokio")),
            "{error}"
        );
    }
}
