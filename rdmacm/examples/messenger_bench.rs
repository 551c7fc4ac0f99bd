//! Compares `Messenger` with TCP and with the raw queue pair of `rperf`, in one run: round trips of
//! 64 bytes, and streams of messages of 64 KiB and 1 MiB. Both ends run on this host.
//!
//! ```text
//! messenger_bench RPERF DEVICE=ADDRESS…
//! messenger_bench target/release/rperf rxe0=10.99.0.1 siw0=10.98.0.1
//! ```
//!
//! `messenger_bench stream ADDRESS MESSAGE BUFFER DEPTH MIB` sends only a stream, without copying
//! if a message fits into a buffer. `messenger_bench trip ADDRESS TRIPS` only makes round trips.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Listener, Messenger, MessengerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LIMIT: Duration = Duration::from_secs(20);
const ROUNDS: usize = 7;
/// Default number of round trips.
const TRIPS: u32 = 5000;
const SMALL: usize = 64;
const STREAM: u64 = 512 << 20;

/// A stream of messages: their length, and the length and number of the messenger's buffers. All
/// buffers together should fit into the cache of the processor.
struct Stream {
    name: &'static str,
    message: u32,
    buffer: u32,
    depth: u16,
    is_copied: bool,
    bytes: u64,
}

const STREAMS: [Stream; 4] = [
    Stream {
        name: "64 KiB",
        message: 64 << 10,
        buffer: 64 << 10,
        depth: 16,
        is_copied: false,
        bytes: STREAM,
    },
    Stream {
        name: "1 MiB",
        message: 1 << 20,
        buffer: 1 << 20,
        depth: 2,
        is_copied: false,
        bytes: STREAM,
    },
    Stream {
        name: "1 MiB, copied",
        message: 1 << 20,
        buffer: 1 << 20,
        depth: 2,
        is_copied: true,
        bytes: STREAM,
    },
    Stream {
        name: "1 MiB, copied, in fragments of 256 KiB",
        message: 1 << 20,
        buffer: 256 << 10,
        depth: 8,
        is_copied: true,
        bytes: STREAM,
    },
];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [command, address, message, buffer, depth, mib] = &args[..] {
        if command == "stream" {
            let stream = Stream {
                name: "",
                message: message.parse()?,
                buffer: buffer.parse()?,
                depth: depth.parse()?,
                is_copied: message.parse::<u32>()? > buffer.parse()?,
                bytes: mib.parse::<u64>()? << 20,
            };
            let speed = messenger_stream(address.parse()?, &stream)?;
            println!("{speed:.1} MB/s");
            return Ok(());
        }
    }
    if let [command, address, trips] = &args[..] {
        if command == "trip" {
            let micros = messenger_trip(address.parse()?, trips.parse()?)?;
            println!("{micros:.2} us");
            return Ok(());
        }
    }
    let [rperf, devices @ ..] = &args[..] else {
        return Err("expected arguments: RPERF DEVICE=ADDRESS…".into());
    };
    println!(
        "| device | | TCP | rperf | rperf, own buffers | Messenger | / TCP | / rperf | / own buffers |"
    );
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for device in devices {
        let (device, address) = device.split_once('=').ok_or("expected DEVICE=ADDRESS")?;
        let ip: IpAddr = address.parse()?;
        let rperf = |test, size, options: &[&str]| run_rperf(rperf, device, test, size, options);
        let mut trips = Vec::new();
        let mut streams = STREAMS.each_ref().map(|_| Vec::new());
        for _ in 0..ROUNDS {
            let raw = 2e-3 * rperf("rc_lat", SMALL, &[])?;
            trips.push([tcp_trip(ip)?, raw, f64::NAN, messenger_trip(ip, TRIPS)?]);
            for (stream, rounds) in STREAMS.iter().zip(&mut streams) {
                let size = stream.message as usize;
                rounds.push([
                    tcp_stream(ip, stream)?,
                    rperf("rc_bw", size, &[])? / 1e6,
                    rperf("rc_bw", size, &["--access-received", "on"])? / 1e6,
                    messenger_stream(ip, stream)?,
                ]);
            }
        }
        print_row(device, "round trip of 64 bytes, µs", &trips);
        for (stream, rounds) in STREAMS.iter().zip(&streams) {
            print_row(device, &format!("stream of {}, MB/s", stream.name), rounds);
        }
    }
    Ok(())
}

/// Prints the medians of the rounds, and the medians of the ratios within a round with the smallest
/// and the largest one.
fn print_row(device: &str, test: &str, rounds: &[[f64; 4]]) {
    let sorted = |value: &dyn Fn(&[f64; 4]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        (
            values[values.len() / 2],
            values[0],
            values[values.len() - 1],
        )
    };
    print!("| {device} | {test} |");
    for at in 0..4 {
        match sorted(&|round| round[at]).0 {
            median if median.is_nan() => print!(" – |"),
            median => print!(" {median:.1} |"),
        }
    }
    for at in 0..3 {
        match sorted(&|round| round[3] / round[at]) {
            (median, ..) if median.is_nan() => print!(" – |"),
            (median, least, most) => print!(" {median:.2} ({least:.2}..{most:.2}) |"),
        }
    }
    println!();
}

/// Returns the latency in nanoseconds or the bandwidth in bytes per second of a test of rperf.
fn run_rperf(rperf: &str, device: &str, test: &str, size: usize, options: &[&str]) -> Result<f64> {
    let size = size.to_string();
    let output = Command::new(rperf)
        .args(["--id", device, "-m", &size, "-t", "500ms", "--json", test])
        .args(options)
        .output()?;
    let json = String::from_utf8(output.stdout)?;
    let key = if test == "rc_lat" {
        "\"latency\": "
    } else {
        "\"bandwidth\": "
    };
    let summary = json.split_once("\"summary\"").ok_or("rperf failed")?.1;
    let value = summary.split_once(key).ok_or("no result of rperf")?.1;
    let end = value.find([',', '\n', '}']).ok_or("no result of rperf")?;
    Ok(value[..end].trim().parse()?)
}

fn micros_per_trip(started: Instant, trips: u32) -> f64 {
    started.elapsed().as_secs_f64() * 1e6 / f64::from(trips)
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn megabytes_per_second(bytes: u64, started: Instant) -> f64 {
    bytes as f64 / 1e6 / started.elapsed().as_secs_f64()
}

fn tcp_pair(ip: IpAddr) -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(SocketAddr::new(ip, 0))?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    Ok((client, server))
}

fn tcp_trip(ip: IpAddr) -> Result<f64> {
    let (mut client, mut server) = tcp_pair(ip)?;
    let echo = thread::spawn(move || {
        let mut buffer = [0; SMALL];
        while server.read_exact(&mut buffer).is_ok() {
            server.write_all(&buffer).expect("echo");
        }
    });
    let mut buffer = [7; SMALL];
    let started = Instant::now();
    for _ in 0..TRIPS {
        client.write_all(&buffer)?;
        client.read_exact(&mut buffer)?;
    }
    let result = micros_per_trip(started, TRIPS);
    drop(client);
    echo.join().map_err(|_| "the echo thread failed")?;
    Ok(result)
}

fn tcp_stream(ip: IpAddr, stream: &Stream) -> Result<f64> {
    let (len, count) = (
        stream.message as usize,
        stream.bytes / u64::from(stream.message),
    );
    let (mut client, mut server) = tcp_pair(ip)?;
    let started = Instant::now();
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; len];
        for _ in 0..count {
            server.read_exact(&mut buffer).expect("read");
        }
    });
    let buffer = vec![7; len];
    for _ in 0..count {
        client.write_all(&buffer)?;
    }
    reader.join().map_err(|_| "the reader failed")?;
    Ok(megabytes_per_second(stream.bytes, started))
}

fn messengers(ip: IpAddr, options: &MessengerOptions<'_>) -> Result<(Messenger, Messenger)> {
    let listener = Listener::bind(SocketAddr::new(ip, 0), 1)?;
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(|| Messenger::connect(address, options, LIMIT));
        let request = listener.accept(Some(LIMIT))?.ok_or("no request")?;
        let server = Messenger::accept(request, options, LIMIT)?;
        let client = client.join().map_err(|_| "the client failed")??;
        Ok((client, server))
    })
}

fn messenger_trip(ip: IpAddr, trips: u32) -> Result<f64> {
    let (mut client, mut server) = messengers(ip, &MessengerOptions::new())?;
    let echo = thread::spawn(move || {
        while let Some(message) = server.recv(LIMIT).expect("receive") {
            server.send(&message, LIMIT).expect("send");
        }
    });
    let started = Instant::now();
    for _ in 0..trips {
        client.send(&[7; SMALL], LIMIT)?;
        client.recv(LIMIT)?.ok_or("the server ended")?;
    }
    let result = micros_per_trip(started, trips);
    client.shutdown(LIMIT)?;
    echo.join().map_err(|_| "the echo thread failed")?;
    Ok(result)
}

fn messenger_stream(ip: IpAddr, stream: &Stream) -> Result<f64> {
    let (len, count) = (
        stream.message as usize,
        stream.bytes / u64::from(stream.message),
    );
    let options = MessengerOptions::new()
        .buffer_len(stream.buffer as usize)
        .depth(stream.depth);
    let (mut client, mut server) = messengers(ip, &options)?;
    let started = Instant::now();
    let reader = thread::spawn(move || {
        let mut received = 0;
        while let Some(message) = server.recv(LIMIT).expect("receive") {
            assert_eq!(message.len(), len);
            received += 1;
        }
        assert_eq!(received, count);
    });
    let bytes = vec![7; len];
    for _ in 0..count {
        if stream.is_copied {
            client.send(&bytes, LIMIT)?;
        } else {
            let buffer = client.buffer(LIMIT)?;
            client.send_buffer(buffer, LIMIT)?;
        }
    }
    client.flush(LIMIT)?;
    let result = megabytes_per_second(stream.bytes, started);
    client.shutdown(LIMIT)?;
    reader.join().map_err(|_| "the reader failed")?;
    Ok(result)
}
