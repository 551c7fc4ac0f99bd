//! Messengers on tokio: streams of bytes, halves for two tasks, and dropped futures.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Wake};
use std::time::Duration;

use messenger::{AsyncMessenger, MessengerOptions};
use nix::time::{ClockId, clock_gettime};
use rdmacm::AsyncListener;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::lab::{Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};

/// Maximum time of a whole test, many times what it needs on an emulated machine.
const LIMIT: Duration = TIMEOUT.saturating_mul(10);

fn options() -> MessengerOptions<'static> {
    MessengerOptions::new().buffer_len(1000).depth(4)
}

fn runtime(has_threads: bool) -> Runtime {
    let mut builder = if has_threads {
        Builder::new_multi_thread()
    } else {
        Builder::new_current_thread()
    };
    let builder = builder.worker_threads(2).enable_all();
    builder.build().expect("runtime")
}

async fn pair(
    endpoint: &Endpoint,
    options: &MessengerOptions<'_>,
) -> (AsyncMessenger, AsyncMessenger) {
    let listener = AsyncListener::new(endpoint.listen()).expect("listener");
    let address = listener.get_ref().local_addr();
    let accept = async {
        let request = listener.next_request().await.expect("a request");
        AsyncMessenger::accept(request, options).await
    };
    let (active, passive) = tokio::join!(AsyncMessenger::connect(address, options), accept);
    (active.expect("connect"), passive.expect("accept"))
}

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A task that its waker polls at once, before the caller goes on. `None` once it is complete.
struct PolledWhenWoken(Mutex<Option<Task>>);

impl PolledWhenWoken {
    fn task(&self) -> MutexGuard<'_, Option<Task>> {
        self.0.lock().expect("no panic")
    }
}

impl Wake for PolledWhenWoken {
    fn wake(self: Arc<Self>) {
        // A poll can wake its own task.
        let Some(mut task) = self.task().take() else {
            return;
        };
        let waker = Arc::clone(&self).into();
        let polled = task.as_mut().poll(&mut Context::from_waker(&waker));
        *self.task() = polled.is_pending().then_some(task);
    }
}

/// Runs a test on both kinds of runtimes and all devices.
fn run<F: Future<Output = ()>>(test: impl Fn(AsyncMessenger, AsyncMessenger) -> F) {
    run_with(&options(), test);
}

fn run_with<F: Future<Output = ()>>(
    options: &MessengerOptions<'_>,
    test: impl Fn(AsyncMessenger, AsyncMessenger) -> F,
) {
    for endpoint in one_endpoint_each() {
        for has_threads in [false, true] {
            assert_no_leaks(&endpoint, || {
                runtime(has_threads).block_on(async {
                    let (active, passive) = timeout(TIMEOUT, pair(&endpoint, options))
                        .await
                        .expect("time");
                    timeout(LIMIT, test(active, passive)).await.expect("time");
                });
            });
        }
    }
}

fn bytes(len: usize) -> Vec<u8> {
    (0..251).cycle().take(len).collect()
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn streams_of_bytes_flow_in_both_directions() {
    const LEN: usize = 300_000;
    run(|active, passive| async {
        let exchange = |messenger: AsyncMessenger| async move {
            let (mut sender, mut receiver) = messenger.split();
            let writer = tokio::spawn(async move {
                sender.write_all(&bytes(LEN)).await.expect("write");
                sender.flush().await.expect("flush");
                AsyncWriteExt::shutdown(&mut sender)
                    .await
                    .expect("shutdown");
            });
            let mut read = Vec::new();
            receiver.read_to_end(&mut read).await.expect("read");
            assert!(read == bytes(LEN), "{} bytes", read.len());
            writer.await.expect("writer");
        };
        tokio::join!(exchange(active), exchange(passive));
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_buffer_that_is_dropped_unsent_wakes_the_sender() {
    // A wait that polls first would wake its task itself.
    let options = options().poll_time(Duration::ZERO);
    run_with(&options, |active, passive| async move {
        let (mut sender, _receiver) = active.split();
        let mut held = Vec::new();
        for _ in 0..4 {
            held.push(sender.buffer().await.expect("buffer"));
        }
        let task = async move { drop(sender.buffer().await.expect("buffer")) };
        let waiting = Arc::new(PolledWhenWoken(Mutex::new(Some(Box::pin(task)))));
        Arc::clone(&waiting).wake();
        assert!(waiting.task().is_some(), "no buffer is left");
        drop(held.pop());
        assert!(waiting.task().is_none());
        drop(passive);
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn streams_without_copies_carry_the_same_bytes() {
    const LEN: usize = 300_000;
    run(|mut active, mut passive| async move {
        let writer = async {
            let all = bytes(LEN);
            let mut rest = &all[..];
            // An empty message is no end of the stream.
            let mut empty = active.buffer().await.expect("buffer");
            empty.truncate(0);
            active.send_buffer(empty).await.expect("send");
            let (mut sender, receiver) = active.split();
            while !rest.is_empty() {
                let mut buffer = sender.buffer().await.expect("buffer");
                buffer.truncate(rest.len());
                let (next, later) = rest.split_at(buffer.len());
                buffer.copy_from_slice(next);
                sender.send_buffer(buffer).await.expect("send");
                rest = later;
            }
            AsyncWriteExt::shutdown(&mut sender)
                .await
                .expect("shutdown");
            // The connection lives until the peer has read everything.
            (sender, receiver)
        };
        let reader = async {
            let mut read = Vec::new();
            loop {
                let lent = passive.fill_buf().await.expect("bytes");
                // A part of a buffer leaves the rest for later reads, of both kinds.
                let count = lent.len().min(700);
                if count == 0 {
                    break;
                }
                read.extend_from_slice(&lent[..count]);
                passive.consume(count);
                let mut part = [0; 100];
                let count = passive.read(&mut part).await.expect("read");
                read.extend_from_slice(&part[..count]);
            }
            assert!(read == bytes(LEN), "{} bytes", read.len());
        };
        let _ = tokio::join!(writer, reader);
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_stream_that_ends_without_shutdown_is_an_error() {
    run(|mut active, mut passive| async move {
        active.write_all(b"abc").await.expect("write");
        let mut read = [0; 3];
        passive.read_exact(&mut read).await.expect("read");
        drop(active);
        let error = passive.read(&mut read).await.expect_err("no end");
        assert!(error.to_string().contains("may be lost"), "{error}");
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropped_futures_lose_no_message() {
    const COUNT: u32 = 200;
    run(|mut active, mut passive| async move {
        let sender = async move {
            for number in 0..COUNT {
                let message = vec![number.to_be_bytes(); 700].concat();
                active.send(&message).await.expect("send");
            }
            active.shutdown().await.expect("shutdown");
        };
        let receiver = async move {
            let (mut number, mut dropped) = (0, 0);
            loop {
                let limit = Duration::from_micros(u64::from(number % 7) * 50);
                let Ok(received) = timeout(limit, passive.recv()).await else {
                    dropped += 1;
                    continue;
                };
                let Some(message) = received.expect("receive") else {
                    break;
                };
                assert_eq!(message.len(), 2800);
                assert_eq!(message[2796..], u32::to_be_bytes(number));
                number += 1;
            }
            assert_eq!(number, COUNT);
            println!("{dropped} futures were dropped");
        };
        tokio::join!(sender, receiver);
    });
}

/// Sends each message again until its future was not dropped, as `tokio::select!` in a loop does.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dropped_send_has_sent_nothing() {
    const DROPPED: u32 = 200;
    for len in [100, 4000, 20_000, 200_000] {
        let is_main = len == 20_000;
        run(|mut active, mut passive| async move {
            let sender = async move {
                let (mut number, mut dropped) = (0_u32, 0);
                while dropped < if is_main { DROPPED } else { DROPPED / 4 } {
                    let message = vec![number.to_be_bytes(); len / 4].concat();
                    let sent = timeout(Duration::from_micros(1), active.send(&message)).await;
                    if let Ok(sent) = sent {
                        sent.expect("send");
                        number += 1;
                    } else {
                        dropped += 1;
                        tokio::task::yield_now().await;
                    }
                }
                active.shutdown().await.expect("shutdown");
                assert!(active.recv().await.expect("receive").is_none());
                number
            };
            let receiver = async move {
                let mut number = 0_u32;
                while let Some(message) = passive.recv().await.expect("receive") {
                    assert_eq!(message.len(), len);
                    let expected = number.to_be_bytes();
                    assert!(message.chunks(4).all(|chunk| chunk == expected), "{number}");
                    number += 1;
                    // A slow receiver lets the sender wait.
                    if number % 8 == 0 {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                }
                passive.shutdown().await.expect("shutdown");
                number
            };
            let (sent, received) = tokio::join!(sender, receiver);
            assert_eq!(sent, received, "{len} bytes");
            println!("{len} bytes: {sent} messages");
            assert!(sent > 0, "no progress");
        });
    }
}

/// The sender's task does something else after the last message, which is longer than all buffers.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn the_rest_of_a_message_is_sent_without_further_calls() {
    run(|mut active, mut passive| async move {
        for (number, with_permit) in [(1_u8, false), (2, true)] {
            let message = vec![number; 100_000];
            if with_permit {
                active
                    .reserve()
                    .await
                    .expect("permit")
                    .send(&message)
                    .expect("send");
            } else {
                active.send(&message).await.expect("send");
            }
            let received = passive.recv().await.expect("receive").expect("a message");
            assert!(received[..] == message[..]);
        }
        // The task ends when the messenger is dropped.
        active.send(&vec![3; 100_000]).await.expect("send");
        drop(active);
        let error = passive.recv().await.expect_err("no end of the stream");
        assert!(error.to_string().contains("may be lost"), "{error}");
        let metrics = tokio::runtime::Handle::current().metrics();
        while metrics.num_alive_tasks() > 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_permit_sends_one_message_without_waiting() {
    run(|active, mut passive| async move {
        let (mut sender, _receiver) = active.split();
        drop(sender.reserve().await.expect("permit"));
        let mut number = 0_u8;
        // The peer takes no message, so at some time there is no permit.
        while let Ok(permit) = timeout(Duration::from_millis(200), sender.reserve()).await {
            permit.expect("permit").send(&[number; 900]).expect("send");
            number += 1;
        }
        assert_eq!(number, 4, "one for each receive of the peer");
        for expected in 0..number {
            let message = passive.recv().await.expect("receive").expect("a message");
            assert_eq!(message[..], [expected; 900]);
        }
        let permit = sender.reserve().await.expect("permit");
        let error = permit.send(&vec![0; 2 << 20]).expect_err("too long");
        assert_eq!(error.kind(), ibverbs::ErrorKind::InvalidInput);
        sender
            .reserve()
            .await
            .expect("permit")
            .send(b"")
            .expect("send");
        let message = passive.recv().await.expect("receive").expect("a message");
        assert!(message.is_empty());
    });
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn two_tasks_send_and_receive_at_the_same_time() {
    const COUNT: u32 = 500;
    run(|active, passive| async {
        let flood = |messenger: AsyncMessenger| async move {
            let (mut sender, mut receiver) = messenger.split();
            let sending = tokio::spawn(async move {
                for number in 0..COUNT {
                    sender.send(&number.to_be_bytes()).await.expect("send");
                    if number % 50 == 0 {
                        sender.flush().await.expect("flush");
                    }
                }
                sender.shutdown().await.expect("shutdown");
            });
            for number in 0..COUNT {
                let message = receiver.recv().await.expect("receive").expect("a message");
                assert_eq!(message[..], number.to_be_bytes());
            }
            assert!(receiver.recv().await.expect("the end").is_none());
            sending.await.expect("sender");
        };
        tokio::join!(flood(active), flood(passive));
    });
}

/// A task polls before it sleeps, but not for long. A task that only polls uses the processor all
/// the time. On a busy host, the time of an emulated processor includes waiting for a real one.
#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_task_that_waits_uses_no_processor_time() {
    const WAIT: Duration = Duration::from_secs(1);
    let used = || {
        let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).expect("a clock");
        Duration::from(time)
    };
    for endpoint in one_endpoint_each() {
        runtime(false).block_on(async {
            let (_active, mut passive) = timeout(TIMEOUT, pair(&endpoint, &options()))
                .await
                .expect("time");
            let before = used();
            assert!(timeout(WAIT, passive.recv()).await.is_err(), "no message");
            assert!(timeout(WAIT, passive.read_u8()).await.is_err(), "no byte");
            let used = used().saturating_sub(before);
            println!("{}: {used:.0?} in {:.0?}", endpoint.name(), 2 * WAIT);
            assert!(used < WAIT / 2, "{used:?}");
        });
    }
}
