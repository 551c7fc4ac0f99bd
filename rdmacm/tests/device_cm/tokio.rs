//! Awaiting on tokio with real drivers: every operation in progress, and futures dropped at any
//! point.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ibverbs::ErrorKind;
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::{
    AsyncListener, CmEventType, ConnectParams, ConnectRequest, Connection, EventChannel,
    ListenOptions, ReadyRoute, Resolver,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use crate::lab::{Endpoint, Resources, TIMEOUT, assert_no_leaks, leak_checked, one_endpoint_each};

/// Returns a single-threaded runtime, on which any blocking call makes the test fail.
fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime")
}

fn listen(endpoint: &Endpoint) -> AsyncListener {
    AsyncListener::new(endpoint.listen()).expect("listen")
}

async fn ready(endpoint: &Endpoint, resources: &Resources, address: SocketAddr) -> ReadyRoute {
    let route = Resolver::new(address)
        .timeout(TIMEOUT)
        .start()
        .expect("start")
        .await
        .expect("resolve");
    assert_eq!(route.device_name(), endpoint.name());
    let mut ready = route.with_qp(resources.qp()).expect("INIT");
    resources.receive_on(ready.qp_mut());
    ready
}

async fn connect(endpoint: &Endpoint, resources: &Resources, address: SocketAddr) -> Connection {
    let connecting = ready(endpoint, resources, address)
        .await
        .start(&ConnectParams::default())
        .expect("start");
    connecting.await.expect("connect")
}

async fn accept(request: ConnectRequest, resources: &Resources) -> Connection {
    let mut ready_request = request.with_qp(resources.qp()).expect("INIT");
    resources.receive_on(ready_request.qp_mut());
    ready_request
        .start(&ConnectParams::default())
        .expect("start")
        .await
        .expect("accept")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_clients_and_a_server_share_one_thread() {
    const CLIENTS: usize = 8;
    for endpoint in leak_checked(one_endpoint_each()) {
        let local = tokio::task::LocalSet::new();
        let runtime = runtime();
        let endpoint = Arc::new(Endpoint {
            context: endpoint.context.clone(),
            ip: endpoint.ip,
        });
        local.block_on(&runtime, async {
            let listener = listen(&endpoint);
            let address = listener.get_ref().local_addr();
            let clients: Vec<_> = (0..CLIENTS)
                .map(|_| {
                    let endpoint = Arc::clone(&endpoint);
                    tokio::task::spawn_local(async move {
                        let resources = endpoint.resources();
                        let mut connection = connect(&endpoint, &resources, address).await;
                        connection.event().await.expect("event").event_type
                    })
                })
                .collect();
            let mut accepted = Vec::new();
            for _ in 0..CLIENTS {
                let request = timeout(TIMEOUT, listener.next_request())
                    .await
                    .expect("an event or request in time")
                    .expect("accept");
                let endpoint = Arc::clone(&endpoint);
                accepted.push(tokio::task::spawn_local(async move {
                    let resources = endpoint.resources();
                    let connection = accept(request, &resources).await;
                    (connection, resources)
                }));
            }
            let mut connections = Vec::new();
            for one in accepted {
                connections.push(one.await.expect("task"));
            }
            drop(connections);
            for client in clients {
                assert_eq!(client.await.expect("task"), CmEventType::DISCONNECTED);
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_tasks_await_one_listener() {
    for endpoint in leak_checked(one_endpoint_each()) {
        runtime().block_on(async {
            let listener = listen(&endpoint);
            let address = listener.get_ref().local_addr();
            let pool: Vec<Resources> = (0..3).map(|_| endpoint.resources()).collect();
            let (one, two, three) = tokio::join!(
                async { accept(listener.next_request().await.expect("accept"), &pool[0]).await },
                async { accept(listener.next_request().await.expect("accept"), &pool[1]).await },
                async {
                    let mut connections = Vec::new();
                    for _ in 0..2 {
                        connections.push(connect(&endpoint, &pool[2], address).await);
                    }
                    connections
                },
            );
            assert_eq!(three.len(), 2);
            drop((one, two, three));
        });
    }
}

/// Polls a future a few times and drops it. Returns `true` if it completed.
fn poll_and_drop<F: IntoFuture>(future: F, times: usize) -> bool {
    let mut future = pin!(future.into_future());
    let mut context = Context::from_waker(Waker::noop());
    (0..times).any(|_| matches!(future.as_mut().poll(&mut context), Poll::Ready(_)))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_a_future_at_any_point_leaks_nothing() {
    for endpoint in one_endpoint_each() {
        let listener = endpoint.listen();
        let address = listener.local_addr();
        let resolver = || Resolver::new(address).timeout(TIMEOUT);
        assert_no_leaks(&endpoint, || {
            let runtime = runtime();
            let _entered = runtime.enter();
            for times in 0..3 {
                poll_and_drop(resolver().start().expect("start"), times);
            }
        });
        // On iWARP the kernel keeps objects of a handshake until its own timeout.
        assert_no_leaks(&endpoint, || {
            let listener = endpoint.listen();
            let address = listener.local_addr();
            for wait in [0, 30] {
                runtime().block_on(async {
                    let resources = endpoint.resources();
                    let connecting = ready(&endpoint, &resources, address)
                        .await
                        .start(&ConnectParams::default())
                        .expect("start");
                    let result = timeout(Duration::from_millis(wait), connecting).await;
                    assert!(result.is_err(), "no answer");
                });
            }
            drop(listener);
        });
        if endpoint.has_datagrams() {
            assert_no_leaks(&endpoint, || {
                let runtime = runtime();
                let _entered = runtime.enter();
                let service = ListenOptions::new()
                    .bind_datagram(SocketAddr::new(endpoint.ip, 0))
                    .expect("listen");
                for times in 0..3 {
                    let route = Resolver::new(service.local_addr())
                        .timeout(TIMEOUT)
                        .resolve_datagram();
                    let querying = route.expect("resolve").start_query(b"").expect("start");
                    assert!(!poll_and_drop(querying, times), "no answer");
                }
                let group = SocketAddr::new([239, 9, 8, 77].into(), 0);
                for times in (0..3).filter(|_| endpoint.ip.is_ipv4()) {
                    let joining = Resolver::new(group)
                        .source(endpoint.ip)
                        .start_join(JoinAs::FULL_MEMBER)
                        .expect("start");
                    poll_and_drop(joining, times);
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropped_futures_lose_no_requests_or_events() {
    for endpoint in leak_checked(one_endpoint_each()) {
        runtime().block_on(async {
            let listener = listen(&endpoint);
            let address = listener.get_ref().local_addr();
            let (active_resources, passive_resources) =
                (endpoint.resources(), endpoint.resources());
            // No client has connected yet, and no task waits when one does.
            assert!(
                timeout(Duration::from_millis(10), listener.next_request())
                    .await
                    .is_err()
            );
            let connecting = ready(&endpoint, &active_resources, address)
                .await
                .start(&ConnectParams::default());
            let connecting = connecting.expect("start");
            let (active, mut passive) =
                tokio::join!(async { connecting.await.expect("connect") }, async {
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    let request = timeout(TIMEOUT, listener.next_request())
                        .await
                        .expect("in time")
                        .expect("accept");
                    accept(request, &passive_resources).await
                },);
            assert!(
                timeout(Duration::from_millis(10), passive.event())
                    .await
                    .is_err(),
                "no event"
            );
            drop(active);
            let event = timeout(TIMEOUT, passive.event())
                .await
                .expect("an event or request in time")
                .expect("event");
            assert_eq!(event.event_type, CmEventType::DISCONNECTED);
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn dropping_a_future_cancels_accepting() {
    for endpoint in leak_checked(one_endpoint_each()) {
        runtime().block_on(async {
            let listener = listen(&endpoint);
            let address = listener.get_ref().local_addr();
            let (active_resources, passive_resources) =
                (endpoint.resources(), endpoint.resources());
            let connecting = ready(&endpoint, &active_resources, address)
                .await
                .start(&ConnectParams::default());
            let request = listener.next_request().await.expect("accept");
            let ready_request = request.with_qp(passive_resources.qp()).expect("INIT");
            let accepting = ready_request
                .start(&ConnectParams::default())
                .expect("start");
            poll_and_drop(accepting, 1);
            // The peer receives either the disconnect or an error.
            match timeout(TIMEOUT, connecting.expect("start"))
                .await
                .expect("an event or request in time")
            {
                Ok(mut connection) => {
                    let event = timeout(TIMEOUT, connection.event())
                        .await
                        .expect("an event or request in time")
                        .expect("event");
                    assert_eq!(event.event_type, CmEventType::DISCONNECTED);
                }
                Err(error) => println!("{}: {error}", endpoint.name()),
            }
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn failures_and_a_missing_runtime_are_errors() {
    for endpoint in leak_checked(one_endpoint_each()) {
        // The thread of an iWARP handshake closes its descriptors after the failure is known.
        let address = endpoint.listen().local_addr();
        runtime().block_on(async {
            let resources = endpoint.resources();
            let connecting = ready(&endpoint, &resources, address)
                .await
                .start(&ConnectParams::default())
                .expect("start");
            let error = timeout(TIMEOUT, connecting)
                .await
                .expect("an event or request in time")
                .expect_err("no listener");
            assert!(
                error
                    .rejection()
                    .is_some_and(|rejection| rejection.reason.has_no_listener()),
                "{error}"
            );
        });
        let error = AsyncListener::new(endpoint.listen())
            .map(drop)
            .expect_err("no runtime");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("tokio"), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_shared_channel_is_awaited_instead_of_its_identifiers() {
    for endpoint in leak_checked(one_endpoint_each()) {
        runtime().block_on(async {
            let channel = EventChannel::create().expect("channel");
            assert!(
                timeout(Duration::from_millis(10), channel.next())
                    .await
                    .is_err(),
                "no event"
            );
            let listener = ListenOptions::new()
                .channel(&channel)
                .bind(SocketAddr::new(endpoint.ip, 0));
            let listener = listener.expect("listen");
            let address = listener.local_addr();
            let (active_resources, passive_resources) =
                (endpoint.resources(), endpoint.resources());
            let (active, mut passive) = tokio::join!(
                async { connect(&endpoint, &active_resources, address).await },
                async {
                    let key = timeout(TIMEOUT, channel.next())
                        .await
                        .expect("an event or request in time")
                        .expect("next");
                    assert_eq!(key, listener.key());
                    accept(
                        listener.try_request().expect("accept").expect("an event"),
                        &passive_resources,
                    )
                    .await
                },
            );
            passive.migrate(&channel).expect("migrate");
            let error = passive.event().await.expect_err("the channel is shared");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("EventChannel::next"), "{error}");
            drop(active);
            assert_eq!(
                timeout(TIMEOUT, channel.next())
                    .await
                    .expect("an event or request in time")
                    .expect("next"),
                passive.key()
            );
            let event = passive.try_event().expect("check").expect("an event");
            assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            let error = AsyncListener::new(listener)
                .map(drop)
                .expect_err("the channel is shared");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            let resolving = Resolver::new(address).channel(&channel).start();
            let finished = resolving.expect("start").await;
            let error = finished.map(drop).expect_err("the channel is shared");
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains("EventChannel::next"), "{error}");
        });
    }
}
