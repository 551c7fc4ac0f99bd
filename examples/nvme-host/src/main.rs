//! An NVMe over Fabrics host: identifies a controller, writes and reads its first namespace, and
//! measures it.
//!
//! ```text
//! $ nvme-host identify 10.0.0.1:4420 nqn.2014-08.org.example:disk
//! $ nvme-host write 10.0.0.1:4420 nqn.2014-08.org.example:disk 256
//! $ nvme-host read 10.0.0.1:4420 nqn.2014-08.org.example:disk 256
//! $ nvme-host bench 10.0.0.1:4420 nqn.2014-08.org.example:disk 5
//! ```

#![forbid(unsafe_code)]

use std::time::{Duration, Instant};

use nvme_host::controller::{Controller, Subsystem};
use nvme_host::queue::Queue;
use nvme_host::session::{Direction, Session};
use nvme_host::{Error, Result, bench};

const USAGE: &str = "expected arguments: COMMAND ADDRESS:PORT NQN [ARGUMENTS], where COMMAND is
  identify          describe the controller and its namespace
  write MIB [SEED]  write the first MIB of the namespace and print their SHA-256
  read MIB          read them and print their SHA-256
  idle SECONDS      stay connected without I/O
  bench SECONDS     measure reads, then writes, which DESTROY the data";

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let [command, target, nqn, rest @ ..] = &args[..] else {
        return Err(Error::Target(USAGE.into()));
    };
    // A real host keeps its identifier, for example in /etc/nvme/hostid.
    let host_id = std::fs::read_to_string("/proc/sys/kernel/random/uuid");
    let subsystem = Subsystem {
        target: number(target)?,
        nqn: (*nqn).into(),
        host_id: host_id.unwrap_or_default().trim().into(),
    };
    match (*command, rest) {
        ("identify", []) => identify(&subsystem),
        ("write", [mib]) => transfer(subsystem, number(mib)?, Direction::Write(1)),
        ("write", [mib, seed]) => {
            transfer(subsystem, number(mib)?, Direction::Write(number(seed)?))
        }
        ("read", [mib]) => transfer(subsystem, number(mib)?, Direction::Read),
        ("idle", [seconds]) => idle(&subsystem, number(seconds)?),
        ("bench", [seconds]) => measure(&subsystem, number(seconds)?),
        _ => Err(Error::Target(USAGE.into())),
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    let error = |_| Error::Target(format!("{text}: invalid value; {USAGE}"));
    text.parse().map_err(error)
}

fn identify(subsystem: &Subsystem) -> Result<()> {
    let controller = Controller::connect(subsystem)?;
    println!("controller: {}", controller.data.name);
    let namespace = controller.namespace;
    println!(
        "namespace {}: {} blocks of {} bytes",
        namespace.nsid, namespace.blocks, namespace.block_len
    );
    println!(
        "{}: {} I/O queues, {} commands in flight on each, {} bytes per command",
        controller.io[0].context().device_name(),
        controller.io.len(),
        controller.io[0].depth(),
        namespace.max_transfer
    );
    controller.shut_down()?;
    println!("shut down");
    Ok(())
}

fn transfer(subsystem: Subsystem, mib: u64, direction: Direction) -> Result<()> {
    let mut session = Session::connect(subsystem)?;
    println!("connected");
    let start = Instant::now();
    let digest = session.transfer(mib << 20, direction)?;
    let seconds = start.elapsed().as_secs_f64();
    let hex: Vec<String> = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    println!("{}", hex.concat());
    let invalidated: u64 = session.controller.io.iter().map(Queue::invalidated).sum();
    println!(
        "{mib} MiB in {seconds:.2} s; keys invalidated by the controller: {invalidated}; \
         reconnects: {}, repeated commands: {}",
        session.reconnects, session.repeated
    );
    session.controller.shut_down()
}

fn idle(subsystem: &Subsystem, seconds: u64) -> Result<()> {
    let mut controller = Controller::connect(subsystem)?;
    controller.with_io_queues(|_| {
        std::thread::sleep(Duration::from_secs(seconds));
        Ok(())
    })?;
    controller.flush()?;
    println!("alive after {seconds} s");
    controller.shut_down()
}

fn measure(subsystem: &Subsystem, seconds: u64) -> Result<()> {
    let mut controller = Controller::connect(subsystem)?;
    for (name, direction) in [("read", Direction::Read), ("write", Direction::Write(0))] {
        let duration = Duration::from_secs(seconds);
        let (iops, mean, p99) = bench::run(&mut controller, direction, duration)?;
        let [mean, p99] = [mean, p99].map(|latency| latency.as_micros());
        println!("{name}: {iops:.0} IOPS, mean {mean} us, 99 % {p99} us");
    }
    controller.shut_down()
}
