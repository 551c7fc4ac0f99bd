//! Measures connections per second beside `cmtime` of rdmacm-utils, in alternating rounds of one
//! run. Each side is a process of its own, as with `cmtime`.
//!
//! ```text
//! connect_bench COUNT ADDRESS…
//! connect_bench 256 10.99.0.1 10.98.0.1
//! ```
//!
//! Both programs take each step for all connections before the next step, and print its time per
//! connection in microseconds.

use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ibverbs::{CompletionQueue, CqOptions, Device, ProtectionDomain, QpOptions, QueuePair, Rc};
use rdmacm::{ConnectParams, EventChannel, InProgress, Listener, Resolver};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const LIMIT: Duration = Duration::from_secs(20);
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

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["--server", count, address, device] => serve(count.parse()?, address.parse()?, device),
        ["--client", count, address, device] => connect(count.parse()?, address.parse()?, device),
        [count, ref addresses @ ..] if !addresses.is_empty() => {
            for address in addresses {
                compare(count, address.parse()?)?;
            }
            Ok(())
        }
        _ => Err("expected arguments: COUNT ADDRESS…".into()),
    }
}

/// Runs both programs in turn. Prints the medians of the rounds, and the median, the smallest and
/// the largest of the ratios within a round.
fn compare(count: &str, ip: IpAddr) -> Result<()> {
    let route = Resolver::new(SocketAddr::new(ip, FIRST_PORT)).resolve()?;
    let mut rounds = Vec::new();
    for round in 0..ROUNDS {
        let mut pair = [[0.0; 5]; 2];
        // Each round has ports of its own. On iWARP, connections of earlier rounds can still occupy
        // their combinations of ports.
        let port = FIRST_PORT + 2 * u16::try_from(round)?;
        // The order changes, so that drift affects both programs equally.
        for program in [round % 2, 1 - round % 2] {
            pair[program] = match program {
                0 => run_own(count, SocketAddr::new(ip, port), route.device_name())?,
                _ => run_cmtime(count, ip, port + 1)?,
            };
        }
        rounds.push(pair);
    }
    let sorted = |value: &dyn Fn(&[[f64; 5]; 2]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    println!("{ip}, {count} connections at once, µs per connection:");
    println!("{:12} {:>10} {:>10}", "", "rdmacm", "cmtime");
    for (at, step) in STEPS.iter().enumerate() {
        let [own, cmtime] = [0, 1].map(|program| sorted(&|pair| pair[program][at])[ROUNDS / 2]);
        println!("{step:12} {own:10.1} {cmtime:10.1}");
    }
    let sum = |program: usize| sorted(&|pair| pair[program].iter().sum())[ROUNDS / 2];
    println!("{:12} {:10.1} {:10.1}", "sum", sum(0), sum(1));
    let ratio = sorted(&|pair| pair[1].iter().sum::<f64>() / pair[0].iter().sum::<f64>());
    println!(
        "connections per second, rdmacm / cmtime: {:.2} ({:.2}..{:.2})\n",
        ratio[ROUNDS / 2],
        ratio[0],
        ratio[ROUNDS - 1]
    );
    Ok(())
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

fn run_own(count: &str, address: SocketAddr, device: &str) -> Result<[f64; 5]> {
    let program = std::env::current_exe()?;
    let command = |role| {
        let mut command = Command::new(&program);
        command.args([role, count, &address.to_string(), device]);
        command
    };
    let _server = Server(command("--server").stderr(Stdio::null()).spawn()?);
    times(&run_client(command("--client"))?, &STEPS.map(|step| [step]))
}

fn run_cmtime(count: &str, ip: IpAddr, port: u16) -> Result<[f64; 5]> {
    let (port, ip) = (port.to_string(), ip.to_string());
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
            // another one (ci/DRIVERS.md).
            *self = Self::new(&self.device)?;
            self.pd.create_qp(&self.cq, &self.cq, options)
        })
    }
}

fn serve(count: usize, address: SocketAddr, device: &str) -> Result<()> {
    let listener = Listener::bind(address, 1024)?;
    let mut queue_pairs = QueuePairs::new(device)?;
    let (mut accepting, mut connections) = (Vec::new(), Vec::new());
    for _ in 0..count {
        let request = listener.accept(None)?.ok_or("no request")?;
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

fn connect(count: usize, address: SocketAddr, device: &str) -> Result<()> {
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
        .map(|_| Resolver::new(address).start())
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
