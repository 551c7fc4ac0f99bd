//! Compares `Messenger` with TCP and with the raw queue pair of `rperf`, in alternating rounds of
//! one run: round trips of 64 bytes, and streams of messages of 64 KiB and 1 MiB. Both ends run on
//! this host.
//!
//! ```text
//! messenger_bench RPERF DEVICE=ADDRESS…
//! MIB=128 messenger_bench target/release/rperf rxe0=10.99.0.1 siw0=10.98.0.1
//! ```
//!
//! `MIB` is the number of MiB of each stream.
//! `messenger_bench stream ADDRESS MESSAGE BUFFER DEPTH MIB` sends only a stream, without copying
//! if a message fits into a buffer. `messenger_bench trip ADDRESS TRIPS` only makes round trips.

mod rounds;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rounds::{ROUNDS, Rounds, megabytes_per_second, micros_per_trip, rperf, stream_bytes};

use messenger::{Messenger, MessengerOptions};
use rdmacm::Listener;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LIMIT: Duration = Duration::from_secs(20);
/// Default number of round trips.
const TRIPS: u32 = 5000;
const SMALL: usize = 64;

/// A stream of messages: their length, and the length and number of the messenger's buffers. All
/// buffers together should fit into the cache of the processor.
struct Stream {
    name: &'static str,
    message: u32,
    buffer: u32,
    depth: u16,
    is_copied: bool,
}

const STREAMS: [Stream; 4] = [
    Stream {
        name: "64 KiB",
        message: 64 << 10,
        buffer: 64 << 10,
        depth: 16,
        is_copied: false,
    },
    Stream {
        name: "1 MiB",
        message: 1 << 20,
        buffer: 1 << 20,
        depth: 2,
        is_copied: false,
    },
    Stream {
        name: "1 MiB, copied",
        message: 1 << 20,
        buffer: 1 << 20,
        depth: 2,
        is_copied: true,
    },
    Stream {
        name: "1 MiB, copied, in fragments of 256 KiB",
        message: 1 << 20,
        buffer: 256 << 10,
        depth: 8,
        is_copied: true,
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
            };
            let bytes = mib.parse::<u64>()? << 20;
            let speed = messenger_stream(address.parse()?, &stream, bytes)?;
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
    let [program, devices @ ..] = &args[..] else {
        return Err("expected arguments: RPERF DEVICE=ADDRESS…".into());
    };
    let bytes = stream_bytes();
    rounds::print_header("Messenger");
    for device in devices {
        let (device, address) = device.split_once('=').ok_or("expected DEVICE=ADDRESS")?;
        let ip: IpAddr = address.parse()?;
        let mut trips = Rounds::default();
        let mut streams = STREAMS.each_ref().map(|_| Rounds::default());
        for round in 0..ROUNDS {
            trips.add(round, |at| match at {
                0 => tcp_trip(ip),
                1 => Ok(2e-3 * rperf(program, device, "rc_lat", SMALL, &[])?),
                2 => Ok(f64::NAN),
                _ => messenger_trip(ip, TRIPS),
            })?;
            for (stream, rounds) in STREAMS.iter().zip(&mut streams) {
                let raw = |options: &[&str]| {
                    rperf(program, device, "rc_bw", stream.message as usize, options)
                };
                rounds.add(round, |at| match at {
                    0 => tcp_stream(ip, stream, bytes),
                    1 => Ok(raw(&[])? / 1e6),
                    2 => Ok(raw(&["--access-received", "on"])? / 1e6),
                    _ => messenger_stream(ip, stream, bytes),
                })?;
            }
        }
        trips.print(device, "round trip of 64 bytes, µs");
        for (stream, rounds) in STREAMS.iter().zip(&streams) {
            rounds.print(device, &format!("stream of {}, MB/s", stream.name));
        }
    }
    Ok(())
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

fn tcp_stream(ip: IpAddr, stream: &Stream, bytes: u64) -> Result<f64> {
    let (len, count) = (stream.message as usize, bytes / u64::from(stream.message));
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
    Ok(megabytes_per_second(bytes, started))
}

fn messengers(ip: IpAddr, options: &MessengerOptions<'_>) -> Result<(Messenger, Messenger)> {
    let listener = Listener::bind(SocketAddr::new(ip, 0), 1)?;
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(|| Messenger::connect(address, options, LIMIT));
        let request = listener.next_request(Some(LIMIT))?.ok_or("no request")?;
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

fn messenger_stream(ip: IpAddr, stream: &Stream, bytes: u64) -> Result<f64> {
    let (len, count) = (stream.message as usize, bytes / u64::from(stream.message));
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
    let message = vec![7; len];
    for _ in 0..count {
        if stream.is_copied {
            client.send(&message, LIMIT)?;
        } else {
            let buffer = client.buffer(LIMIT)?;
            client.send_buffer(buffer, LIMIT)?;
        }
    }
    client.flush(LIMIT)?;
    let result = megabytes_per_second(bytes, started);
    client.shutdown(LIMIT)?;
    reader.join().map_err(|_| "the reader failed")?;
    Ok(result)
}
