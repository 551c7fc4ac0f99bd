//! Compares `Messenger` with TCP and with the raw queue pair of `rperf`, in one run: round trips of
//! 64 bytes, and a stream of messages of 1 MiB. Both ends run on this host.
//!
//! ```text
//! messenger_bench RPERF DEVICE=ADDRESS…
//! messenger_bench target/release/rperf rxe0=10.99.0.1 siw0=10.98.0.1
//! ```

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rdmacm::{Listener, Messenger, MessengerOptions};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LIMIT: Duration = Duration::from_secs(20);
const ROUNDS: usize = 5;
const TRIPS: u32 = 5000;
const SMALL: usize = 64;
const LARGE: usize = 1 << 20;
const MESSAGES: u32 = 500;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [rperf, devices @ ..] = &args[..] else {
        return Err("expected arguments: RPERF DEVICE=ADDRESS…".into());
    };
    println!("| device | | TCP | rperf | Messenger | copied | / TCP | / rperf | copied / rperf |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|---:|");
    for device in devices {
        let (device, address) = device.split_once('=').ok_or("expected DEVICE=ADDRESS")?;
        let ip: IpAddr = address.parse()?;
        let (mut trips, mut streams) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let rperf = |test, size: usize| run_rperf(rperf, device, test, size);
            let raw = 2e-3 * rperf("rc_lat", SMALL)?;
            trips.push([tcp_trip(ip)?, raw, messenger_trip(ip)?, f64::NAN]);
            streams.push([
                tcp_stream(ip)?,
                rperf("rc_bw", LARGE)? / 1e6,
                messenger_stream(ip, false)?,
                messenger_stream(ip, true)?,
            ]);
        }
        print_row(device, "round trip of 64 bytes, µs", &trips);
        print_row(device, "stream of 1 MiB, MB/s", &streams);
    }
    Ok(())
}

/// Prints the medians of the rounds, and the medians of the ratios within a round.
fn print_row(device: &str, test: &str, rounds: &[[f64; 4]]) {
    let median = |value: &dyn Fn(&[f64; 4]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let [tcp, raw, messenger, copied] = [0, 1, 2, 3].map(|at| median(&|round| round[at]));
    println!(
        "| {device} | {test} | {tcp:.1} | {raw:.1} | {messenger:.1} | {copied:.1} | {:.2} | {:.2} | {:.2} |",
        median(&|round| round[2] / round[0]),
        median(&|round| round[2] / round[1]),
        median(&|round| round[3] / round[1]),
    );
}

/// Returns the latency in nanoseconds or the bandwidth in bytes per second of a test of rperf.
fn run_rperf(rperf: &str, device: &str, test: &str, size: usize) -> Result<f64> {
    let size = size.to_string();
    let output = Command::new(rperf)
        .args(["--id", device, "-m", &size, "-t", "1", "--json", test])
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

fn micros_per_trip(started: Instant) -> f64 {
    started.elapsed().as_secs_f64() * 1e6 / f64::from(TRIPS)
}

fn megabytes_per_second(started: Instant) -> f64 {
    let bytes = f64::from(MESSAGES) * f64::from(1 << 20);
    bytes / 1e6 / started.elapsed().as_secs_f64()
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
    let result = micros_per_trip(started);
    drop(client);
    echo.join().map_err(|_| "the echo thread failed")?;
    Ok(result)
}

fn tcp_stream(ip: IpAddr) -> Result<f64> {
    let (mut client, mut server) = tcp_pair(ip)?;
    let started = Instant::now();
    let reader = thread::spawn(move || {
        let mut buffer = vec![0; LARGE];
        for _ in 0..MESSAGES {
            server.read_exact(&mut buffer).expect("read");
        }
    });
    let buffer = vec![7; LARGE];
    for _ in 0..MESSAGES {
        client.write_all(&buffer)?;
    }
    reader.join().map_err(|_| "the reader failed")?;
    Ok(megabytes_per_second(started))
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

fn messenger_trip(ip: IpAddr) -> Result<f64> {
    let (mut client, mut server) = messengers(ip, &MessengerOptions::new())?;
    let echo = thread::spawn(move || {
        while let Some(message) = server.recv(LIMIT).expect("receive") {
            server.send(&message, LIMIT).expect("send");
        }
    });
    let started = Instant::now();
    for _ in 0..TRIPS {
        client.send(&[7; SMALL], LIMIT)?;
        client.recv(LIMIT)?.ok_or("the server ended")?;
    }
    let result = micros_per_trip(started);
    client.shutdown(LIMIT)?;
    echo.join().map_err(|_| "the echo thread failed")?;
    Ok(result)
}

fn messenger_stream(ip: IpAddr, is_copied: bool) -> Result<f64> {
    let options = MessengerOptions::new().buffer_len(LARGE).depth(16);
    let (mut client, mut server) = messengers(ip, &options)?;
    let started = Instant::now();
    let reader = thread::spawn(move || {
        let mut count = 0;
        while let Some(message) = server.recv(LIMIT).expect("receive") {
            assert_eq!(message.len(), LARGE);
            count += 1;
        }
        assert_eq!(count, MESSAGES);
    });
    let bytes = vec![7; LARGE];
    for _ in 0..MESSAGES {
        if is_copied {
            client.send(&bytes, LIMIT)?;
        } else {
            let buffer = client.buffer(LIMIT)?;
            client.send_buffer(buffer, LIMIT)?;
        }
    }
    client.flush(LIMIT)?;
    let result = megabytes_per_second(started);
    client.shutdown(LIMIT)?;
    reader.join().map_err(|_| "the reader failed")?;
    Ok(result)
}
