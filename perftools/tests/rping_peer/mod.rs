//! A peer of `ribping` and `rping` over rdma_cm that sends messages of its choice.
#![allow(dead_code, reason = "each test program uses only some of these")]

use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{Buf, CompletionQueue, Context, CqOptions, Direction, QpOptions, QueuePair, Rc, wr};
use rdmacm::{ConnectParams, Connecting, Connection, Listener, Resolver};
use test_support::hostile;

/// Longest time in which a peer must respond.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A peer that sends messages of its choice.
pub(crate) struct Peer {
    // Drop order: the connection before its queue.
    pub(crate) connection: Connection,
    cq: CompletionQueue,
}

fn create_qp(context: &Context) -> (QueuePair<Rc>, CompletionQueue) {
    let pd = context.alloc_pd().expect("protection domain");
    let cq = context.create_cq(CqOptions::new()).expect("queue");
    let qp = pd.create_qp(&cq, &cq, QpOptions::new()).expect("qp");
    (qp, cq)
}

fn post_recvs(qp: &mut QueuePair<Rc>) {
    for _ in 0..16 {
        let buf = qp.pd().buf(64).expect("memory");
        qp.post_recv(wr::recv(buf)).expect("receive");
    }
}

impl Peer {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        Self::try_connect(to).expect("a server")
    }

    /// Connects; returns `None` if the server rejects the connection or does not respond.
    pub(crate) fn try_connect(to: SocketAddr) -> Option<Self> {
        let route = Resolver::new(to).timeout(LIMIT).resolve().expect("resolve");
        let (qp, cq) = create_qp(&route.context().expect("open"));
        let mut ready = route.with_qp(qp).expect("INIT");
        post_recvs(ready.qp_mut());
        let connection = ready.connect(&ConnectParams::default(), LIMIT).ok()?;
        Some(Self { connection, cq })
    }

    /// Requests a connection without completing its handshake.
    pub(crate) fn begin(from: IpAddr, to: SocketAddr) -> Option<(Connecting, CompletionQueue)> {
        let resolver = Resolver::new(to).source(from).timeout(LIMIT);
        let route = resolver.resolve().ok()?;
        let (qp, cq) = create_qp(&route.context().ok()?);
        let ready = route.with_qp(qp).ok()?;
        Some((ready.start(&ConnectParams::default()).ok()?, cq))
    }

    /// Accepts a client; returns `None` if it disappeared before it was connected.
    pub(crate) fn accept(listener: &Listener) -> Option<Self> {
        let request = listener.next_request(Some(LIMIT)).expect("a listener")?;
        let (qp, cq) = create_qp(&request.context().expect("open"));
        let mut ready = request.with_qp(qp).ok()?;
        post_recvs(ready.qp_mut());
        let connection = ready.accept(&ConnectParams::default(), LIMIT).ok()?;
        Some(Self { connection, cq })
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let qp = self.connection.qp_mut();
        let mut buf = qp.pd().buf(message.len()).expect("memory");
        buf.copy_from_slice(message);
        // The peer may have disconnected already.
        let _ = qp.post_send(wr::send(buf));
    }

    /// Takes all completions, and returns the number of messages that have arrived.
    fn retire(&mut self) -> usize {
        let mut received = 0;
        while let Some(completion) = self.cq.poll().expect("poll").next() {
            let retired = self.connection.qp_mut().retire(completion).expect("own");
            received += usize::from(retired.direction() == Direction::Recv);
        }
        received
    }

    /// Returns the next message, or `None` when the peer has disconnected.
    pub(crate) fn recv(&mut self) -> Option<Buf> {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            for completion in self.cq.poll().expect("poll") {
                let retired = self.connection.qp_mut().retire(completion).expect("own");
                if retired.direction() == Direction::Recv && retired.is_success() {
                    return retired.into_buf();
                }
            }
            if self.connection.is_disconnected() {
                return None;
            }
            let _ = self.connection.try_event().expect("an event");
            thread::sleep(Duration::from_millis(1));
        }
        panic!("neither a message nor a disconnect in time");
    }
}

impl hostile::Connection for Peer {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            self.retire();
            let qp = self.connection.qp_mut();
            if qp.send_slots_free() > 0 {
                let mut buf = qp.pd().buf(bytes.len().max(1)).map_err(io::Error::other)?;
                buf.set_len(bytes.len());
                buf.copy_from_slice(bytes);
                let posted = qp.post_send(wr::send(buf));
                return posted.map_err(|_| ErrorKind::BrokenPipe.into());
            }
            if begin.elapsed() > hostile::ROOM {
                return Err(ErrorKind::WouldBlock.into());
            }
            thread::yield_now();
        }
    }

    fn receive(&mut self, time: Duration) -> io::Result<()> {
        let begin = Instant::now();
        loop {
            for _ in 0..self.retire() {
                let qp = self.connection.qp_mut();
                let buf = qp.pd().buf(64).map_err(io::Error::other)?;
                let posted = qp.post_recv(wr::recv(buf));
                posted.map_err(|_| io::Error::from(ErrorKind::BrokenPipe))?;
            }
            let _ = self.connection.try_event();
            if self.connection.is_disconnected() {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            if begin.elapsed() >= time {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}
