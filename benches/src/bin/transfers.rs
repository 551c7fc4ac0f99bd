//! Measures transfers of pages of 4 KiB between two engines of `rdma-transfer`, and the same writes
//! on a queue pair of the safe library: processor time, elapsed time and system calls.
//!
//! ```text
//! transfers DEVICE=ADDRESS…
//! ```
//!
//! Both ends are in one process, and each measurement is a process of its own. The programs take
//! turns. System calls are counted by strace, those of twice as many transfers less those of the
//! first half.

use std::error::Error;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::process::{Command, ExitCode};
use std::thread;
use std::time::{Duration, Instant};

use benches::Spread;
use ibverbs::{
    AccessFlags, CompletionQueue, CqOptions, Device, ProtectionDomain, QpOptions, Rc, wr,
};
use rdma_transfer::{Engine, EngineOptions, Span, StreamControl, TransferOptions};
use rdmacm::{ConnectParams, Connection, Listener, Resolver};
use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const PAGE: usize = 4096;
const ROUNDS: usize = 5;
const LIMIT: Duration = Duration::from_secs(30);
/// Pages of a transfer, transfers in flight, and number of transfers.
const ROWS: [[usize; 3]; 6] = [
    [1, 1, 4000],
    [1, 32, 16000],
    [32, 1, 1000],
    [32, 32, 1000],
    [256, 1, 200],
    [256, 32, 200],
];
/// Requests in flight at most, as in an engine.
const DEPTH: u32 = 128;
/// Requests between two signaled ones, as in an engine.
const UNSIGNALED: usize = 16;
const PROGRAMS: [&str; 2] = ["engine", "writes"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["--run", program, device, pages, in_flight, count] => {
            run(program, device, [pages, in_flight, count])
        }
        ref devices if !devices.is_empty() => table(devices),
        _ => Err("expected arguments: DEVICE=ADDRESS…".into()),
    };
    benches::exit_code("transfers", result)
}

/// Prints a row for each device, number of pages and number of transfers in flight.
fn table(devices: &[&str]) -> Result<()> {
    println!(
        "| device | pages | in flight | processor µs, engine | writes | engine / writes | elapsed µs, engine | writes | engine / writes | system calls, engine | writes |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for device in devices {
        for row in ROWS {
            let mut rounds = Vec::new();
            for round in 0..ROUNDS {
                let mut costs = [[0.0; 2]; 2];
                for at in [round % 2, 1 - round % 2] {
                    let mut this = Command::new(std::env::current_exe()?);
                    costs[at] = measure(&mut this, PROGRAMS[at], device, row)?;
                }
                rounds.push(costs);
            }
            let [pages, in_flight, _] = row;
            print!("| {device} | {pages} | {in_flight} |");
            let spread =
                |value: &dyn Fn(&[[f64; 2]; 2]) -> f64| Spread::new(rounds.iter().map(value));
            for cost in [0, 1] {
                let [engine, writes] = [0, 1].map(|at| spread(&|costs| costs[at][cost]).median);
                let ratio = spread(&|costs| costs[0][cost] / costs[1][cost]);
                print!(" {engine:.1} | {writes:.1} | {ratio} |");
            }
            for program in PROGRAMS {
                print!(" {:.2} |", system_calls(program, device, row)?);
            }
            println!();
        }
    }
    Ok(())
}

/// Runs one measurement. Returns the microseconds of processor time and of elapsed time for each
/// transfer.
fn measure(
    command: &mut Command,
    program: &str,
    device: &str,
    row: [usize; 3],
) -> Result<[f64; 2]> {
    let row = row.map(|number| number.to_string());
    let costs = benches::figures(command.args(["--run", program, device]).args(row));
    costs.map_err(|cause| format!("{program} on {device}: {cause}").into())
}

/// Returns the number of system calls for each transfer.
#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn system_calls(program: &str, device: &str, [pages, in_flight, count]: [usize; 3]) -> Result<f64> {
    let path = std::env::temp_dir().join(format!("transfers-{}", std::process::id()));
    let mut totals = [0.0; 2];
    for (times, total) in (1..).zip(&mut totals) {
        let mut strace = Command::new("strace");
        strace
            .args(["-f", "-c", "-o"])
            .arg(&path)
            .arg(std::env::current_exe()?);
        measure(
            &mut strace,
            program,
            device,
            [pages, in_flight, times * count],
        )?;
        let table = std::fs::read_to_string(&path)?;
        let line = table.lines().find(|line| line.ends_with(" total"));
        let calls = line.and_then(|line| line.split_whitespace().nth(3));
        *total = calls.ok_or("strace printed no total")?.parse()?;
    }
    std::fs::remove_file(path)?;
    Ok((totals[1] - totals[0]) / count as f64)
}

/// Measures one program and prints its costs.
fn run(program: &str, device: &str, row: [&str; 3]) -> Result<()> {
    let (device, ip) = device.split_once('=').ok_or("expected DEVICE=ADDRESS")?;
    let mut numbers = [0; 3];
    for (number, text) in numbers.iter_mut().zip(row) {
        *number = text.parse()?;
    }
    if program == "engine" {
        engine(device, numbers)
    } else {
        writes(device, ip.parse()?, numbers)
    }
}

/// Prints the costs of `count` transfers since a moment.
struct Clock(Duration, Instant);

impl Clock {
    fn start() -> Self {
        Self(processor_time(), Instant::now())
    }

    #[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
    fn print(&self, count: usize) {
        let costs = [processor_time().saturating_sub(self.0), self.1.elapsed()];
        let [processor, elapsed] = costs.map(|cost| cost.as_secs_f64() * 1e6 / count as f64);
        println!("{processor} {elapsed}");
    }
}

/// Returns the processor time of this process.
fn processor_time() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

fn engine(device: &str, [pages, in_flight, count]: [usize; 3]) -> Result<()> {
    let [a, b] = [(); 2].map(|()| Engine::open(&[device], EngineOptions::new()));
    let (a, b) = (a?, b?);
    let (of_a, of_b) = UnixStream::pair()?;
    let peer = a.connect(StreamControl::new(of_a)?)?;
    let _back = b.connect(StreamControl::new(of_b)?)?;
    let (source, target) = (a.alloc(pages * PAGE)?, b.alloc(pages * PAGE)?);
    let remote = target.remote();
    // In an order that does not make one range of them.
    let spans = (0..pages).map(|page| (page * PAGE, (pages - 1 - page) * PAGE));
    let spans: Vec<Span> = spans
        .map(|(from, to)| Span::new(from, to as u64, PAGE))
        .collect();
    let write = || peer.write(&source, &remote, &spans, TransferOptions::new());
    write()?.wait(LIMIT)?;
    let clock = Clock::start();
    let mut transfers = std::collections::VecDeque::new();
    for _ in 0..count {
        if transfers.len() == in_flight {
            let oldest: Option<rdma_transfer::Transfer> = transfers.pop_front();
            oldest.map_or(Ok(()), |oldest| oldest.wait(LIMIT))?;
        }
        transfers.push_back(write()?);
    }
    for transfer in transfers {
        transfer.wait(LIMIT)?;
    }
    clock.print(count);
    Ok(())
}

fn writes(device: &str, ip: IpAddr, [pages, in_flight, count]: [usize; 3]) -> Result<()> {
    let context = Device::by_name(device)?.open()?;
    let (pd, cqs) = (
        context.alloc_pd()?,
        [(); 2].map(|()| context.create_cq(CqOptions::new().depth(2 * DEPTH))),
    );
    let [cq, peer_cq] = cqs;
    let (mut cq, peer_cq) = (cq?, peer_cq?);
    let (mut connection, _peer) = connect(ip, &pd, &cq, &peer_cq)?;
    let source = pd.shared(pages * PAGE, AccessFlags::empty())?;
    let region = pd.shared(pages * PAGE, AccessFlags::REMOTE_WRITE)?;
    let target = region.remote();
    let qp = connection.qp_mut();
    let source = qp.hold(&source)?;
    let parts: Vec<_> = (0..pages)
        .map(|page| {
            let (from, to) = (page * PAGE, (pages - 1 - page) * PAGE);
            let to = target.slice(to as u64..(to + PAGE) as u64);
            Some((source.slice(from..from + PAGE)?, to?))
        })
        .collect::<Option<_>>()
        .ok_or("a page out of bounds")?;
    let (total, mut posted, mut done) = (count * pages, 0, 0);
    let clock = Clock::start();
    while done < total {
        let free = qp.send_slots_free().min(DEPTH as usize);
        let room = (done + in_flight * pages - posted)
            .min(total - posted)
            .min(free);
        let signaled = |number: usize| {
            (number + 1).is_multiple_of(pages) || (number + 1).is_multiple_of(UNSIGNALED)
        };
        if pages == 1 {
            for _ in 0..room {
                let (from, to) = parts[0];
                qp.post_send(wr::write(from, to).tag(posted as u64))?;
                posted += 1;
            }
        } else if room > 0 {
            let room = room.min(32);
            qp.batch(|batch| -> ibverbs::Result<()> {
                for number in posted..posted + room {
                    let (from, to) = parts[number % pages];
                    let write = wr::write(from, to).tag(number as u64);
                    batch.send(write.signaled(signaled(number)))?;
                }
                Ok(())
            })?;
            posted += room;
        }
        let mut is_idle = true;
        for completion in cq.poll()? {
            is_idle = false;
            let retired = qp.retire(completion)?;
            retired.check()?;
            done = usize::try_from(retired.tag())? + 1;
        }
        // Software devices do their work in threads of the kernel.
        if is_idle {
            thread::yield_now();
        }
    }
    clock.print(count);
    Ok(())
}

fn connect(
    ip: IpAddr,
    pd: &ProtectionDomain,
    cq: &CompletionQueue,
    peer_cq: &CompletionQueue,
) -> Result<(Connection, Connection)> {
    let options = QpOptions::new().max_send_wr(DEPTH).max_recv_wr(1);
    let listener = Listener::bind(SocketAddr::new(ip, 0), 1)?;
    let access = AccessFlags::REMOTE_WRITE;
    thread::scope(|scope| {
        let passive = scope.spawn(|| -> Result<Connection> {
            let request = listener.next_request(Some(LIMIT))?.ok_or("no request")?;
            let qp = pd.create_qp::<Rc>(peer_cq, peer_cq, options)?;
            Ok(request
                .access(access)
                .with_qp(qp)?
                .accept(&ConnectParams::new(), LIMIT)?)
        });
        let route = Resolver::new(listener.local_addr()).resolve()?;
        let ready = route.with_qp(pd.create_qp::<Rc>(cq, cq, options)?)?;
        let active = ready.connect(&ConnectParams::new(), LIMIT)?;
        Ok((
            active,
            passive.join().map_err(|_| "the passive side failed")??,
        ))
    })
}
