//! Hostile peers: ten behaviours, and the limits that each protocol keeps against all of them.
//!
//! A protocol is a [`Target`]: how a peer connects, the messages of a valid session, and an honest
//! peer. [`assert_limits`] runs the behaviours, which are the same for all protocols, and compares
//! with the row of [`TABLE`]. `HOSTILE_SECONDS` is the time of each behaviour, and
//! `HOSTILE_CONNECTIONS` the number of connections that stay open.

use std::fmt::{self, Write};
use std::io::{self, ErrorKind, Read};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::wait_until;
use crate::usage::{Usage, peak_kib, reset_peak};

/// A behaviour of a hostile peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behaviour {
    /// Sends messages and takes no reply.
    NeverReads,
    /// Connects and sends nothing, or a part of its first message.
    NeverWrites,
    /// Sends a byte a second.
    Trickles,
    /// Sends the smallest message without pause.
    Floods,
    /// Sends the longest message.
    SendsLongest,
    /// Sends a message before its turn or after it.
    OutOfTurn,
    /// Sends a message twice.
    Repeats,
    /// Sends the bytes of an earlier session.
    Replays,
    /// Sends a part of a session and closes its direction of the connection.
    HalfCloses,
    /// Connects and closes without pause.
    Reconnects,
}

impl Behaviour {
    /// All behaviours.
    pub const ALL: [Self; 10] = [
        Self::NeverReads,
        Self::NeverWrites,
        Self::Trickles,
        Self::Floods,
        Self::SendsLongest,
        Self::OutOfTurn,
        Self::Repeats,
        Self::Replays,
        Self::HalfCloses,
        Self::Reconnects,
    ];
}

impl fmt::Display for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NeverReads => "never reads",
            Self::NeverWrites => "never writes",
            Self::Trickles => "a byte a second",
            Self::Floods => "flood of the smallest message",
            Self::SendsLongest => "longest message",
            Self::OutOfTurn => "out of turn",
            Self::Repeats => "repeated",
            Self::Replays => "replayed",
            Self::HalfCloses => "half closed",
            Self::Reconnects => "reconnect storm",
        })
    }
}

/// The limits of a protocol, which hold against every behaviour that applies to it.
#[derive(Debug)]
pub struct Row {
    /// Name of the protocol and of the attacked end.
    pub protocol: &'static str,
    /// Maximum growth of the memory of the attacked process, at its peak, in MiB.
    pub memory_mib: u64,
    /// Seconds within which all threads and files are released after the attack.
    pub release_seconds: u64,
    /// Milliseconds that the attack may add to ten times the time in which an honest peer is served
    /// otherwise (medians).
    pub latency_millis: u64,
    /// Behaviours that do not apply, and the reasons.
    pub omitted: &'static [(Behaviour, &'static str)],
    /// The test and its file, as in `HARDENING.md`.
    pub test: &'static str,
}

/// Datagrams have no connection.
const DATAGRAMS: &[(Behaviour, &str)] = &[(
    Behaviour::HalfCloses,
    "datagrams have no connection that ends in one direction",
)];
/// Connections of RDMA.
const QUEUE_PAIRS: &[(Behaviour, &str)] = &[(
    Behaviour::HalfCloses,
    "rdma_cm disconnects both directions at once",
)];

const fn row(
    protocol: &'static str,
    [memory_mib, release_seconds, latency_millis]: [u64; 3],
    omitted: &'static [(Behaviour, &'static str)],
    test: &'static str,
) -> Row {
    Row {
        protocol,
        memory_mib,
        release_seconds,
        latency_millis,
        omitted,
        test,
    }
}

/// The limits of all protocols.
pub const TABLE: &[Row] = &[
    row(
        "rperf control",
        [16, 40, 2000],
        &[],
        "`rperf_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "rperf control with a token",
        [16, 40, 2000],
        &[],
        "`rperf_with_a_token_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "qperf control",
        [16, 40, 2000],
        &[],
        "`qperf_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "mesh",
        [16, 40, 2000],
        &[],
        "`a_mesh_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "monitor",
        [16, 40, 2000],
        &[],
        "`a_monitored_server_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "reflector",
        [16, 40, 2000],
        DATAGRAMS,
        "`a_reflector_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "HTTP of `ribinfo export`",
        [16, 40, 2000],
        &[],
        "`an_exporter_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "HTTP of `rperf monitor`",
        [16, 40, 2000],
        &[],
        "`a_monitor_keeps_its_limits` (hostile/servers)",
    ),
    row(
        "rdma-transfer",
        [32, 40, 500],
        &[],
        "`an_engine_keeps_its_limits` (rdma-transfer/tests/hostile)",
    ),
    row(
        "rdma-transfer with a token",
        [32, 40, 500],
        &[],
        "`an_engine_with_a_token_keeps_its_limits` (rdma-transfer/tests/hostile)",
    ),
    row(
        "ribping over rdma_cm",
        [16, 60, 4000],
        QUEUE_PAIRS,
        "`ribping_keeps_its_limits` (device_tools/stress_rping)",
    ),
    row(
        "messenger",
        [64, 60, 4000],
        QUEUE_PAIRS,
        "`a_messenger_keeps_its_limits` (messenger/tests/device_messenger/peers)",
    ),
];

/// Returns the table for `HARDENING.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "| protocol | memory | release | honest peer | behaviours | tests |\n|---|---|---|---|---|---|\n",
    );
    for row in TABLE {
        let omitted: Vec<String> = row
            .omitted
            .iter()
            .map(|(behaviour, reason)| format!("without *{behaviour}*: {reason}"))
            .collect();
        let behaviours = if omitted.is_empty() {
            "all".into()
        } else {
            omitted.join("; ")
        };
        let Row {
            protocol,
            memory_mib,
            release_seconds,
            latency_millis,
            test,
            ..
        } = row;
        let _ = writeln!(
            text,
            "| {protocol} | {memory_mib} MiB | {release_seconds} s | {latency_millis} ms | {behaviours} | {test} |"
        );
    }
    text
}

/// Messages of a peer.
#[derive(Clone, Debug)]
pub struct Messages {
    /// Those of a valid session, in their order.
    pub session: Vec<Vec<u8>>,
    /// Returns the smallest message with a number from 0.
    pub smallest: fn(u32) -> Vec<u8>,
    /// The longest message, or one that is too long.
    pub longest: Vec<u8>,
    /// Number of messages of the session before `smallest` and `longest`.
    pub before: usize,
}

/// A connection of a hostile peer. It is closed on drop.
pub trait Connection {
    /// Sends bytes. Waits for a moment until there is room for them.
    ///
    /// # Errors
    /// The target has ended the connection, or takes no more.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Discards what arrives within a time.
    ///
    /// # Errors
    /// The target has ended the connection.
    fn receive(&mut self, time: Duration) -> io::Result<()>;

    /// Closes the direction to the target.
    fn finish(&mut self) {}
}

/// Time in which a target must take bytes.
pub const ROOM: Duration = Duration::from_millis(200);
/// Pause of a peer that waits.
const PAUSE: Duration = Duration::from_millis(1);

fn send(stream: &mut impl io::Write, bytes: &[u8]) -> io::Result<()> {
    let (begin, mut rest) = (Instant::now(), bytes);
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock && begin.elapsed() < ROOM => {
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn receive(mut read: impl FnMut(&mut [u8]) -> io::Result<usize>, time: Duration) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match read(&mut [0; 8192]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if begin.elapsed() >= time {
                    return Ok(());
                }
                thread::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

macro_rules! connection_of_stream {
    ($stream:ty) => {
        /// The stream does not block.
        impl Connection for $stream {
            fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
                send(self, bytes)
            }

            fn receive(&mut self, time: Duration) -> io::Result<()> {
                receive(|bytes| self.read(bytes), time)
            }

            fn finish(&mut self) {
                let _ = self.shutdown(Shutdown::Write);
            }
        }
    };
}

connection_of_stream!(TcpStream);
connection_of_stream!(UnixStream);

/// The socket is connected and does not block.
impl Connection for UdpSocket {
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match UdpSocket::send(self, bytes) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    fn receive(&mut self, time: Duration) -> io::Result<()> {
        receive(|bytes| self.recv(bytes), time)
    }
}

/// The attacked end of a protocol.
pub trait Target: Sync {
    /// Returns the messages of its peers.
    fn messages(&self) -> &Messages;

    /// Connects a hostile peer. Numbers from 0 count the connections.
    ///
    /// # Errors
    /// The target does not accept it.
    fn connect(&self, number: u64) -> io::Result<Box<dyn Connection + '_>>;

    /// Lets an honest peer be served.
    ///
    /// # Errors
    /// It was not served.
    fn serve(&self) -> Result<(), String>;

    /// Returns the ID of the attacked process.
    fn pid(&self) -> u32 {
        std::process::id()
    }
}

/// Number of hostile peers that act at the same time.
const PEERS: usize = 8;
/// Time in which a target may reply.
const REPLY: Duration = Duration::from_millis(20);
/// Number of messages that a flood sends at once.
const BURST: u32 = 64;
/// Minimum number of times that an honest peer is served during an attack.
const MIN_SERVED: usize = 3;

/// Returns a number from the environment.
fn setting<T: FromStr>(name: &str, default: T) -> T {
    let number = |text: String| text.parse().ok().expect("a number");
    std::env::var(name).map_or(default, number)
}

/// Attacks a target with all behaviours that apply to a protocol, and compares with its limits.
///
/// # Panics
/// Panics if a limit is exceeded.
pub fn assert_limits(protocol: &str, target: &dyn Target) {
    let row = TABLE.iter().find(|row| row.protocol == protocol);
    let row = row.unwrap_or_else(|| panic!("no row of {protocol}"));
    let time = Duration::from_secs_f64(setting("HOSTILE_SECONDS", 0.7));
    let mut unharmed: Vec<_> = (0..MIN_SERVED).map(|_| serve(target, protocol)).collect();
    let max_latency = Duration::from_millis(row.latency_millis) + 10 * median(&mut unharmed);
    // The heaps of threads and lazily loaded code are not counted for the first behaviour.
    attack(target, Behaviour::OutOfTurn, Instant::now() + time);
    for behaviour in Behaviour::ALL {
        if row.omitted.iter().any(|(omitted, _)| *omitted == behaviour) {
            continue;
        }
        assert_cell(row, target, behaviour, time, max_latency);
    }
}

/// Lets an honest peer be served, and returns the time.
fn serve(target: &dyn Target, name: &str) -> Duration {
    let begin = Instant::now();
    if let Err(error) = target.serve() {
        panic!("{name}: an honest peer is not served: {error}");
    }
    begin.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn assert_cell(
    row: &Row,
    target: &dyn Target,
    behaviour: Behaviour,
    time: Duration,
    max_latency: Duration,
) {
    let name = format!("{}, {behaviour}", row.protocol);
    let pid = target.pid();
    let before = Usage::when_idle(pid);
    reset_peak(pid);
    let until = Instant::now() + time;
    let (connections, mut served) = thread::scope(|scope| {
        let attack = scope.spawn(|| attack(target, behaviour, until));
        let mut served = Vec::new();
        while served.len() < MIN_SERVED || Instant::now() < until {
            served.push(serve(target, &name));
        }
        (attack.join().expect("no panic"), served)
    });
    let growth = peak_kib(pid).saturating_sub(before.resident_kib);
    let begin = Instant::now();
    let limit = Duration::from_secs(row.release_seconds);
    let is_released = wait_until(limit, || {
        let now = Usage::of(pid);
        now.files <= before.files && now.threads <= before.threads
    });
    let latency = median(&mut served);
    println!(
        "{name}: {connections} connections, {growth} KiB, released in {:?}, {} honest peers in {latency:?}",
        begin.elapsed(),
        served.len()
    );
    assert!(is_released, "{name}: {before}, then {}", Usage::of(pid));
    assert!(growth <= row.memory_mib << 10, "{name}: {growth} KiB");
    assert!(latency <= max_latency, "{name}: {latency:?}");
}

/// Lets [`PEERS`] peers behave until a time. Returns the number of connections.
fn attack(target: &dyn Target, behaviour: Behaviour, until: Instant) -> u64 {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..PEERS {
            scope.spawn(|| attack_from_thread(target, behaviour, until, &next));
        }
    });
    next.into_inner()
}

fn attack_from_thread(target: &dyn Target, behaviour: Behaviour, until: Instant, next: &AtomicU64) {
    use Behaviour::{NeverReads, NeverWrites, Trickles};
    let max_open = match behaviour {
        NeverReads | Trickles => 4,
        NeverWrites => setting("HOSTILE_CONNECTIONS", 200) / PEERS,
        _ => 0,
    };
    let mut open = Vec::new();
    while Instant::now() < until {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Ok(mut connection) = target.connect(number) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        // The target may end the connection at any time.
        let _ = behave(
            behaviour,
            target.messages(),
            &mut *connection,
            number,
            until,
        );
        if max_open > 0 {
            open.push(connection);
            if open.len() == max_open {
                thread::sleep(until.saturating_duration_since(Instant::now()));
            }
        }
    }
}

/// Behaves on a connection until a time. The number of the connection selects the messages.
fn behave(
    behaviour: Behaviour,
    messages: &Messages,
    connection: &mut dyn Connection,
    number: u64,
    until: Instant,
) -> io::Result<()> {
    let Messages {
        session,
        smallest,
        longest,
        before,
    } = messages;
    let number = usize::try_from(number).expect("few connections");
    let at = number % session.len();
    let mut send = |part: &[Vec<u8>]| {
        part.iter().try_for_each(|message| {
            connection.send(message)?;
            connection.receive(REPLY)
        })
    };
    match behaviour {
        Behaviour::NeverReads => {
            session.iter().try_for_each(|m| connection.send(m))?;
            for number in 0.. {
                connection.send(&smallest(number))?;
                if Instant::now() >= until {
                    break;
                }
            }
        }
        Behaviour::NeverWrites => {
            let first = &session[0];
            connection.send(&first[..number % first.len()])?;
        }
        Behaviour::Trickles => {
            for byte in session.iter().flatten() {
                connection.send(&[*byte])?;
                let left = until.saturating_duration_since(Instant::now());
                thread::sleep(left.min(Duration::from_secs(1)));
                if left.is_zero() {
                    break;
                }
            }
        }
        Behaviour::Floods => {
            send(&session[..*before])?;
            for number in 0.. {
                connection.send(&smallest(number))?;
                if number % BURST == 0 {
                    connection.receive(Duration::ZERO)?;
                    if Instant::now() >= until {
                        break;
                    }
                }
            }
        }
        Behaviour::SendsLongest => {
            send(&session[..*before])?;
            while Instant::now() < until {
                connection.send(longest)?;
                connection.receive(REPLY)?;
            }
        }
        Behaviour::OutOfTurn => {
            send(&session[..at])?;
            send(&session[number / session.len() % session.len()..][..1])?;
        }
        Behaviour::Repeats => {
            send(&session[..=at])?;
            send(&session[at..=at])?;
        }
        Behaviour::Replays => {
            session.iter().try_for_each(|m| connection.send(m))?;
            session.iter().try_for_each(|m| connection.send(m))?;
            connection.receive(REPLY)?;
        }
        Behaviour::HalfCloses => {
            send(&session[..at])?;
            connection.finish();
            while Instant::now() < until {
                connection.receive(REPLY)?;
            }
        }
        Behaviour::Reconnects => {}
    }
    Ok(())
}

/// Divides bytes into a part of a fixed length, and parts whose length `len` finds at their start.
pub fn divide(bytes: &[u8], first: usize, len: impl Fn(&[u8]) -> usize) -> Vec<Vec<u8>> {
    let (head, mut rest) = bytes.split_at(first);
    let mut parts = vec![head.to_vec()];
    parts.retain(|part| !part.is_empty());
    while !rest.is_empty() {
        let (part, after) = rest.split_at(len(rest).clamp(1, rest.len()));
        parts.push(part.to_vec());
        rest = after;
    }
    parts
}
