//! Sequences of messages of two peers. Each byte of an input selects an action, and the state
//! machines are those of the programs.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base::error::{Error, Result};
use clap::Parser;
use fake_provider::{Fake, Profile};
use measure::data_key::DataKey;
use measure::result::{TestResult, Warning};
use measure::spec::test::Test;
use measure::stats::port_counters::CounterChanges;
use measure::transport::verbs::VerbsBackend;
use perftools::rperf::args::command_line::Options;
use rdma_transfer::{Control, Engine, EngineOptions, Peer, Region, Span, TransferOptions};
use serde_json::json;
use session::diagnosis::{Diagnosis, EncodedRecord};
use session::protocol::{frame, hello};
use session::rperf::message::Message;
use session::rperf::rules::Rules;
use session::rperf::server::Server;

/// Maximum number of actions of an input.
const MAX_ACTIONS: usize = 200;

/// The bytes of an input.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn next(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// Returns a number less than `limit`; 0 at the end.
    fn below(&mut self, limit: usize) -> usize {
        let [high, low] = [(); 2].map(|()| self.next().unwrap_or(0));
        usize::from(u16::from_be_bytes([high, low])) % limit.max(1)
    }
}

/// Messages from one engine to the other.
#[derive(Debug, Default)]
struct Direction {
    /// Sent and not delivered.
    sent: VecDeque<Vec<u8>>,
    /// Delivered and not received.
    delivered: VecDeque<Vec<u8>>,
    /// All that were delivered.
    history: Vec<Vec<u8>>,
    is_closed: bool,
}

impl Direction {
    fn deliver(&mut self, message: Vec<u8>) {
        self.history.push(message.clone());
        self.delivered.push_back(message);
    }
}

type Shared = Arc<Mutex<Direction>>;

fn lock(direction: &Shared) -> MutexGuard<'_, Direction> {
    direction.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One end of a control connection whose messages the input delivers, changes and repeats.
struct Wire {
    to: Shared,
    from: Shared,
}

impl Control for Wire {
    fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        lock(&self.to).sent.push_back(message);
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut from = lock(&self.from);
        let message = from.delivered.pop_front();
        if message.is_none() && from.is_closed && from.sent.is_empty() {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(message)
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        lock(&self.to).is_closed = true;
    }
}

/// Length of the regions of the engines.
const LEN: usize = 256;

/// Two engines, and their connection.
struct Pair {
    fake: Fake,
    engines: [Engine; 2],
    peers: [Peer; 2],
    regions: [Region; 2],
    /// From each of the engines to the other one.
    directions: [Shared; 2],
    now: Instant,
    /// A message was changed, repeated, reordered or made up.
    is_hostile: bool,
}

impl Pair {
    fn new() -> Self {
        let fake = Fake::new(Profile::RXE);
        let options = EngineOptions::new()
            .manual(true)
            .stripe(32)
            .max_send_wr(4)
            .stall(Duration::from_millis(100))
            .settle(Duration::from_millis(100))
            .min_backoff(Duration::from_millis(5))
            .max_backoff(Duration::from_millis(20));
        let engines = [(); 2].map(|()| Engine::open(&[fake.name()], options).expect("engine"));
        let directions: [Shared; 2] = Default::default();
        let connect = |side: usize| {
            let control = Wire {
                to: Arc::clone(&directions[side]),
                from: Arc::clone(&directions[1 - side]),
            };
            engines[side].connect(control).expect("connects")
        };
        let peers = [connect(0), connect(1)];
        let regions = [0, 1].map(|side: usize| engines[side].alloc(LEN).expect("region"));
        Self {
            fake,
            engines,
            peers,
            regions,
            directions,
            now: Instant::now(),
            is_hostile: false,
        }
    }

    fn poll(&mut self, time: Duration) {
        self.now += time;
        self.engines.iter().for_each(|engine| engine.poll(self.now));
    }

    fn deliver_all(&self) {
        for direction in &self.directions {
            let mut direction = lock(direction);
            while let Some(message) = direction.sent.pop_front() {
                direction.deliver(message);
            }
        }
    }

    /// Lets both engines exchange what is in flight.
    fn run(&mut self, steps: u32) {
        for _ in 0..steps {
            self.deliver_all();
            self.poll(Duration::from_millis(2));
        }
    }

    /// Changes the messages of one direction.
    fn interfere(&mut self, action: u8, input: &mut Input<'_>, side: usize) {
        let mut direction = lock(&self.directions[side]);
        match action {
            // Repeats a message that was delivered.
            0 => {
                let at = input.below(direction.history.len());
                if let Some(message) = direction.history.get(at).cloned() {
                    direction.deliver(message);
                }
            }
            1 => drop(direction.sent.pop_front()),
            2 if direction.sent.len() > 1 => direction.sent.swap(0, 1),
            // Changes a byte, or a digit to another one.
            3 => {
                let (at, value) = (input.below(512), input.next().unwrap_or(0));
                if let Some(byte) = direction.sent.front_mut().and_then(|m| m.get_mut(at)) {
                    *byte = if byte.is_ascii_digit() {
                        b'0' + value % 10
                    } else {
                        value
                    };
                }
            }
            // Makes up a message.
            _ => {
                let numbers = [(); 4].map(|()| input.below(8));
                let made_up = made_up(input.below(8), numbers);
                direction.deliver(made_up.to_string().into_bytes());
            }
        }
        drop(direction);
        self.is_hostile = true;
    }
}

/// Returns a valid message with these numbers.
fn made_up(kind: usize, [a, b, c, d]: [usize; 4]) -> serde_json::Value {
    let key = json!({ "addr": a, "len": b * 64, "rkey": c });
    match kind {
        0 => json!({ "Hello": { "version": 1, "random": a, "devices": b, "queue_pairs": c } }),
        1 => json!({ "Ready": { "path": a, "epoch": b } }),
        2 => json!({ "Received": { "path": a, "epoch": b, "count": c } }),
        3 => {
            let unknown = json!({ "jobs": [[a, b], [c, d]], "regions": [c] });
            json!({ "Down": { "path": a % 2, "epoch": b, "unknown": unknown } })
        }
        4 => {
            let known = json!({ "jobs": [[a, b], [c, d]], "regions": [c] });
            json!({ "Settled": { "path": a % 2, "epoch": b, "known": known } })
        }
        5 => json!({ "Abandoned": { "transfer": 2 * a + d % 2 } }),
        6 => json!({ "Key": { "region": a, "device": b, "key": key } }),
        _ => {
            let region = json!({ "id": a, "keys": vec![key; b] });
            json!({ "Offer": { "name": "name", "region": region } })
        }
    }
}

/// Two engines of `rdma-transfer` whose control messages are changed, repeated, omitted, reordered
/// and made up. Without such a change, all transfers end and are counted once.
pub fn transfer_sequence(data: &[u8]) {
    let (mut pair, mut input) = (Pair::new(), Input(data));
    let mut transfers = Vec::new();
    let mut sent = [0_u64; 2];
    for _ in 0..MAX_ACTIONS {
        let Some(action) = input.next() else { break };
        let side = usize::from(action & 1);
        let all = [Span::new(0, 0, LEN)];
        let (own, other) = (&pair.regions[side], pair.regions[1 - side].remote());
        match action >> 1 & 15 {
            0 | 1 => pair.run(1 + u32::from(action >> 6)),
            2 => pair.poll(Duration::from_millis(2)),
            3 => {
                let mut direction = lock(&pair.directions[side]);
                if let Some(message) = direction.sent.pop_front() {
                    direction.deliver(message);
                }
            }
            4 | 5 => {
                let options = TransferOptions::new().imm(u32::from(!action & 1));
                if let Ok(transfer) = pair.peers[side].write(own, &other, &all, options) {
                    sent[side] += 1;
                    transfers.push(transfer);
                }
            }
            6 => {
                let read = pair.peers[side].read(own, &other, &all, TransferOptions::new());
                transfers.extend(read);
            }
            7 => drop(pair.peers[side].offer("name", own)),
            8 => pair.poll(Duration::from_millis(150)),
            9 => pair.fake.stall(),
            10 => pair.fake.resume(),
            kind => pair.interfere(kind - 11, &mut input, side),
        }
    }
    pair.fake.resume();
    pair.run(200);
    if !pair.is_hostile {
        for transfer in &transfers {
            assert!(transfer.has_ended(), "a transfer does not end");
        }
        for (side, sent) in sent.into_iter().enumerate() {
            let counter = pair.engines[1 - side].imm_counter(u32::from(side == 0));
            assert_eq!(counter.count(), sent, "transfers of side {side}");
        }
    }
    drop(transfers);
}

/// Results that are not judged.
struct NoDiagnosis;

impl Diagnosis for NoDiagnosis {
    fn host_warnings(&self) -> Vec<Warning> {
        Vec::new()
    }

    fn explain(&self, error: Error, _: &CounterChanges, _: f64) -> Error {
        error
    }

    fn record(&self, _: TestResult) -> Result<EncodedRecord> {
        Err(Error::protocol("a server makes no record"))
    }
}

/// The address of a server of rperf, which runs until the end of the process.
static SERVER: LazyLock<SocketAddr> = LazyLock::new(|| {
    let mut rules = Rules::default();
    rules.max_timeout = Duration::from_millis(500);
    let mut server = Server::bind(Some(Ipv4Addr::LOCALHOST.into()), 0, rules)
        .expect("a port")
        .quiet();
    let address = server.local_addr().expect("bound");
    std::thread::spawn(move || server.run(&VerbsBackend, &NoDiagnosis));
    address
});

/// Messages of clients. Those that a client sends in a test over sockets come first.
static MESSAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let request = |line: &str, test| {
        let options = Options::try_parse_from(line.split(' ')).expect("options");
        let spec = options.to_spec(test).expect("a specification");
        Message::Request {
            spec: Box::new(spec),
            client_info: None,
        }
    };
    let quick = "rperf --timeout=1 --timeout=remote=1 --messages=3";
    let via = json!({
        "device": "", "port": 0, "link": "", "gid_index": null, "address": "", "cm": false,
        "mtu": null, "port_mtu": null, "wait": "events",
    });
    let finished = Message::Finished { sent: 3, thread: 0 };
    let bound = Message::Bound {
        port: 9,
        more_ports: vec![],
    };
    let own = [
        request(quick, Test::TcpLat),
        request(quick, Test::UdpLat),
        request(quick, Test::TcpBw),
        request(quick, Test::Conf),
        bound,
        finished,
        Message::Heartbeat,
        Message::Stop,
        Message::AskFacts,
        Message::Start,
        Message::Connected,
        Message::Quitting,
    ];
    let mut messages: Vec<Vec<u8>> = Vec::new();
    for message in own {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, &message).expect("short");
        messages.push(bytes);
    }
    let ready = json!({ "ready": { "via": via, "memory": [null] } });
    let error = json!({ "error": { "text": "x" } });
    for message in [ready, error, json!({ "stats": {} }), json!([[[[[[1]]]]]])] {
        let mut bytes = Vec::new();
        frame::write(&mut bytes, &message).expect("short");
        messages.push(bytes);
    }
    messages
});

/// A client of the server.
struct Client {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Client {
    fn connect() -> io::Result<Self> {
        let mut stream = TcpStream::connect(*SERVER)?;
        stream.set_read_timeout(Some(Duration::from_millis(1)))?;
        stream.set_write_timeout(Some(Duration::from_millis(100)))?;
        stream.write_all(&hello::encode_request(hello::PROTOCOL))?;
        Ok(Self {
            stream,
            received: Vec::new(),
        })
    }

    fn receive(&mut self) {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = self.stream.read(&mut bytes) {
            self.received.extend(&bytes[..len]);
        }
        self.received.truncate(1 << 16);
    }

    /// Returns the key of the data connection that the server waits for.
    fn key(&self) -> Option<DataKey> {
        let mut rest = self.received.get(hello::LEN..)?;
        match frame::read::<Message>(&mut rest).ok()? {
            Message::Listening(info) => Some(info.key),
            _ => None,
        }
    }
}

/// Clients of a server of rperf, in a sequence of connections, messages, data connections and ends.
/// The server then serves another one.
pub fn session_sequence(data: &[u8]) {
    let mut input = Input(data);
    let mut clients: Vec<Client> = Vec::new();
    let mut streams = Vec::new();
    for _ in 0..MAX_ACTIONS / 4 {
        let Some(action) = input.next() else { break };
        let kind = action % 8;
        if clients.len() < 3 && (kind == 0 || clients.is_empty()) {
            clients.extend(Client::connect());
        }
        let at = usize::from(action >> 3) % clients.len().max(1);
        let Some(client) = clients.get_mut(at) else {
            continue;
        };
        match kind {
            1..=3 => {
                let message = &MESSAGES[input.below(MESSAGES.len())];
                let _ = client.stream.write_all(message);
            }
            4 => client.receive(),
            5 => {
                // A data connection with the key of the test, or another one.
                client.receive();
                let key = client.key().unwrap_or_else(DataKey::random);
                if let Ok(mut stream) = TcpStream::connect(*SERVER) {
                    let _ = stream.write_all(&key.stream_bytes());
                    streams.push(stream);
                }
            }
            6 => {
                let mut message = MESSAGES[input.below(MESSAGES.len())].clone();
                let at = input.below(message.len());
                message[at] = input.next().unwrap_or(0);
                let _ = client.stream.write_all(&message);
            }
            7 if action & 0x80 == 0 => drop(clients.swap_remove(at)),
            7 => drop(client.stream.shutdown(Shutdown::Write)),
            _ => {}
        }
    }
    drop((clients, streams));
    // Sessions of the same address may be too many for a moment.
    let begin = Instant::now();
    while !is_served() {
        assert!(begin.elapsed() < Duration::from_secs(30), "not served");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns `true` if the server describes its host to a client.
fn is_served() -> bool {
    let exchange = || {
        let mut client = Client::connect()?;
        let timeout = Some(Duration::from_secs(20));
        client.stream.set_read_timeout(timeout)?;
        client.stream.read_exact(&mut [0; hello::LEN])?;
        client.stream.write_all(&MESSAGES[3])?;
        let reply = frame::read::<Message>(&mut client.stream);
        io::Result::Ok(matches!(reply, Ok(Message::Conf(_))))
    };
    exchange().unwrap_or(false)
}
