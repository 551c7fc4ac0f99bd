//! EstablishPending on tokio, on real drivers: everything that can be waited for, and nothing left
//! by a future that was dropped at any point.

mod lab;

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ibverbs::ErrorKind;
use lab::{End, PATIENCE, Place, leaves_nothing, leaves_nothing_within, one_place_each};
use rdmacm::datagram::multicast::JoinAs;
use rdmacm::{
    AsyncListener, CmEventType, ConnectParams, ConnectRequest, Connection, EventChannel,
    InProgress, ListenOptions, ReadyRoute, Resolver,
};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// One thread: what blocks it is found out.
fn runtime() -> Runtime {
    Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("runtime")
}

fn listen(place: &Place) -> AsyncListener {
    AsyncListener::new(place.listen()).expect("listen")
}

async fn ready(place: &Place, end: &End, address: SocketAddr) -> ReadyRoute {
    let route = Resolver::new(address)
        .timeout(PATIENCE)
        .start()
        .expect("start")
        .finish()
        .await
        .expect("resolve");
    assert_eq!(route.device_name(), place.name());
    let mut ready = route.with_qp(end.qp()).expect("INIT");
    end.receive_on(ready.qp_mut());
    ready
}

async fn connect(place: &Place, end: &End, address: SocketAddr) -> Connection {
    let connecting = ready(place, end, address)
        .await
        .start(&ConnectParams::default())
        .expect("start");
    connecting.finish().await.expect("connect")
}

async fn accept(request: ConnectRequest, end: &End) -> Connection {
    let mut pending = request.with_qp(end.qp()).expect("INIT");
    end.receive_on(pending.qp_mut());
    pending
        .start(&ConnectParams::default())
        .expect("start")
        .finish()
        .await
        .expect("accept")
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn many_clients_and_their_server_share_one_thread() {
    const CLIENTS: usize = 8;
    for place in one_place_each() {
        leaves_nothing(&place, || {
            let local = tokio::task::LocalSet::new();
            let runtime = runtime();
            let place = Arc::new(Place {
                context: place.context.clone(),
                ip: place.ip,
            });
            local.block_on(&runtime, async {
                let listener = listen(&place);
                let address = listener.get_ref().local_addr();
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|_| {
                        let place = Arc::clone(&place);
                        tokio::task::spawn_local(async move {
                            let end = place.end();
                            let mut connection = connect(&place, &end, address).await;
                            connection.event().await.expect("event").event_type
                        })
                    })
                    .collect();
                let mut accepted = Vec::new();
                for _ in 0..CLIENTS {
                    let request = timeout(PATIENCE, listener.accept())
                        .await
                        .expect("in time")
                        .expect("accept");
                    let place = Arc::clone(&place);
                    accepted.push(tokio::task::spawn_local(async move {
                        let end = place.end();
                        let connection = accept(request, &end).await;
                        (connection, end)
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
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn several_tasks_await_one_listener() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            runtime().block_on(async {
                let listener = listen(&place);
                let address = listener.get_ref().local_addr();
                let ends: Vec<End> = (0..3).map(|_| place.end()).collect();
                let (one, two, three) = tokio::join!(
                    async { accept(listener.accept().await.expect("accept"), &ends[0]).await },
                    async { accept(listener.accept().await.expect("accept"), &ends[1]).await },
                    async {
                        let mut kept = Vec::new();
                        for _ in 0..2 {
                            kept.push(connect(&place, &ends[2], address).await);
                        }
                        kept
                    },
                );
                assert_eq!(three.len(), 2);
                drop((one, two, three));
            });
        });
    }
}

/// Polls a future a few times, as far as it goes, and drops it.
fn poll_and_drop<F: Future>(future: F, times: usize) -> bool {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    (0..times).any(|_| matches!(future.as_mut().poll(&mut context), Poll::Ready(_)))
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dropped_future_leaves_nothing_wherever_it_was() {
    for place in one_place_each() {
        let listener = place.listen();
        let address = listener.local_addr();
        let resolver = || Resolver::new(address).timeout(PATIENCE);
        leaves_nothing(&place, || {
            let runtime = runtime();
            let _entered = runtime.enter();
            for times in 0..3 {
                poll_and_drop(resolver().start().expect("start").finish(), times);
            }
        });
        // What the kernel holds during a handshake over iWARP goes when it lets go.
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            let listener = place.listen();
            let address = listener.local_addr();
            for wait in [0, 30] {
                runtime().block_on(async {
                    let end = place.end();
                    let connecting = ready(&place, &end, address)
                        .await
                        .start(&ConnectParams::default())
                        .expect("start");
                    let given_up = timeout(Duration::from_millis(wait), connecting.finish()).await;
                    assert!(given_up.is_err(), "nobody accepts");
                });
            }
            drop(listener);
        });
        if !place.is_iwarp() {
            leaves_nothing(&place, || {
                let runtime = runtime();
                let _entered = runtime.enter();
                let service = ListenOptions::new()
                    .bind_datagram(SocketAddr::new(place.ip, 0))
                    .expect("listen");
                for times in 0..3 {
                    let route = Resolver::new(service.local_addr())
                        .timeout(PATIENCE)
                        .resolve_datagram();
                    let querying = route.expect("resolve").start_query(b"").expect("start");
                    assert!(!poll_and_drop(querying.finish(), times), "nobody answers");
                }
                let group = SocketAddr::new([239, 9, 8, 77].into(), 0);
                for times in (0..3).filter(|_| place.ip.is_ipv4()) {
                    let joining = Resolver::new(group)
                        .source(place.ip)
                        .start_join(JoinAs::FULL_MEMBER)
                        .expect("start");
                    poll_and_drop(joining.finish(), times);
                }
            });
        }
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_dropped_acceptance_or_event_loses_nothing() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            runtime().block_on(async {
                let listener = listen(&place);
                let address = listener.get_ref().local_addr();
                let (active_end, passive_end) = (place.end(), place.end());
                // Nobody is there yet, and nobody waits when somebody comes.
                assert!(
                    timeout(Duration::from_millis(10), listener.accept())
                        .await
                        .is_err()
                );
                let connecting = ready(&place, &active_end, address)
                    .await
                    .start(&ConnectParams::default());
                let connecting = connecting.expect("start");
                let (active, mut passive) = tokio::join!(
                    async { connecting.finish().await.expect("connect") },
                    async {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                        let request = timeout(PATIENCE, listener.accept())
                            .await
                            .expect("kept")
                            .expect("accept");
                        accept(request, &passive_end).await
                    },
                );
                assert!(
                    timeout(Duration::from_millis(10), passive.event())
                        .await
                        .is_err(),
                    "nothing happened"
                );
                drop(active);
                let event = timeout(PATIENCE, passive.event())
                    .await
                    .expect("in time")
                    .expect("event");
                assert_eq!(event.event_type, CmEventType::DISCONNECTED);
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn accepting_is_abandoned_by_a_dropped_future() {
    for place in one_place_each() {
        leaves_nothing_within(&place, Duration::from_secs(30), || {
            runtime().block_on(async {
                let listener = listen(&place);
                let address = listener.get_ref().local_addr();
                let (active_end, passive_end) = (place.end(), place.end());
                let connecting = ready(&place, &active_end, address)
                    .await
                    .start(&ConnectParams::default());
                let request = listener.accept().await.expect("accept");
                let pending = request.with_qp(passive_end.qp()).expect("INIT");
                let accepting = pending.start(&ConnectParams::default()).expect("start");
                poll_and_drop(accepting.finish(), 1);
                // The other end hears of it, or never heard of anything else.
                match timeout(PATIENCE, connecting.expect("start").finish())
                    .await
                    .expect("in time")
                {
                    Ok(mut connection) => {
                        let event = timeout(PATIENCE, connection.event())
                            .await
                            .expect("in time")
                            .expect("event");
                        assert_eq!(event.event_type, CmEventType::DISCONNECTED);
                    }
                    Err(error) => println!("{}: {error}", place.name()),
                }
            });
        });
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn errors_are_awaited_too_and_a_runtime_is_needed() {
    for place in one_place_each() {
        let address = place.listen().local_addr();
        runtime().block_on(async {
            let end = place.end();
            let connecting = ready(&place, &end, address)
                .await
                .start(&ConnectParams::default())
                .expect("start");
            let error = timeout(PATIENCE, connecting.finish())
                .await
                .expect("in time")
                .expect_err("nobody listens");
            assert!(
                error
                    .rejection()
                    .is_some_and(|no| no.reason.has_no_listener()),
                "{error}"
            );
        });
        let error = AsyncListener::new(place.listen())
            .map(drop)
            .expect_err("no runtime");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("tokio"), "{error}");
    }
}

#[test]
#[ignore = "needs RDMA devices: run by ci/lab"]
fn a_channel_for_many_is_awaited_and_what_is_on_it_is_not() {
    for place in one_place_each() {
        leaves_nothing(&place, || {
            runtime().block_on(async {
                let channel = EventChannel::create().expect("channel");
                assert!(
                    timeout(Duration::from_millis(10), channel.next())
                        .await
                        .is_err(),
                    "nothing happened"
                );
                let listener = ListenOptions::new()
                    .channel(&channel)
                    .bind(SocketAddr::new(place.ip, 0));
                let listener = listener.expect("listen");
                let address = listener.local_addr();
                let (active_end, passive_end) = (place.end(), place.end());
                let (active, mut passive) = tokio::join!(
                    async { connect(&place, &active_end, address).await },
                    async {
                        let key = timeout(PATIENCE, channel.next())
                            .await
                            .expect("in time")
                            .expect("next");
                        assert_eq!(key, listener.key());
                        accept(
                            listener.try_accept().expect("accept").expect("told"),
                            &passive_end,
                        )
                        .await
                    },
                );
                passive.migrate(&channel).expect("migrate");
                let error = passive.event().await.expect_err("it shares a channel");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
                assert!(error.to_string().contains("EventChannel::next"), "{error}");
                drop(active);
                assert_eq!(
                    timeout(PATIENCE, channel.next())
                        .await
                        .expect("in time")
                        .expect("next"),
                    passive.key()
                );
                let event = passive.check_event().expect("check").expect("told");
                assert_eq!(event.event_type, CmEventType::DISCONNECTED);
                let error = AsyncListener::new(listener)
                    .map(drop)
                    .expect_err("it shares a channel");
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            });
        });
    }
}
