//! The open connections of a server.
//!
//! A connection is pending until its client has authenticated and sent a request that is served;
//! then it is a session. Both have limits of their own, so that clients that are not allowed, that
//! send nothing or that lack the token take no place of a client that is served.
//!
//! A client that is rejected because of its token gets the reply late. Its connection is rejected
//! until then. If too many connections are pending or rejected, one of the address with the most is
//! closed: the oldest rejected one, or else the oldest pending one, because a client that is served
//! stays pending only for a moment. The thread of a closed connection ends once it has a processor,
//! and the server waits for this before it has too many threads. The number of threads is limited
//! for each address too, so that one address takes no place of another. An address has the limits
//! for all its clients: a flood from the address of a client that has the token can delay this
//! client, but the rejected connections of the flood are closed first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Kind, Result};

use crate::protocol::frame::DeadlineReader;

/// Maximum number of pending and rejected connections.
pub(crate) const MAX_PENDING: usize = 128;
/// Maximum number of pending and rejected connections from one address.
pub(crate) const MAX_PENDING_PER_ADDRESS: usize = 64;
/// Maximum number of connections that are not sessions, with those that were closed and whose
/// threads have not ended yet.
const MAX_THREADS: usize = 4 * MAX_PENDING;
/// Maximum number of such connections from one address.
const MAX_THREADS_PER_ADDRESS: usize = 2 * MAX_PENDING_PER_ADDRESS;
/// Maximum time to wait until one of too many threads ends. Then a new connection is closed.
const MAX_WAIT_FOR_THREAD: Duration = Duration::from_secs(1);
/// Delay of the reply to a client that failed to authenticate.
const REJECTION_DELAY: Duration = Duration::from_secs(1);
/// Maximum time that a connection is pending.
const MAX_PENDING_TIME: Duration = Duration::from_secs(60);

/// The open connections of a server.
#[derive(Debug)]
pub struct Connections {
    open: Mutex<HashMap<u64, OpenConnection>>,
    /// Notified when a thread has ended.
    ended: Condvar,
    /// Number of the next connection.
    next: AtomicU64,
    max_sessions: u32,
    /// Maximum number of sessions of one address.
    max_of_address: u32,
    /// Maximum time that a connection waits for the end of a session.
    max_wait: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Rejected,
    Session,
    Closed,
}

#[derive(Debug)]
struct OpenConnection {
    stream: TcpStream,
    source: IpAddr,
    state: State,
    /// Time at which it is closed. `None`: not closed.
    deadline: Option<Instant>,
}

impl OpenConnection {
    /// Returns `true` if the connection counts as pending.
    fn waits(&self) -> bool {
        matches!(self.state, State::Pending | State::Rejected)
    }

    /// Closes the connection. Its thread then ends.
    fn close(&mut self) {
        self.state = State::Closed;
        self.deadline = None;
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// An entry in the table of open connections. It is removed on drop.
#[derive(Debug)]
pub struct Registration<'a> {
    connections: &'a Connections,
    number: u64,
}

impl Connections {
    /// Creates an empty table for at most `max_sessions` sessions.
    pub fn new(max_sessions: u32) -> Self {
        Self {
            open: Mutex::default(),
            ended: Condvar::new(),
            next: AtomicU64::new(0),
            max_sessions,
            max_of_address: max_sessions,
            max_wait: Duration::ZERO,
        }
    }

    /// Limits the sessions of one address to half of all sessions, so that a client that reads
    /// slowly takes not all of them.
    #[must_use]
    pub fn shared_by_addresses(mut self) -> Self {
        self.max_of_address = self.max_sessions.div_ceil(2);
        self
    }

    /// Lets a connection wait for the end of a session if there are too many. Otherwise it is
    /// rejected at once. Suits sessions that are short.
    #[must_use]
    pub fn wait_for_session(mut self, max_wait: Duration) -> Self {
        self.max_wait = max_wait;
        self
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, OpenConnection>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a connection from `peer`, which is pending. Returns `None` if there are too many.
    ///
    /// If there are too many threads, it waits at most a second until the thread of a closed
    /// connection ends.
    pub fn register(
        &self,
        stream: &TcpStream,
        peer: IpAddr,
    ) -> io::Result<Option<Registration<'_>>> {
        let source = counted_address(peer);
        let mut open = self.open();
        make_room(&mut open, source);
        let full = |open: &mut HashMap<_, _>| has_max_threads(open, source);
        let waited = self
            .ended
            .wait_timeout_while(open, MAX_WAIT_FOR_THREAD, full);
        let (mut open, result) = waited.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() {
            return Ok(None);
        }
        let connection = OpenConnection {
            stream: stream.try_clone()?,
            source,
            state: State::Pending,
            deadline: Instant::now().checked_add(MAX_PENDING_TIME),
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        open.insert(number, connection);
        Ok(Some(Registration {
            connections: self,
            number,
        }))
    }

    /// Returns `true` if at least one connection is a session.
    pub(crate) fn has_sessions(&self) -> bool {
        self.open().values().any(|c| !c.waits())
    }

    /// Closes connections whose deadline has passed.
    pub(crate) fn close_overdue(&self) {
        let now = Instant::now();
        for connection in self.open().values_mut() {
            if connection.deadline.is_some_and(|deadline| now >= deadline) {
                connection.close();
            }
        }
    }

    /// Waits until all connections have ended, at most for `timeout`, and closes the others.
    pub(crate) fn drain(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut open = self.open();
        let rejected = open.values_mut().filter(|c| c.state == State::Rejected);
        rejected.for_each(OpenConnection::close);
        drop(open);
        while !self.open().is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        self.open().values_mut().for_each(OpenConnection::close);
    }
}

/// Returns `true` if there is no thread for another connection from `source`.
fn has_max_threads(open: &HashMap<u64, OpenConnection>, source: IpAddr) -> bool {
    let threads = || open.values().filter(|c| c.state != State::Session);
    let of_source = threads().filter(|c| c.source == source).count();
    of_source >= MAX_THREADS_PER_ADDRESS || threads().count() >= MAX_THREADS
}

/// Closes a pending or rejected connection if there is no room for another one from `source`.
fn make_room(open: &mut HashMap<u64, OpenConnection>, source: IpAddr) {
    // The number of connections of each address, and that of its oldest one.
    let mut pending: HashMap<IpAddr, (usize, u64)> = HashMap::new();
    for (number, connection) in open.iter().filter(|(_, c)| c.waits()) {
        let (count, oldest) = pending.entry(connection.source).or_insert((0, *number));
        (*count, *oldest) = (*count + 1, *number.min(oldest));
    }
    let crowded = if pending
        .get(&source)
        .is_some_and(|(count, _)| *count >= MAX_PENDING_PER_ADDRESS)
    {
        Some(source)
    } else if pending.values().map(|(count, _)| count).sum::<usize>() >= MAX_PENDING {
        // A client that is served is among the latest ones.
        let addresses = pending.into_iter();
        let most = addresses.max_by_key(|(_, (count, oldest))| (*count, Reverse(*oldest)));
        most.map(|(source, _)| source)
    } else {
        None
    };
    let oldest = open
        .iter_mut()
        .filter(|(_, c)| c.waits() && Some(c.source) == crowded)
        .min_by_key(|(number, c)| (c.state == State::Pending, **number));
    if let Some((_, connection)) = oldest {
        connection.close();
    }
}

/// Returns the address that connections are counted by. A host with IPv6 usually has all addresses
/// of a network of 64 bits.
pub fn counted_address(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64)),
        v4 @ IpAddr::V4(_) => v4,
    }
}

impl Registration<'_> {
    /// Makes the connection a session, which ends after `max_time` at the latest.
    pub fn begin_session(&self, max_time: Duration) -> Result<()> {
        let (begin, max_wait) = (Instant::now(), self.connections.max_wait);
        let mut open = self.connections.open();
        loop {
            let begun = self.try_begin_session(&mut open, max_time);
            let left = max_wait.saturating_sub(begin.elapsed());
            match begun {
                Err(error) if error.kind() == Kind::Limit && !left.is_zero() => {
                    let waited = self.connections.ended.wait_timeout(open, left);
                    open = waited.unwrap_or_else(PoisonError::into_inner).0;
                }
                other => return other,
            }
        }
    }

    fn try_begin_session(
        &self,
        open: &mut HashMap<u64, OpenConnection>,
        max_time: Duration,
    ) -> Result<()> {
        let sessions = || open.values().filter(|c| c.state == State::Session);
        let count = sessions().count();
        if count >= self.connections.max_sessions as usize {
            return Err(Error::limit(format!(
                "the server has reached its maximum number of clients, {count}"
            ))
            .with_help("try again later, or set --max-clients higher on the server"));
        }
        let source = open.get(&self.number).map(|c| c.source);
        let of_source = sessions().filter(|c| Some(c.source) == source).count();
        if of_source >= self.connections.max_of_address as usize {
            return Err(Error::limit(format!(
                "the server has reached its maximum number of clients of one address, {of_source}"
            )));
        }
        match open.get_mut(&self.number) {
            Some(connection) if connection.state == State::Pending => {
                connection.state = State::Session;
                connection.deadline = Instant::now().checked_add(max_time);
                Ok(())
            }
            _ => Err(Error::new(Kind::Gone, "the server closed the connection")),
        }
    }
}

impl Registration<'_> {
    /// Returns `true` if the connection became a session.
    pub(crate) fn is_session(&self) -> bool {
        let open = self.connections.open();
        open.get(&self.number)
            .is_some_and(|connection| !connection.waits())
    }

    /// Waits before the reply to a client that failed to authenticate, so that it cannot guess
    /// tokens fast. Ends early when the client or the server closes the connection.
    pub fn delay_rejection(&self, stream: &TcpStream) {
        if let Some(connection) = self.connections.open().get_mut(&self.number) {
            if connection.state == State::Pending {
                connection.state = State::Rejected;
            }
        }
        let mut reader = DeadlineReader::new(stream, REJECTION_DELAY);
        while reader.read(&mut [0; 512]).is_ok_and(|len| len > 0) {}
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.connections.open().remove(&self.number);
        self.connections.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Returns both ends of a connection.
    fn pair(listener: &TcpListener) -> (TcpStream, TcpStream) {
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client
            .set_read_timeout(Some(Duration::from_millis(10)))
            .unwrap();
        (client, listener.accept().unwrap().0)
    }

    fn is_closed(mut client: &TcpStream) -> bool {
        matches!(client.read(&mut [0]), Ok(0))
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn oldest_pending_connection_of_a_crowded_address_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let pairs: Vec<_> = (0..=MAX_PENDING + 1).map(|_| pair(&listener)).collect();
        let mut entries = Vec::new();
        let mut add = |index: usize, peer: &str| {
            let entry = connections.register(&pairs[index].1, ip(peer));
            entries.push(entry.unwrap().unwrap());
        };
        let one = |n: usize| format!("2001:db8:1:1::{n:x}");
        (0..MAX_PENDING_PER_ADDRESS).for_each(|n| add(n, &one(n)));
        assert!(!is_closed(&pairs[0].0));
        add(MAX_PENDING_PER_ADDRESS, &one(999));
        assert!(is_closed(&pairs[0].0) && !is_closed(&pairs[1].0));
        // Another network has as many connections, less one.
        let other = MAX_PENDING_PER_ADDRESS + 1..MAX_PENDING;
        other.for_each(|n| add(n, "192.0.2.1"));
        add(MAX_PENDING, "::ffff:192.0.2.1");
        add(MAX_PENDING + 1, "198.51.100.1");
        let closed = pairs.iter().filter(|(client, _)| is_closed(client));
        assert_eq!(closed.count(), 2);
    }

    #[test]
    fn rejected_connections_are_closed_before_pending_ones() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let pairs: Vec<_> = (0..=MAX_PENDING_PER_ADDRESS)
            .map(|_| pair(&listener))
            .collect();
        let add = |n: usize| {
            let entry = connections.register(&pairs[n].1, ip("192.0.2.1"));
            entry.unwrap().unwrap()
        };
        let entries: Vec<_> = (0..MAX_PENDING_PER_ADDRESS).map(add).collect();
        std::thread::scope(|scope| {
            let delayed = scope.spawn(|| entries[7].delay_rejection(&pairs[7].1));
            let state = || connections.open()[&7].state;
            while state() == State::Pending {
                std::thread::yield_now();
            }
            let last = add(MAX_PENDING_PER_ADDRESS);
            assert_eq!(state(), State::Closed);
            // The thread ends, because the connection is closed.
            delayed.join().unwrap();
            drop(last);
        });
        let closed = pairs.iter().position(|(client, _)| is_closed(client));
        assert_eq!(closed, Some(7));
        drop(entries);
    }

    #[test]
    fn closed_connections_of_an_address_take_no_thread_of_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let pairs: Vec<_> = (0..=MAX_THREADS_PER_ADDRESS)
            .map(|_| pair(&listener))
            .collect();
        let entries: Vec<_> = pairs
            .iter()
            .filter_map(|(_, server)| connections.register(server, ip("192.0.2.1")).unwrap())
            .collect();
        assert_eq!(entries.len(), MAX_THREADS_PER_ADDRESS);
        let (_client, server) = pair(&listener);
        assert!(
            connections
                .register(&server, ip("192.0.2.2"))
                .unwrap()
                .is_some()
        );
    }

    #[test]
    fn a_connection_waits_for_the_thread_of_a_closed_one() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let (_client, server) = pair(&listener);
        let add = || connections.register(&server, ip("192.0.2.1")).unwrap();
        let mut entries: Vec<_> = (0..MAX_THREADS_PER_ADDRESS).map(|_| add()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| add().is_some());
            // The connection that is closed for the new one.
            let last = MAX_THREADS_PER_ADDRESS - MAX_PENDING_PER_ADDRESS;
            while connections.open()[&(last as u64)].state == State::Pending {
                std::thread::yield_now();
            }
            drop(entries.swap_remove(0));
            assert!(waiting.join().unwrap());
        });
    }

    #[test]
    fn an_address_takes_half_of_shared_sessions() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(4).shared_by_addresses();
        let pairs: Vec<_> = (0..5).map(|_| pair(&listener)).collect();
        let peers = [
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.1",
            "192.0.2.2",
            "192.0.2.3",
        ];
        let entries: Vec<_> = pairs
            .iter()
            .zip(peers)
            .map(|((_, stream), peer)| connections.register(stream, ip(peer)).unwrap().unwrap())
            .collect();
        let begin = |n: usize| entries[n].begin_session(Duration::from_secs(60));
        assert!(begin(0).is_ok() && begin(1).is_ok());
        let error = begin(2).unwrap_err().to_string();
        assert!(error.contains("of one address, 2"), "{error}");
        assert!(begin(3).is_ok() && begin(4).is_ok());
    }

    #[test]
    fn among_addresses_with_as_many_the_oldest_connection_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let (_client, server) = pair(&listener);
        let add = |number: usize| {
            let source = Ipv6Addr::from_bits((number as u128) << 64).into();
            connections.register(&server, source).unwrap()
        };
        let _entries: Vec<_> = (0..=MAX_PENDING).map(add).collect();
        let open = connections.open();
        let closed = open.iter().filter(|(_, c)| c.state == State::Closed);
        let closed: Vec<_> = closed.map(|(number, _)| *number).collect();
        assert_eq!(closed, [0]);
    }

    #[test]
    fn a_connection_waits_for_the_end_of_a_session() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let time = Duration::from_secs(60);
        let connections = Connections::new(1).wait_for_session(time);
        let (_client, server) = pair(&listener);
        let source = ip("192.0.2.1");
        let add = || connections.register(&server, source).unwrap().unwrap();
        let (first, second) = (add(), add());
        first.begin_session(time).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| second.begin_session(time));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waiting.is_finished());
            drop(first);
            waiting.join().unwrap().unwrap();
        });
        let brief = Connections::new(1).wait_for_session(Duration::from_millis(1));
        let add = || brief.register(&server, source).unwrap().unwrap();
        let (first, second) = (add(), add());
        first.begin_session(time).unwrap();
        let error = second.begin_session(time).unwrap_err();
        assert_eq!(error.kind(), Kind::Limit, "{error}");
    }

    #[test]
    fn pending_connections_take_no_session() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let pairs: Vec<_> = (0..3).map(|_| pair(&listener)).collect();
        let entries: Vec<_> = pairs
            .iter()
            .map(|pair| connections.register(&pair.1, ip("10.0.0.1")))
            .map(|entry| entry.unwrap().unwrap())
            .collect();
        entries[1].begin_session(Duration::from_secs(60)).unwrap();
        let error = entries[2].begin_session(Duration::ZERO).unwrap_err();
        assert!(error.to_string().contains("--max-clients"), "{error}");
        drop(entries);
        connections.drain(Duration::ZERO);
    }

    #[test]
    fn overdue_connections_are_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connections = Connections::new(1);
        let (client, server) = pair(&listener);
        let entry = connections.register(&server, ip("10.0.0.1"));
        let entry = entry.unwrap().unwrap();
        connections.close_overdue();
        assert!(!is_closed(&client));
        entry.begin_session(Duration::ZERO).unwrap();
        connections.close_overdue();
        assert!(is_closed(&client));
        let error = entry.begin_session(Duration::ZERO).unwrap_err();
        assert_eq!(error.kind(), Kind::Gone);
    }
}
