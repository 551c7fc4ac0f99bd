//! Sends datagrams to a multicast group, or receives them. Both interoperate with `mckey` of
//! librdmacm.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts with their addresses, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe
//! netdev eth0`):
//!
//! ```text
//! host1$ mc_chat recv 239.1.2.3 10.0.0.1         $ mc_chat recv 239.1.2.3 10.0.0.1 &
//! host2$ mc_chat send 239.1.2.3 10.0.0.2 hello   $ mc_chat send 239.1.2.3 10.0.0.1 hello
//! ```

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ibverbs::{CqOptions, Direction, GRH_LEN, QpOptions, Ud, wr};
use rdmacm::Resolver;
use rdmacm::datagram::multicast::JoinAs;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Number of datagrams, and their size in bytes: the defaults of `mckey`.
const DATAGRAMS: usize = 10;
const SIZE: usize = 100;
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
        ["recv", group, local] => chat(parse(group)?, parse(local)?, None),
        ["send", group, local, text] => chat(parse(group)?, parse(local)?, Some(text)),
        _ => Err("expected arguments: recv GROUP ADDRESS, or send GROUP ADDRESS TEXT".into()),
    }
}

fn parse(address: &str) -> Result<IpAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected an IP address, such as 239.1.2.3").into())
}

/// Sends `text`, or receives if there is none.
fn chat(group: IpAddr, local: IpAddr, text: Option<&str>) -> Result<()> {
    let group = Resolver::new(SocketAddr::new(group, 0))
        .source(local)
        .timeout(TIMEOUT)
        .join(JoinAs::FULL_MEMBER)?;
    let context = group.context()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let mut qp = pd.create_qp::<Ud>(&cq, &cq, QpOptions::default())?;
    group.start_qp(&mut qp)?;
    println!("joined {} over {}", group.gid(), group.device_name());

    let pool = pd.pool(DATAGRAMS, GRH_LEN + SIZE)?;
    if let Some(text) = text {
        let destination = group.destination(&mut qp)?;
        let qp_num = qp.qp_num().0;
        for number in 1..=DATAGRAMS {
            let mut buf = pool.take().ok_or("the pool is empty")?;
            let text = format!("{text} {number}");
            let len = text.len().min(SIZE);
            buf.fill(0);
            buf[..len].copy_from_slice(&text.as_bytes()[..len]);
            buf.set_len(SIZE);
            // The programs of librdmacm send the number of their queue pair as immediate data.
            qp.post_send(wr::send_with_imm(buf, qp_num).to(destination))?;
        }
    } else {
        while let Some(buf) = pool.take() {
            qp.post_recv(wr::recv(buf))?;
        }
        group.attach(&mut qp)?;
        println!("listening");
    }

    let (mut completed, mut last) = (0, Instant::now());
    while completed < DATAGRAMS {
        for completion in cq.poll()? {
            last = Instant::now();
            completed += 1;
            let retired = qp.retire(completion)?;
            retired.check()?;
            if retired.direction() == Direction::Recv {
                // The device writes a global route header (GRH) in front of each datagram.
                let buf = retired.into_buf().ok_or("a receive had no buffer")?;
                let text = buf[GRH_LEN..].split(|byte| *byte == 0).next();
                println!("{}", String::from_utf8_lossy(text.unwrap_or_default()));
                qp.post_recv(wr::recv(buf))?;
            }
        }
        if last.elapsed() > TIMEOUT {
            return Err(format!("{completed} of {DATAGRAMS} datagrams, then none for 10 s").into());
        }
        std::thread::yield_now(); // the peer may need this processor
    }
    if text.is_none() {
        group.detach(&mut qp)?;
    }
    Ok(group.leave()?)
}
