//! Measures connections per second beside `cmtime` of rdmacm-utils, in alternating rounds of one
//! run: with one event channel for all connections, as `cmtime` has, and with a channel for each of
//! them. Each side is a process of its own.
//!
//! ```text
//! connect_bench COUNT ADDRESS…
//! connect_bench 256 10.99.0.1 10.98.0.1
//! ROUNDS=21 connect_bench 1 10.99.0.1
//! ```
//!
//! All programs take each step for all connections before the next step, and print its time per
//! connection in microseconds.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{CompletionQueue, CqOptions, Device, ProtectionDomain, QpOptions, QueuePair, Rc};
use rdmacm::{ConnectParams, EventChannel, InProgress, ListenOptions, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LIMIT: Duration = Duration::from_secs(20);
/// Number of rounds without the variable `ROUNDS`.
const ROUNDS: usize = 7;
const FIRST_PORT: u16 = 17471;
const STEPS: [&str; 5] = ["resolve", "create qp", "connect", "disconnect", "destroy"];
/// The steps of `cmtime` that belong to each of [`STEPS`]. It destroys the queue pairs when it
/// disconnects, so only the sums can be compared.
const CMTIME_STEPS: [&[&str]; 5] = [
    &["create id", "resolve addr", "resolve route"],
    &["create qp"],
    &["connect"],
    &["disconnect"],
    &["destroy"],
];

/// The programs that take turns.
#[derive(Clone, Copy, PartialEq)]
enum Program {
    OneChannel,
    OwnChannels,
    Cmtime,
}

const PROGRAMS: [Program; 3] = [Program::OneChannel, Program::OwnChannels, Program::Cmtime];

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--server", channels, count, address, device] => {
            let channel = shared_channel(channels)?;
            serve(count.parse()?, address.parse()?, device, channel.as_ref())
        }
        ["--client", channels, count, address, device] => {
            let channel = shared_channel(channels)?;
            connect(count.parse()?, address.parse()?, device, channel.as_ref())
        }
        [count, ref addresses @ ..] if !addresses.is_empty() => {
            for address in addresses {
                compare(count, address.parse()?)?;
            }
            Ok(())
        }
        _ => Err("expected arguments: COUNT ADDRESS…".into()),
    }
}

/// Runs the programs in turn. Prints the medians of the rounds, and the median, the smallest and
/// the largest of the ratios within a round.
fn compare(count: &str, ip: IpAddr) -> Result<()> {
    let route = Resolver::new(SocketAddr::new(ip, FIRST_PORT)).resolve()?;
    let number = match std::env::var("ROUNDS") {
        Ok(rounds) => rounds.parse()?,
        Err(_) => ROUNDS,
    };
    let mut rounds = Vec::new();
    for round in 0..number {
        let mut times = [[0.0; 5]; 3];
        // Each run has a port of its own. On iWARP, connections of earlier rounds can still occupy
        // their combinations of ports.
        let port = FIRST_PORT + 3 * u16::try_from(round)?;
        // The order changes, so that drift affects all programs equally.
        let mut order = [0, 1, 2];
        order.rotate_left(round % 3);
        if round / 3 % 2 == 1 {
            order.reverse();
        }
        for at in order {
            let address = SocketAddr::new(ip, port + u16::try_from(at)?);
            times[at] = match PROGRAMS[at] {
                Program::Cmtime => run_cmtime(count, address)?,
                own => run_own(own, count, address, route.device_name())?,
            };
        }
        rounds.push(times);
    }
    let sorted = |value: &dyn Fn(&[[f64; 5]; 3]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |value: &dyn Fn(&[[f64; 5]; 3]) -> f64| sorted(value)[number / 2];
    println!("{ip}, {count} connections at once, µs per connection, medians of {number} rounds:");
    println!(
        "{:12} {:>12} {:>12} {:>12}",
        "", "one channel", "own channels", "cmtime"
    );
    for (at, step) in STEPS.iter().enumerate() {
        let [one, own, cmtime] = [0, 1, 2].map(|program| median(&|times| times[program][at]));
        println!("{step:12} {one:12.1} {own:12.1} {cmtime:12.1}");
    }
    let [one, own, cmtime] = [0, 1, 2].map(|program| median(&|times| times[program].iter().sum()));
    println!("{:12} {one:12.1} {own:12.1} {cmtime:12.1}", "sum");
    for (program, name) in [(0, "one channel"), (1, "own channels")] {
        let ratio =
            sorted(&|times| times[2].iter().sum::<f64>() / times[program].iter().sum::<f64>());
        println!(
            "connections per second, {name} / cmtime: {:.2} ({:.2}..{:.2})",
            ratio[number / 2],
            ratio[0],
            ratio[number - 1]
        );
    }
    println!();
    Ok(())
}

/// Returns the channel of all connections, or `None` if each has a channel of its own.
fn shared_channel(channels: &str) -> Result<Option<EventChannel>> {
    Ok(match channels {
        "one" => Some(EventChannel::create()?),
        _ => None,
    })
}

/// Ends a server that was not waited for.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs a client until it succeeds, because it fails until the server listens. Returns its output.
fn run_client(mut client: Command) -> Result<String> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(100));
        let output = client.stderr(Stdio::null()).output()?;
        let text = String::from_utf8(output.stdout)?;
        if text.contains("destroy") && !text.contains("failure") {
            return Ok(text);
        }
    }
    Err("the client does not succeed".into())
}

fn run_own(own: Program, count: &str, address: SocketAddr, device: &str) -> Result<[f64; 5]> {
    let channels = if own == Program::OneChannel {
        "one"
    } else {
        "own"
    };
    let program = std::env::current_exe()?;
    let command = |role| {
        let mut command = Command::new(&program);
        command.args([role, channels, count, &address.to_string(), device]);
        command
    };
    let _server = Server(command("--server").stderr(Stdio::null()).spawn()?);
    times(&run_client(command("--client"))?, &STEPS.map(|step| [step]))
}

fn run_cmtime(count: &str, address: SocketAddr) -> Result<[f64; 5]> {
    let (port, ip) = (address.port().to_string(), address.ip().to_string());
    let command = |role| {
        let mut command = Command::new("cmtime");
        command.args(["-p", &port, "-c", count, role, &ip]);
        command
    };
    let server = command("-b")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let _server = Server(server);
    times(&run_client(command("-s"))?, &CMTIME_STEPS)
}

/// Returns the last number of the lines of each group of steps.
fn times<S: AsRef<[&'static str]>>(text: &str, groups: &[S; 5]) -> Result<[f64; 5]> {
    let mut sums = [0.0; 5];
    for (sum, steps) in sums.iter_mut().zip(groups) {
        for step in steps.as_ref() {
            let mut lines = text.lines().filter(|line| line.starts_with(step));
            let value = lines.find_map(|line| line.split_whitespace().last()?.parse::<f64>().ok());
            *sum += value.ok_or("a step without a time")?;
        }
    }
    Ok(sums)
}

/// Creates the queue pairs of one side on one completion queue, as `cmtime` does.
struct QueuePairs {
    device: String,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl QueuePairs {
    fn new(device: &str) -> ibverbs::Result<Self> {
        let context = Device::by_name(device)?.open()?;
        Ok(Self {
            device: device.to_owned(),
            pd: context.alloc_pd()?,
            cq: context.create_cq(CqOptions::new().depth(1024))?,
        })
    }

    fn create(&mut self) -> ibverbs::Result<QueuePair<Rc>> {
        let options = QpOptions::new().max_send_wr(1).max_recv_wr(1);
        self.pd.create_qp(&self.cq, &self.cq, options).or_else(|_| {
            // Soft-iWARP can fail to create further queue pairs in an open context, but not in
            // another one (docs/drivers.md).
            *self = Self::new(&self.device)?;
            self.pd.create_qp(&self.cq, &self.cq, options)
        })
    }
}

fn serve(
    count: usize,
    address: SocketAddr,
    device: &str,
    channel: Option<&EventChannel>,
) -> Result<()> {
    let mut options = ListenOptions::new().backlog(1024);
    if let Some(channel) = channel {
        options = options.channel(channel).accept_on(channel);
    }
    let listener = options.bind(address)?;
    let mut queue_pairs = QueuePairs::new(device)?;
    let (mut accepting, mut connections) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let request = listener.next_request(None)?.ok_or("no request")?;
        let ready = request.with_qp(queue_pairs.create()?)?;
        accepting.push(ready.start(&ConnectParams::new())?);
    }
    for step in accepting {
        connections.push(step.wait(Some(LIMIT))?);
    }
    for connection in &mut connections {
        connection.wait_event(Some(LIMIT))?;
        connection.disconnect()?;
    }
    Ok(())
}

fn connect(
    count: usize,
    address: SocketAddr,
    device: &str,
    channel: Option<&EventChannel>,
) -> Result<()> {
    // The first channel loads the library's list of devices, as `cmtime` does before it starts.
    drop(EventChannel::create()?);
    let mut queue_pairs = QueuePairs::new(device)?;
    let mut began = Instant::now();
    let mut report = |step: &str| {
        #[allow(clippy::cast_precision_loss, reason = "a small count")]
        let each = began.elapsed().as_secs_f64() * 1e6 / count as f64;
        println!("{step} {each:.2}");
        began = Instant::now();
    };
    let resolving: Vec<_> = (0..count)
        .map(|_| {
            let resolver = Resolver::new(address);
            match channel {
                Some(channel) => resolver.channel(channel),
                None => resolver,
            }
            .start()
        })
        .collect::<ibverbs::Result<_>>()?;
    let routes: Vec<_> = resolving
        .into_iter()
        .map(|step| step.wait(Some(LIMIT)))
        .collect::<ibverbs::Result<_>>()?;
    report(STEPS[0]);
    let mut ready = Vec::new();
    for route in routes {
        ready.push(route.with_qp(queue_pairs.create()?)?);
    }
    report(STEPS[1]);
    let mut connecting = Vec::new();
    for ready in ready {
        connecting.push(ready.start(&ConnectParams::new())?);
    }
    let mut connections = Vec::new();
    for step in connecting {
        connections.push(step.wait(Some(LIMIT))?);
    }
    report(STEPS[2]);
    for connection in &mut connections {
        connection.disconnect()?;
    }
    for connection in &mut connections {
        connection.wait_event(Some(LIMIT))?;
    }
    report(STEPS[3]);
    drop(connections);
    report(STEPS[4]);
    Ok(())
}
