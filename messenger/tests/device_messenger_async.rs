//! Messengers on tokio: streams of bytes, halves for two tasks, and dropped futures.

#[path = "../../rdmacm/tests/lab/mod.rs"]
mod lab;

use std::time::Duration;

use lab::{Endpoint, TIMEOUT, assert_no_leaks, one_endpoint_each};
use messenger::{AsyncMessenger, MessengerOptions};
use nix::time::{ClockId, clock_gettime};
use rdmacm::AsyncListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

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

async fn pair(endpoint: &Endpoint) -> (AsyncMessenger, AsyncMessenger) {
    let listener = AsyncListener::new(endpoint.listen()).expect("listener");
    let address = listener.get_ref().local_addr();
    let options = options();
    let accept = async {
        let request = listener.accept().await.expect("a request");
        AsyncMessenger::accept(request, &options).await
    };
    let (active, passive) = tokio::join!(AsyncMessenger::connect(address, &options), accept);
    (active.expect("connect"), passive.expect("accept"))
}

/// Runs a test on both kinds of runtimes and all devices.
fn run<F: Future<Output = ()>>(test: impl Fn(AsyncMessenger, AsyncMessenger) -> F) {
    for endpoint in one_endpoint_each() {
        for has_threads in [false, true] {
            assert_no_leaks(&endpoint, || {
                runtime(has_threads).block_on(async {
                    let (active, passive) = timeout(TIMEOUT, pair(&endpoint)).await.expect("time");
                    timeout(TIMEOUT, test(active, passive)).await.expect("time");
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
            let (_active, mut passive) = timeout(TIMEOUT, pair(&endpoint)).await.expect("time");
            let before = used();
            assert!(timeout(WAIT, passive.recv()).await.is_err(), "no message");
            assert!(timeout(WAIT, passive.read_u8()).await.is_err(), "no byte");
            let used = used().saturating_sub(before);
            println!("{}: {used:.0?} in {:.0?}", endpoint.name(), 2 * WAIT);
            assert!(used < WAIT / 2, "{used:?}");
        });
    }
}
