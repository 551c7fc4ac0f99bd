//! Exchanges unreliable datagrams with a service that rdma_cm resolves by IP address. Client and
//! server interoperate with `udaddy` of librdmacm: the client sends some datagrams, and the server
//! sends as many back. Each carries the number of its queue pair as immediate data.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the server:
//!
//! ```text
//! host1$ ud_chat serve 10.0.0.1:7174          $ ud_chat serve 10.0.0.1:7174 &
//! host2$ ud_chat send 10.0.0.1:7174 hello     $ ud_chat send 10.0.0.1:7174 hello
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ibverbs::wr::Destination;
use ibverbs::{
    Buf, CompletionQueue, Context, CqOptions, Direction, GRH_LEN, Pool, ProtectionDomain, Qkey,
    QpOptions, Qpn, QueuePair, Ud, UdSource, wr,
};
use rdmacm::{ListenOptions, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of datagrams in each direction, and their size in bytes: the defaults of `udaddy`.
const DATAGRAMS: u32 = 10;
const SIZE: usize = 100;
/// The Q_Key of port space UDP (`RDMA_UDP_QKEY` in `rdma/rdma_cma.h`).
const UDP_QKEY: Qkey = Qkey(0x0123_4567);
/// Time without any completion after which the program fails.
const TIMEOUT: Duration = Duration::from_secs(10);

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["serve", address] => serve(parse(address)?),
        ["send", address, text] => send(parse(address)?, text),
        _ => Err("expected arguments: serve ADDRESS:PORT, or send ADDRESS:PORT TEXT".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7174").into())
}

fn send(server: SocketAddr, text: &str) -> Result<()> {
    let route = Resolver::new(server).timeout(TIMEOUT).resolve_datagram()?;
    let mut socket = Socket::new(&route.context()?)?;
    route.start_qp(&mut socket.qp)?;
    socket.post_receives()?;
    let service = route.query(b"", TIMEOUT)?;
    let destination = service.address.destination(&mut socket.qp)?;
    for number in 1..=DATAGRAMS {
        socket.send(&format!("{text} {number}"), destination)?;
    }
    for _ in 0..DATAGRAMS {
        println!("{}", socket.recv()?.text);
    }
    Ok(())
}

/// Serves one client.
fn serve(address: SocketAddr) -> Result<()> {
    let listener = ListenOptions::new().bind_datagram(address)?;
    println!("listening on {}", listener.local_addr());
    let request = listener.next_request(None)?.ok_or("no request arrived")?;
    let port_num = request.port_num();
    let mut socket = Socket::new(&request.context()?)?;
    request.start_qp(&mut socket.qp)?;
    socket.post_receives()?;
    request.accept(&socket.qp, b"")?;
    // Like udaddy, receive all datagrams before the first reply.
    let mut replies = Vec::new();
    for _ in 0..DATAGRAMS {
        let datagram = socket.recv()?;
        println!("{}", datagram.text);
        let address = socket
            .pd
            .create_ah_from_wc(port_num, &datagram.source, &datagram.buf)?;
        let destination = Destination {
            address: socket.qp.hold_address(&address)?,
            qpn: datagram.sender,
            qkey: UDP_QKEY,
        };
        replies.push((datagram.text.to_uppercase(), destination));
    }
    for (text, destination) in replies {
        socket.send(&text, destination)?;
    }
    socket.flush()
}

/// A datagram queue pair with its completion queue and its buffers.
struct Socket {
    qp: QueuePair<Ud>,
    cq: CompletionQueue,
    pd: ProtectionDomain,
    receives: Pool,
    sends: Pool,
}

/// A received datagram.
struct Datagram {
    /// The global route header (GRH), which contains the sender's address, and the payload.
    buf: Buf,
    source: UdSource,
    /// Queue pair of the sender, from the immediate data.
    sender: Qpn,
    text: String,
}

impl Socket {
    fn new(context: &Context) -> Result<Self> {
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(CqOptions::default())?;
        let qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
        let receives = pd.pool(DATAGRAMS as usize, GRH_LEN + SIZE)?;
        let sends = pd.pool(DATAGRAMS as usize, SIZE)?;
        Ok(Self {
            qp,
            cq,
            pd,
            receives,
            sends,
        })
    }

    /// Posts the free receive buffers.
    fn post_receives(&mut self) -> Result<()> {
        while let Some(buf) = self.receives.take() {
            self.qp.post_recv(wr::recv(buf))?;
        }
        Ok(())
    }

    /// Sends text, padded with zeros.
    fn send(&mut self, text: &str, destination: Destination) -> Result<()> {
        let mut buf = self.sends.take().ok_or("all send buffers are in flight")?;
        buf.fill(0);
        let len = text.len().min(SIZE);
        buf[..len].copy_from_slice(&text.as_bytes()[..len]);
        let qp_num = self.qp.qp_num().0;
        Ok(self
            .qp
            .post_send(wr::send_with_imm(buf, qp_num).to(destination))?)
    }

    /// Waits for the next datagram.
    fn recv(&mut self) -> Result<Datagram> {
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            if let Some(completion) = self.cq.poll()?.next() {
                let source = completion.source();
                let retired = self.qp.retire(completion)?;
                retired.check()?;
                if retired.direction() == Direction::Send {
                    continue; // dropping `retired` returns its buffer to the pool
                }
                let sender = retired
                    .imm_data()
                    .ok_or("a datagram had no immediate data")?;
                let buf = retired.into_buf().ok_or("a receive had no buffer")?;
                self.post_receives()?;
                let payload = buf[GRH_LEN..].split(|byte| *byte == 0).next();
                let text = String::from_utf8_lossy(payload.unwrap_or_default()).into_owned();
                return Ok(Datagram {
                    buf,
                    source,
                    sender: Qpn(sender),
                    text,
                });
            }
            std::thread::yield_now(); // the peer may need this processor
        }
        Err(format!("no datagram for {} s", TIMEOUT.as_secs()).into())
    }

    /// Waits until all datagrams are sent.
    fn flush(&mut self) -> Result<()> {
        let start = Instant::now();
        while self.sends.available() < DATAGRAMS as usize {
            for completion in self.cq.poll()? {
                self.qp.retire(completion)?.check()?;
            }
            if start.elapsed() > TIMEOUT {
                return Err("the last datagrams were not sent".into());
            }
        }
        Ok(())
    }
}
