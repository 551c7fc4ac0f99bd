//! A receiver that sleeps until a completion arrives, instead of polling: it arms the completion
//! queue and waits for an event of its completion channel. It runs on InfiniBand, RoCE and iWARP.
//!
//! ```toml
//! [dependencies]
//! rdma-verbs = { git = "https://github.com/rdma-rs/rdma-rs" }
//! rdmacm = { git = "https://github.com/rdma-rs/rdma-rs" }
//! ```
//!
//! On two hosts, and on one host with Soft-RoCE (`rdma link add rxe0 type rxe netdev eth0`), always
//! with the address of the receiver:
//!
//! ```text
//! host1$ completion_events recv 10.0.0.1:7471    $ completion_events recv 10.0.0.1:7471 &
//! host2$ completion_events send 10.0.0.1:7471    $ completion_events send 10.0.0.1:7471
//! ```

use std::net::SocketAddr;
use std::time::Duration;

use ibverbs::{CompletionChannel, CompletionQueue, CqOptions, QpOptions, Rc, wr};
use rdmacm::{ConnectParams, Listener, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Time limit of each step.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of messages, and the pause before each of them.
const MESSAGES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum message size in bytes.
const SIZE: usize = 256;

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
        ["recv", address] => receive(parse(address)?),
        ["send", address] => send(parse(address)?),
        _ => Err("expected arguments: recv|send ADDRESS:PORT".into()),
    }
}

fn parse(address: &str) -> Result<SocketAddr> {
    address
        .parse()
        .map_err(|_| format!("{address}: expected ADDRESS:PORT, such as 10.0.0.1:7471").into())
}

fn receive(address: SocketAddr) -> Result<()> {
    let listener = Listener::bind(address, 1)?;
    println!("listening on {}", listener.local_addr());
    let request = listener.next_request(None)?.ok_or("no client connected")?;

    let context = request.context()?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.create_cq(CqOptions::new().channel(&channel))?;
    let mut ready = request.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
    let pool = pd.pool(MESSAGES as usize, SIZE)?;
    while let Some(buf) = pool.take() {
        ready.qp_mut().post_recv(wr::recv(buf))?;
    }
    let mut connection = ready.accept(&ConnectParams::default(), TIMEOUT)?;

    let (mut received, mut sleeps) = (0, 0);
    while received < MESSAGES {
        for completion in cq.poll()? {
            let retired = connection.qp_mut().retire(completion)?;
            retired.check()?;
            received += 1;
            let message = retired.into_buf().ok_or("a receive had no buffer")?;
            println!("{}", String::from_utf8_lossy(&message));
            connection.qp_mut().post_recv(wr::recv(message))?;
        }
        if received < MESSAGES {
            sleep(&mut cq, &channel)?;
            sleeps += 1;
        }
    }
    println!("{received} messages, slept {sleeps} times");
    Ok(())
}

/// Sleeps until the completion queue has an entry.
///
/// For several queues on one channel, `CompletionChannel::wait` returns the identity of the queue.
/// The channel also is a file descriptor, for poll(2) and epoll(7).
fn sleep(cq: &mut CompletionQueue, channel: &CompletionChannel) -> Result<()> {
    // The next entry causes an event. An entry that was added before causes none, so poll again.
    cq.arm(false)?;
    if !cq.poll()?.is_empty() {
        return Ok(());
    }
    match channel.wait(Some(TIMEOUT))? {
        Some(_) => Ok(()),
        None => Err(format!("no message for {} s", TIMEOUT.as_secs()).into()),
    }
}

fn send(address: SocketAddr) -> Result<()> {
    let route = Resolver::new(address).timeout(TIMEOUT).resolve()?;
    let context = route.context()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(CqOptions::default())?;
    let ready = route.with_qp(pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?)?;
    let mut connection = ready.connect(&ConnectParams::default(), TIMEOUT)?;
    for number in 1..=MESSAGES {
        std::thread::sleep(PAUSE);
        let text = format!("message {number}");
        let mut message = pd.buf(text.len())?;
        message.copy_from_slice(text.as_bytes());
        connection.qp_mut().post_send(wr::send(message))?;
        for completion in cq.poll()? {
            connection.qp_mut().retire(completion)?.check()?;
        }
    }
    // The receiver disconnects when it has all messages.
    connection.wait_event(Some(TIMEOUT))?;
    Ok(())
}
