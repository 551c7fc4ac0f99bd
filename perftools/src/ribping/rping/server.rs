//! The rping server. For each ping it reads the memory that the client exposes and writes the bytes
//! back.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};
use base::log::log;
use base::threads::spawn_scoped_with_stack;
use ibverbs::{
    AccessFlags, Context, ErrorKind, Held, QueuePair, Rc, RemoteMemory, SharedRegion,
    wr::{self, Operation},
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rdmacm::{Accepting, ConnectParams, ConnectRequest, Connection, InProgress, Listener};

use session::server::connections::counted_address;

use super::MAX_SIZE;
use super::closed_listener::ListeningSocket;
use super::endpoint::{CompletionKind, RpingEndpoint};
use super::message::{MESSAGE_LEN, decode};
use crate::ribping::args::PingArgs;
use crate::ribping::stop::{POLL_INTERVAL, StopFlag};

/// Timeout of the connection handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time without a ping after which a connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(300);
/// Time without a ping after which a connection is closed if there are too many.
const MIN_IDLE: Duration = Duration::from_secs(5);
/// Time to wait after a connection could not be accepted. Connections that end release file
/// descriptors.
const FAILURE_DELAY: Duration = Duration::from_millis(200);
/// Time in which a port must become free after its listener was destroyed.
const LISTEN_TIMEOUT: Duration = Duration::from_secs(5);
/// Number of connect requests that may wait to be accepted.
const BACKLOG: u16 = 64;
/// Maximum number of concurrent clients of a listener.
const MAX_CLIENTS: usize = 256;
/// Maximum number of concurrent clients of one address.
const MAX_CLIENTS_PER_ADDRESS: usize = 64;
/// Number of clients beyond [`MAX_CLIENTS`] whose connections are being closed.
const MAX_CLOSING: usize = MAX_CLIENTS / 4;
/// Stack size in bytes of the thread of a client.
const STACK_SIZE: usize = 256 << 10;

/// The state of a client that the listener observes.
#[derive(Debug)]
struct Activity {
    start: Instant,
    /// The client has completed the handshake.
    is_established: AtomicBool,
    /// Time of the latest ping, in milliseconds since `start`.
    latest: AtomicU64,
    /// The listener closes the connection.
    is_closed: AtomicBool,
}

impl Activity {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            is_established: AtomicBool::new(false),
            latest: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }

    fn update(&self) {
        let millis = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.latest.store(millis, Ordering::Relaxed);
    }

    fn idle_time(&self) -> Duration {
        let latest = Duration::from_millis(self.latest.load(Ordering::Relaxed));
        self.start.elapsed().saturating_sub(latest)
    }

    /// Returns `true` if the connection can be closed in favour of another one: it is not
    /// established yet, or idle.
    fn can_be_closed(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
            && (!self.is_established.load(Ordering::Relaxed) || self.idle_time() >= MIN_IDLE)
    }
}

/// A client with its thread.
struct Client<'scope> {
    thread: thread::ScopedJoinHandle<'scope, ()>,
    address: IpAddr,
    activity: Arc<Activity>,
}

/// A listener, with its TCP socket if the kernel has one.
#[derive(Debug)]
pub(crate) struct ObservedListener {
    listener: Listener,
    socket: Option<ListeningSocket>,
}

impl ObservedListener {
    /// Listens for clients on an address.
    pub(crate) fn bind(address: SocketAddr) -> rdmacm::Result<Self> {
        let listener = Listener::bind(address, BACKLOG)?;
        let socket = ListeningSocket::of(listener.local_addr());
        Ok(Self { listener, socket })
    }

    /// Returns the address that clients connect to.
    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }
}

/// Listens again on an address whose listener was just destroyed.
fn listen_again(address: SocketAddr, stop: &StopFlag) -> rdmacm::Result<ObservedListener> {
    let deadline = Instant::now() + LISTEN_TIMEOUT;
    loop {
        match ObservedListener::bind(address) {
            Err(_) if Instant::now() < deadline && !stop.is_set() => thread::sleep(FAILURE_DELAY),
            result => return result,
        }
    }
}

/// Serves each client on a thread of its own until `stop` is set. Goes on after a connection could
/// not be accepted, and listens again if the driver closes the listener.
pub(crate) fn run(mut listener: ObservedListener, args: &PingArgs, stop: &StopFlag) -> Result<()> {
    let address = listener.local_addr();
    thread::scope(|scope| {
        let mut clients: Vec<Client<'_>> = Vec::new();
        // All connections on a device share an opened device. It is closed when there are none.
        let mut context: Option<Context> = None;
        while !stop.is_set() {
            clients.retain(|client| !client.thread.is_finished());
            if clients.is_empty() {
                context = None;
            }
            let socket = listener.socket.as_mut();
            if socket.is_some_and(ListeningSocket::is_closed) {
                log(format_args!(
                    "ribping: the driver closed the listener on {address}; listening again"
                ));
                // The port is free when the old listener is destroyed.
                drop(listener);
                listener = listen_again(address, stop)?;
            }
            let request = match listener.listener.next_request(Some(POLL_INTERVAL)) {
                Ok(Some(request)) => request,
                Ok(None) => continue,
                Err(error) if error.kind() == ErrorKind::NotFound => return Err(error.into()),
                Err(error) => {
                    log(format_args!("ribping: accept a connection: {error}"));
                    thread::sleep(FAILURE_DELAY);
                    continue;
                }
            };
            let is_on_selected_port = args
                .ca
                .as_deref()
                .is_none_or(|ca| ca == request.device_name())
                && args.port.is_none_or(|port| port == request.port_num());
            let peer = request.peer_addr();
            if !is_on_selected_port || !has_room(&clients, peer.ip()) {
                // Dropping the request rejects it.
                continue;
            }
            let started = open(&mut context, &request).and_then(|context| {
                let activity = Arc::new(Activity::new());
                let observed = Arc::clone(&activity);
                let serve = move || {
                    handle_client(request, &context, args.verbosity(), stop, &activity);
                };
                Ok(Client {
                    thread: spawn_scoped_with_stack(scope, "client", STACK_SIZE, serve)?,
                    address: peer.ip(),
                    activity: observed,
                })
            });
            match started {
                Ok(client) => clients.push(client),
                Err(error) => log(format_args!("ribping: {peer}: {error}")),
            }
        }
        Ok(())
    })
}

/// Returns the opened device of a request.
fn open(latest: &mut Option<Context>, request: &ConnectRequest) -> Result<Context> {
    if let Some(context) = latest {
        if context.device_name() == request.device_name() {
            return Ok(context.clone());
        }
    }
    let context = request.context()?;
    *latest = Some(context.clone());
    Ok(context)
}

/// Returns `true` if a client at `address` can be served. If there are too many, closes a
/// connection of the address with the most: the one that has been idle for the longest time, or
/// whose client has not completed the handshake.
fn has_room(clients: &[Client<'_>], address: IpAddr) -> bool {
    let source = counted_address(address);
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    for client in clients {
        let counted = counted_address(client.address);
        *counts.entry(counted).or_default() += 1;
    }
    let of_source = counts.get(&source).copied().unwrap_or(0);
    let crowded = if of_source >= MAX_CLIENTS_PER_ADDRESS {
        source
    } else if clients.len() >= MAX_CLIENTS {
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        most.map_or(source, |(source, _)| source)
    } else {
        return true;
    };
    let candidates = clients.iter().filter(|client| {
        counted_address(client.address) == crowded && client.activity.can_be_closed()
    });
    let Some(client) = candidates.max_by_key(|client| client.activity.idle_time()) else {
        return false;
    };
    client.activity.is_closed.store(true, Ordering::Relaxed);
    of_source < 2 * MAX_CLIENTS_PER_ADDRESS && clients.len() < MAX_CLIENTS + MAX_CLOSING
}

fn handle_client(
    request: ConnectRequest,
    context: &Context,
    verbosity: u8,
    stop: &StopFlag,
    activity: &Activity,
) {
    let peer = request.peer_addr();
    let port = format!("{} port {}", request.device_name(), request.port_num());
    if verbosity > 0 {
        log(format_args!("ribping: connection from {peer} on {port}"));
    }
    match serve(request, context, stop, activity) {
        Err(error) if error.kind() != Kind::Gone || verbosity > 0 => {
            log(format_args!("ribping: {peer}: {error}"));
        }
        _ => {}
    }
}

/// The connection to a client, and the buffer for the data of its pings.
struct Session<'a> {
    connection: Connection,
    endpoint: RpingEndpoint,
    buffer: Held<SharedRegion>,
    /// Number of free send slots when no request is in flight.
    send_slots: usize,
    stop: &'a StopFlag,
    activity: &'a Activity,
}

/// Creates the objects of a client.
fn create_objects(context: &Context) -> Result<(RpingEndpoint, QueuePair<Rc>, Held<SharedRegion>)> {
    let endpoint = RpingEndpoint::new(context)?;
    // On iWARP the sink of an RDMA READ needs remote write access.
    let memory = endpoint
        .pd
        .shared(MAX_SIZE as usize, AccessFlags::REMOTE_WRITE)?;
    let mut qp = endpoint.create_qp()?;
    let buffer = qp.hold(&memory)?;
    Ok((endpoint, qp, buffer))
}

fn serve(
    request: ConnectRequest,
    context: &Context,
    stop: &StopFlag,
    activity: &Activity,
) -> Result<()> {
    // With some numbers of objects, Soft-iWARP creates no further ones on the shared context (fault
    // 2 in docs/drivers.md). A client that requests many connections could bring this about.
    let (endpoint, qp, buffer) =
        create_objects(context).or_else(|_| create_objects(&request.context()?))?;
    let send_slots = qp.send_slots_free();
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
    let mut pending = request.access(access).with_qp(qp)?;
    endpoint.post_recv(pending.qp_mut())?;
    let params = ConnectParams::new()
        .responder_resources(1)
        .initiator_depth(1);
    let Some(connection) = establish(pending.start(&params)?, stop, activity)? else {
        return Ok(());
    };
    activity.is_established.store(true, Ordering::Relaxed);
    activity.update();
    Session {
        connection,
        endpoint,
        buffer,
        send_slots,
        stop,
        activity,
    }
    .run()
}

/// Waits until a connection is established. Returns `None` if the server stops or the listener
/// closes the connection.
fn establish(
    mut accepting: Accepting,
    stop: &StopFlag,
    activity: &Activity,
) -> Result<Option<Connection>> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    while !stop.is_set() && !activity.is_closed.load(Ordering::Relaxed) {
        if let Some(connection) = accepting.try_finish()? {
            return Ok(Some(connection));
        }
        if Instant::now() >= deadline {
            return Ok(Some(accepting.wait(Some(Duration::ZERO))?));
        }
        let mut fds = [PollFd::new(accepting.as_fd(), PollFlags::POLLIN)];
        let timeout = PollTimeout::try_from(POLL_INTERVAL).unwrap_or(PollTimeout::ZERO);
        let _ = poll(&mut fds, timeout);
    }
    Ok(None)
}

impl Session<'_> {
    /// Answers pings until the session is over or the client disconnects.
    fn run(mut self) -> Result<()> {
        while let Some((source, len)) = self.next_exposed()? {
            let slice = self.buffer_slice(len)?;
            self.post_and_wait(wr::read(slice, source))?;
            self.acknowledge()?;
            let Some((sink, sink_len)) = self.next_exposed()? else {
                break;
            };
            let slice = self.buffer_slice(len.min(sink_len))?;
            self.post_and_wait(wr::write(slice, sink))?;
            self.acknowledge()?;
        }
        Ok(())
    }

    /// Returns `true` if the server stops or closes the connection, or if the client is idle.
    fn is_over(&self) -> bool {
        self.stop.is_set()
            || self.activity.is_closed.load(Ordering::Relaxed)
            || self.activity.idle_time() >= IDLE_TIMEOUT
    }

    /// Waits until the client exposes memory. Returns the memory and its length, or `None` if the
    /// session is over.
    fn next_exposed(&mut self) -> Result<Option<(RemoteMemory, usize)>> {
        while !self.is_over() {
            let Some(CompletionKind::Received(message)) = self
                .endpoint
                .next_completion(&mut self.connection, POLL_INTERVAL)?
            else {
                continue;
            };
            self.activity.update();
            let memory = decode(&message).ok_or_else(|| {
                Error::protocol(format!(
                    "cannot receive from the client: a message of {} bytes, expected {MESSAGE_LEN}",
                    message.len()
                ))
            })?;
            if memory.len == 0 || memory.len > MAX_SIZE.into() {
                return Err(Error::protocol(format!(
                    "cannot receive from the client: {} bytes of exposed memory, expected 1 to {MAX_SIZE}",
                    memory.len
                )));
            }
            return Ok(Some((memory, usize::try_from(memory.len).unwrap_or(0))));
        }
        Ok(None)
    }

    fn buffer_slice(&self, len: usize) -> Result<Held<SharedRegion>> {
        self.buffer
            .slice(0..len)
            .ok_or_else(|| Error::protocol("answer the client: the ping is larger than the buffer"))
    }

    /// Posts a request and waits until it completes or the session is over.
    fn post_and_wait<O: Operation<Rc, Held<SharedRegion>>>(
        &mut self,
        request: wr::SendRequest<O, Held<SharedRegion>>,
    ) -> Result<()> {
        self.connection.qp_mut().post_send(request)?;
        while self.connection.qp().send_slots_free() < self.send_slots && !self.is_over() {
            if let Some(CompletionKind::Received(_)) = self
                .endpoint
                .next_completion(&mut self.connection, POLL_INTERVAL)?
            {
                return Err(Error::protocol(
                    "cannot receive from the client: unexpected message",
                ));
            }
        }
        Ok(())
    }

    /// Sends the message that lets the client continue. The client ignores its content.
    fn acknowledge(&mut self) -> Result<()> {
        self.endpoint
            .send(self.connection.qp_mut(), [0; MESSAGE_LEN])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Calls a function with clients that have these addresses, are established or not, and have
    /// been idle for these times. Returns its result and the numbers of the closed ones.
    fn with_clients<T>(
        clients: &[(IpAddr, bool, Duration)],
        check: impl FnOnce(&[Client<'_>]) -> T,
    ) -> (T, Vec<usize>) {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let client = |(address, is_established, idle): &(IpAddr, bool, Duration)| Client {
                thread: scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(5));
                    }
                }),
                address: *address,
                activity: Arc::new(Activity {
                    start: Instant::now().checked_sub(*idle).unwrap(),
                    is_established: AtomicBool::new(*is_established),
                    ..Activity::new()
                }),
            };
            let clients: Vec<_> = clients.iter().map(client).collect();
            let result = check(&clients);
            let is_closed = |client: &Client<'_>| client.activity.is_closed.load(Ordering::Relaxed);
            let closed = (0..clients.len()).filter(|n| is_closed(&clients[*n]));
            let closed = closed.collect();
            // A failed assertion must not leave threads behind that the scope waits for.
            is_over.store(true, Ordering::Relaxed);
            (result, closed)
        })
    }

    const NEW: IpAddr = address(99);

    const fn address(last: u8) -> IpAddr {
        IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, last))
    }

    #[test]
    fn a_network_of_64_bits_is_one_address() {
        let of_network = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        let full: Vec<_> = (0..)
            .take(MAX_CLIENTS_PER_ADDRESS)
            .map(|n| (of_network(n), true, MIN_IDLE * 2))
            .collect();
        let (is_served, closed) = with_clients(&full, |all| has_room(all, of_network(999)));
        assert!(is_served && closed.len() == 1, "{closed:?}");
        let other = IpAddr::from([0x2001, 0xdb8, 0, 1, 0, 0, 0, 1]);
        assert_eq!(
            with_clients(&full, |all| has_room(all, other)),
            (true, vec![])
        );
    }

    #[test]
    fn most_idle_connection_makes_room() {
        // Eight addresses with as many clients.
        let mut clients: Vec<_> = (0..MAX_CLIENTS)
            .map(|n| (address((n % 8).to_le_bytes()[0]), true, Duration::ZERO))
            .collect();
        let few = &clients[1..];
        assert_eq!(with_clients(few, |all| has_room(all, NEW)), (true, vec![]));
        // All connections are in use.
        let full = with_clients(&clients, |all| has_room(all, NEW));
        assert_eq!(full, (false, vec![]));
        // The address with the most clients.
        clients[8].0 = address(1);
        clients[9].2 = MIN_IDLE;
        clients[17].2 = MIN_IDLE * 2;
        clients[18].2 = MIN_IDLE * 3;
        let closed = with_clients(&clients, |all| has_room(all, NEW));
        assert_eq!(closed, (true, vec![17]));
    }

    #[test]
    fn handshakes_of_a_crowded_address_are_closed_first() {
        let mut clients = vec![(address(1), true, MIN_IDLE * 9)];
        let pending = |n| (address(2), n != 7, Duration::from_millis(n));
        clients.extend((1..=MAX_CLIENTS_PER_ADDRESS as u64).map(pending));
        let other = with_clients(&clients, |all| has_room(all, NEW));
        assert_eq!(other, (true, vec![]));
        let crowded = address(2);
        let same = with_clients(&clients, |all| {
            (has_room(all, crowded), has_room(all, crowded))
        });
        assert_eq!(same, ((true, false), vec![7]));
    }
}
