//! Compares the byte stream of `AsyncMessenger` with TCP on tokio and with the raw queue pair of
//! `rperf`, in alternating rounds of one run: round trips of 64 bytes, and streams that are written
//! in pieces of 64 KiB and 1 MiB. Both ends run on this host, in threads of their own.
//!
//! ```text
//! stream_bench RPERF DEVICE=ADDRESS…
//! MIB=128 stream_bench target/release/rperf rxe0=10.99.0.1 siw0=10.98.0.1
//! ```
//!
//! `MIB` is the number of MiB of each stream. `stream_bench trip ADDRESS` only makes round trips,
//! and `stream_bench stream ADDRESS WRITE BUFFER DEPTH COPIES` sends only one stream of messengers.
//! `COPIES` is the number of times that the program copies each byte: 2 with `AsyncWrite` and
//! `AsyncRead`, 1 with `AsyncWrite` and `AsyncBufRead`, 0 with `send_buffer` and `AsyncBufRead`.

mod rounds;

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Instant;

use messenger::{AsyncMessenger, MessengerOptions};
use rdmacm::{AsyncListener, Listener};
use rounds::{ROUNDS, Rounds, megabytes_per_second, micros_per_trip, rperf, stream_bytes};
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt,
};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Number of round trips.
const TRIPS: u32 = 3000;
const SMALL: usize = 64;
/// Lengths of the writes and reads of a stream, of the buffers of the messenger, their number, and
/// the number of copies.
const STREAMS: [(usize, usize, u16, u8); 5] = [
    (64 << 10, 64 << 10, 8, 2),
    (64 << 10, 64 << 10, 8, 0),
    (1 << 20, 128 << 10, 8, 2),
    (1 << 20, 1 << 20, 2, 1),
    (1 << 20, 1 << 20, 2, 0),
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, address, len, buffer_len, depth, copies] = &args[..] {
        if command == "stream" {
            let options = MessengerOptions::new()
                .buffer_len(buffer_len.parse()?)
                .depth(depth.parse()?);
            let (ip, len, copies) = (address.parse()?, len.parse()?, copies.parse()?);
            let speed = messenger_stream(ip, options, len, copies, stream_bytes())?;
            println!("{speed:.1} MB/s");
            return Ok(());
        }
    }
    if let [command, address] = &args[..] {
        if command == "trip" {
            println!("{:.2} µs", messenger_trip(address.parse()?)?);
            return Ok(());
        }
    }
    let [program, devices @ ..] = &args[..] else {
        return Err("expected arguments: RPERF DEVICE=ADDRESS…".into());
    };
    let bytes = stream_bytes();
    rounds::print_header("AsyncMessenger");
    for device in devices {
        let (device, address) = device.split_once('=').ok_or("expected DEVICE=ADDRESS")?;
        let ip: IpAddr = address.parse()?;
        let raw = |test, size, options: &[&str]| {
            rperf(program, device, test, size, options).map_err(|error| error.to_string())
        };
        let mut trips = Rounds::default();
        let mut streams = STREAMS.map(|_| Rounds::default());
        for round in 0..ROUNDS {
            trips.add(round, |at| match at {
                0 => tcp_trip(ip),
                1 => Ok(2e-3 * raw("rc_lat", SMALL, &[])?),
                2 => Ok(f64::NAN),
                _ => messenger_trip(ip),
            })?;
            for ((len, buffer_len, depth, copies), rounds) in STREAMS.iter().zip(&mut streams) {
                let options = MessengerOptions::new()
                    .buffer_len(*buffer_len)
                    .depth(*depth);
                rounds.add(round, |at| match at {
                    0 => tcp_stream(ip, *len, bytes),
                    1 => Ok(raw("rc_bw", *len, &[])? / 1e6),
                    2 => Ok(raw("rc_bw", *len, &["--access-received", "on"])? / 1e6),
                    _ => messenger_stream(ip, options, *len, *copies, bytes),
                })?;
            }
        }
        trips.print(device, "round trip of 64 bytes, µs");
        for ((len, buffer_len, _, copies), rounds) in STREAMS.iter().zip(&streams) {
            let (len, buffer_len) = (len >> 10, buffer_len >> 10);
            let name = format!("{len} KiB in buffers of {buffer_len} KiB, {copies} copies, MB/s");
            rounds.print(device, &name);
        }
    }
    Ok(())
}

/// Returns a runtime of this thread alone, because the two ends are in threads of their own.
fn runtime() -> Result<Runtime> {
    Ok(Builder::new_current_thread().enable_io().build()?)
}

/// Runs `client` on this thread and `server` on another one, each with a runtime of its own.
fn run<R>(
    client: impl Future<Output = Result<R>>,
    server: impl Future<Output = Result<()>> + Send + 'static,
) -> Result<R> {
    let server = thread::spawn(move || runtime()?.block_on(server));
    let result = runtime()?.block_on(client)?;
    server.join().map_err(|_| "the server failed")??;
    Ok(result)
}

async fn echo(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<()> {
    let mut buffer = [0; SMALL];
    while stream.read_exact(&mut buffer).await.is_ok() {
        stream.write_all(&buffer).await?;
    }
    Ok(())
}

async fn make_trips(mut stream: impl AsyncRead + AsyncWrite + Unpin) -> Result<f64> {
    let mut buffer = [7; SMALL];
    let began = Instant::now();
    for _ in 0..TRIPS {
        stream.write_all(&buffer).await?;
        stream.read_exact(&mut buffer).await?;
    }
    let micros = micros_per_trip(began, TRIPS);
    stream.shutdown().await?;
    Ok(micros)
}

/// Reads a stream to its end, and then ends the other direction.
async fn drain(mut stream: impl AsyncRead + AsyncWrite + Unpin, len: usize) -> Result<()> {
    let mut buffer = vec![0; len];
    while stream.read(&mut buffer).await? > 0 {}
    Ok(stream.shutdown().await?)
}

/// Does the same without copying the bytes.
async fn drain_buffers(mut stream: impl AsyncBufRead + AsyncWrite + Unpin) -> Result<()> {
    loop {
        let len = stream.fill_buf().await?.len();
        if len == 0 {
            return Ok(stream.shutdown().await?);
        }
        stream.consume(len);
    }
}

/// Writes a stream and awaits that the peer has read it. Returns MB/s.
async fn fill(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    len: usize,
    bytes: u64,
) -> Result<f64> {
    let buffer = vec![7; len];
    let began = Instant::now();
    for _ in 0..bytes / len as u64 {
        stream.write_all(&buffer).await?;
    }
    finish(stream, bytes, began).await
}

/// Does the same with buffers of the messenger, without copying the bytes.
async fn fill_buffers(mut messenger: AsyncMessenger, bytes: u64) -> Result<f64> {
    let began = Instant::now();
    let mut left = bytes;
    while left > 0 {
        let mut buffer = messenger.buffer().await?;
        buffer.truncate(usize::try_from(left)?);
        left -= buffer.len() as u64;
        messenger.send_buffer(buffer).await?;
    }
    finish(messenger, bytes, began).await
}

/// Ends a stream and awaits that the peer has read it. Returns MB/s.
async fn finish(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    bytes: u64,
    began: Instant,
) -> Result<f64> {
    stream.shutdown().await?;
    while stream.read(&mut [0]).await? > 0 {}
    Ok(megabytes_per_second(bytes, began))
}

/// Returns both ends of a TCP connection. Each end belongs to the runtime that awaits it.
fn tcp_pair(
    ip: IpAddr,
) -> Result<(
    impl Future<Output = Result<TcpStream>>,
    impl Future<Output = Result<TcpStream>> + Send + 'static,
)> {
    let listener = std::net::TcpListener::bind(SocketAddr::new(ip, 0))?;
    let address = listener.local_addr()?;
    listener.set_nonblocking(true)?;
    let client = async move {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    let server = async move {
        let (stream, _) = TcpListener::from_std(listener)?.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    };
    Ok((client, server))
}

fn tcp_trip(ip: IpAddr) -> Result<f64> {
    let (client, server) = tcp_pair(ip)?;
    run(async { make_trips(client.await?).await }, async {
        echo(server.await?).await
    })
}

fn tcp_stream(ip: IpAddr, len: usize, bytes: u64) -> Result<f64> {
    let (client, server) = tcp_pair(ip)?;
    run(
        async { fill(client.await?, len, bytes).await },
        async move { drain(server.await?, len).await },
    )
}

/// Returns both ends of a connection of messengers.
fn messenger_pair(
    ip: IpAddr,
    options: MessengerOptions<'static>,
) -> Result<(
    impl Future<Output = Result<AsyncMessenger>>,
    impl Future<Output = Result<AsyncMessenger>> + Send + 'static,
)> {
    let listener = Listener::bind(SocketAddr::new(ip, 0), 1)?;
    let address = listener.local_addr();
    let client = async move { Ok(AsyncMessenger::connect(address, &options).await?) };
    let server = async move {
        let request = AsyncListener::new(listener)?.next_request().await?;
        Ok(AsyncMessenger::accept(request, &options).await?)
    };
    Ok((client, server))
}

fn messenger_trip(ip: IpAddr) -> Result<f64> {
    let (client, server) = messenger_pair(ip, MessengerOptions::new())?;
    run(async { make_trips(client.await?).await }, async {
        echo(server.await?).await
    })
}

fn messenger_stream(
    ip: IpAddr,
    options: MessengerOptions<'static>,
    len: usize,
    copies: u8,
    bytes: u64,
) -> Result<f64> {
    let (client, server) = messenger_pair(ip, options)?;
    run(
        async {
            match copies {
                0 => fill_buffers(client.await?, bytes).await,
                _ => fill(client.await?, len, bytes).await,
            }
        },
        async move {
            match copies {
                0 | 1 => drain_buffers(server.await?).await,
                _ => drain(server.await?, len).await,
            }
        },
    )
}
