//! Ping-pong over a reliable connection, with the options of the example `rc_pingpong` of the crate
//! `sideway`. It is a port of that program: docs/comparison.md compares both.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! clap = { version = "4", features = ["derive"] }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`):
//!
//! ```text
//! host1$ sideway_rc_pingpong -d mlx5_0 -g 3           $ sideway_rc_pingpong -d rxe0 -g 1 &
//! host2$ sideway_rc_pingpong -d mlx5_0 -g 3 10.0.0.1  $ sideway_rc_pingpong -d rxe0 -g 1 127.0.0.1
//! ```

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use clap::Parser;
use ibverbs::cq_ex::{CompletionQueueEx, CqFields, Enabled};
use ibverbs::{
    Completion, CompletionQueue, CqOptions, Device, Direction, Endpoint, GidIndex, Mtu, Psn,
    QpOptions, QueuePair, Rc, RcPath, wr,
};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Args {
    /// TCP port for the exchange of addresses
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Device [default: the first one]
    #[arg(short = 'd', long)]
    ib_dev: Option<String>,
    /// Port of the device
    #[arg(short = 'i', long, default_value_t = 1)]
    ib_port: u8,
    /// Message size in bytes
    #[arg(short, long, default_value_t = 1024)]
    size: usize,
    /// Path MTU in bytes
    #[arg(short, long, default_value = "1024", value_parser = parse_mtu)]
    mtu: Mtu,
    /// Maximum number of posted receives
    #[arg(short, long, default_value_t = 500)]
    rx_depth: u32,
    /// Number of exchanges
    #[arg(short = 'n', long, default_value_t = 1000)]
    iter: u32,
    /// Service level
    #[arg(short = 'l', long, default_value_t = 0)]
    sl: u8,
    /// Index of the local GID
    #[arg(short, long, default_value_t = 0)]
    gid_idx: u8,
    /// Read the timestamps of completions
    #[arg(short, long)]
    ts: bool,
    /// IP address of the server; without it, run the server
    host: Option<IpAddr>,
}

fn parse_mtu(text: &str) -> std::result::Result<Mtu, &'static str> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or("expected 256, 512, 1024, 2048 or 4096")
}

/// A completion queue, with timestamps if they are read.
enum Queue {
    Plain(CompletionQueue),
    Stamped(CompletionQueueEx<CqFields<Enabled>>),
}

impl Queue {
    fn get(&self) -> &CompletionQueue {
        match self {
            Self::Plain(cq) => cq,
            Self::Stamped(cq) => cq,
        }
    }

    /// Polls once, and calls a function for each completion and its timestamp.
    fn poll(
        &mut self,
        mut each: impl FnMut(Completion<'_>, Option<u64>) -> Result<()>,
    ) -> Result<()> {
        match self {
            Self::Plain(cq) => cq.poll()?.try_for_each(|completion| each(completion, None)),
            Self::Stamped(cq) => cq.poll()?.try_for_each(|completion| {
                let timestamp = completion.timestamp();
                each(completion.into(), Some(timestamp))
            }),
        }
    }
}

/// Clock cycles between the completions of receives.
#[derive(Default)]
struct Deltas {
    /// The bits that a timestamp has.
    mask: u64,
    last: Option<u64>,
    cycles: Vec<u64>,
}

impl Deltas {
    fn add(&mut self, timestamp: u64) {
        if let Some(last) = self.last.replace(timestamp) {
            self.cycles.push(timestamp.wrapping_sub(last) & self.mask);
        }
    }
}

fn main() {
    if let Err(error) = run(&Args::parse()) {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run(args: &Args) -> Result<()> {
    let device = match &args.ib_dev {
        Some(name) => Device::by_name(name)?,
        None => Device::list()?.into_iter().next().ok_or("no device")?,
    };
    let context = device.open()?;
    let depth = args.rx_depth.min(args.iter);
    let options = CqOptions::new().depth(depth + 1);
    let mut deltas = Deltas::default();
    let mut cq = if args.ts {
        deltas.mask = context.query_device_ex()?.completion_timestamp_mask;
        Queue::Stamped(context.create_cq_ex(options, CqFields::new().timestamp())?)
    } else {
        Queue::Plain(context.create_cq(options)?)
    };
    let pd = context.alloc_pd()?;
    let options = QpOptions::new().max_send_wr(1).max_recv_wr(depth);
    let mut qp = pd.create_qp::<Rc>(cq.get(), cq.get(), options)?;
    let path = RcPath::new(args.ib_port, GidIndex(args.gid_idx), args.mtu)
        .psn(Psn::random())
        .sl(args.sl)
        .hop_limit(1)
        .timeout(12)
        .retry_cnt(7)
        .min_rnr_timer(0);
    qp.init(&path)?;
    // The content of the messages does not matter, so all use the same memory.
    let message = qp.hold(&pd.buf(args.size)?.freeze())?;
    let sink = qp.hold(&pd.sink(args.size)?)?;
    for _ in 0..depth {
        qp.post_recv(wr::recv(sink))?;
    }
    connect(&mut qp, &path, args)?;

    let start = Instant::now();
    let (mut sent, mut received, mut posted) = (0, 0, depth);
    if args.host.is_some() {
        qp.post_send(wr::send(message))?;
    }
    let mut is_sending = args.host.is_some();
    while sent < args.iter || received < args.iter {
        cq.poll(|completion, timestamp| {
            let retired = qp.retire(completion)?;
            retired.check()?;
            if retired.direction() == Direction::Send {
                sent += 1;
                is_sending = false;
            } else {
                received += 1;
                posted -= 1;
                if posted <= depth / 2 {
                    while posted < depth {
                        qp.post_recv(wr::recv(sink))?;
                        posted += 1;
                    }
                }
                if let Some(timestamp) = timestamp {
                    deltas.add(timestamp);
                }
            }
            if sent < args.iter && !is_sending {
                qp.post_send(wr::send(message))?;
                is_sending = true;
            }
            Ok(())
        })?;
    }
    report(args, start.elapsed(), &deltas.cycles);
    Ok(())
}

/// Exchanges endpoints with the peer over TCP, and connects.
fn connect(qp: &mut QueuePair<Rc>, path: &RcPath, args: &Args) -> Result<()> {
    let ours = qp.endpoint(path)?;
    println!(" local address: {ours}");
    let mut stream = match args.host {
        Some(ip) => TcpStream::connect((ip, args.port))?,
        None => {
            TcpListener::bind((Ipv6Addr::UNSPECIFIED, args.port))?
                .accept()?
                .0
        }
    };
    writeln!(stream, "{ours}")?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    let theirs: Endpoint = line.trim_end().parse()?;
    println!("remote address: {theirs}");
    Ok(qp.connect(path, &theirs)?)
}

#[allow(clippy::cast_precision_loss, reason = "a few digits are printed")]
fn report(args: &Args, time: Duration, cycles: &[u64]) {
    let (seconds, each) = (time.as_secs_f64(), time / args.iter);
    let bytes = args.size as u64 * u64::from(args.iter) * 2;
    let rate = bytes as f64 / seconds / 1_048_576.0;
    println!("{bytes} bytes in {seconds:.2} seconds = {rate:.2} MiB/s");
    let iterations = args.iter;
    println!("{iterations} iters in {seconds:.2} seconds = {each:.2?}/iter");
    if let (Some(max), Some(min)) = (cycles.iter().max(), cycles.iter().min()) {
        let average = cycles.iter().sum::<u64>() as f64 / cycles.len() as f64;
        println!("Max receive completion clock cycles = {max}");
        println!("Min receive completion clock cycles = {min}");
        println!("Average receive completion clock cycles = {average}");
    }
}
