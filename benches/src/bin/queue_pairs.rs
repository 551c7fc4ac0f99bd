//! Measures many queue pairs of one process: resident memory, and the time to create and to destroy
//! them, with the safe library and with `ibv_create_qp` alone.
//!
//! ```text
//! queue_pairs DEVICE…
//! queue_pairs model rxe0
//! ```
//!
//! `model` is the model of an mlx5 adapter, in the process itself. Each measurement is a process of
//! its own. The programs take turns.

#![allow(unsafe_code, reason = "calls the raw verbs")]

use std::error::Error;
use std::fs;
use std::process::{Command, ExitCode};
use std::time::Instant;

use benches::Spread;
use ibverbs::{AsRaw, CompletionQueue, CqOptions, ProtectionDomain, QpOptions, QueuePair, Rc};
use rdma_sys::{IBV_QPT_RC, ibv_create_qp, ibv_destroy_qp, ibv_qp, ibv_qp_init_attr};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const COUNTS: [usize; 3] = [100, 1000, 10_000];
const ROUNDS: usize = 5;
/// Requests in each queue of a queue pair.
const DEPTH: u32 = 16;
const PROGRAMS: [&str; 2] = ["safe", "C"];

/// Bytes, and microseconds to create and to destroy, of each queue pair.
type Costs = [f64; 3];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match arguments[..] {
        ["--run", program, device, count] => run(program, device, count),
        ref devices if !devices.is_empty() => table(devices),
        _ => Err("expected arguments: DEVICE…".into()),
    };
    benches::exit_code("queue_pairs", result)
}

/// Prints a row for each device and number of queue pairs.
fn table(devices: &[&str]) -> Result<()> {
    println!(
        "| device | queue pairs | bytes each, safe | C | create each, µs, safe | C | safe / C | destroy each, µs, safe | C | safe / C |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|");
    for device in devices {
        for count in COUNTS {
            let mut rounds: Vec<[Costs; 2]> = Vec::new();
            for round in 0..ROUNDS {
                let mut costs = [Costs::default(); 2];
                for at in [round % 2, 1 - round % 2] {
                    costs[at] = measure(PROGRAMS[at], device, count)?;
                }
                rounds.push(costs);
            }
            let spread = |value: &dyn Fn(&[Costs; 2]) -> f64| Spread::new(rounds.iter().map(value));
            let [safe, c] = [0, 1].map(|at| spread(&|costs| costs[at][0]).median);
            print!("| {device} | {count} | {safe:.0} | {c:.0} |");
            for cost in [1, 2] {
                let [safe, c] = [0, 1].map(|at| spread(&|costs| costs[at][cost]).median);
                let ratio = spread(&|costs| costs[0][cost] / costs[1][cost]);
                print!(" {safe:.1} | {c:.1} | {ratio} |");
            }
            println!();
        }
    }
    Ok(())
}

/// Runs one measurement in a process of its own.
fn measure(program: &str, device: &str, count: usize) -> Result<Costs> {
    let mut this = Command::new(std::env::current_exe()?);
    let costs = benches::figures(this.args(["--run", program, device, &count.to_string()]));
    costs.map_err(|cause| format!("{count} queue pairs on {device}, {program}: {cause}").into())
}

/// Measures one program and prints its costs.
fn run(program: &str, device: &str, count: &str) -> Result<()> {
    let count = count.parse()?;
    let context = benches::open(device)?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(CqOptions::new().depth(1024))?;
    let costs = if program == "safe" {
        cost(
            count,
            || create_safe(&pd, &cq),
            |qp| qp.destroy().map(drop).map_err(Into::into),
        )
    } else {
        cost(count, || create_raw(&pd, &cq), destroy_raw)
    };
    let [bytes, create, destroy] = costs?;
    println!("{bytes} {create} {destroy}");
    Ok(())
}

#[allow(clippy::cast_precision_loss, reason = "far below 2^52")]
fn cost<Q>(
    count: usize,
    create: impl Fn() -> Result<Q>,
    destroy: impl Fn(Q) -> Result<()>,
) -> Result<Costs> {
    // What the first one allocates for all is not counted.
    destroy(create()?)?;
    let each = |began: Instant| began.elapsed().as_secs_f64() * 1e6 / count as f64;
    let before = resident()?;
    let began = Instant::now();
    let qps: Vec<Q> = (0..count).map(|_| create()).collect::<Result<_>>()?;
    let create = each(began);
    let bytes = (resident()?.saturating_sub(before)) as f64 / count as f64;
    let began = Instant::now();
    for qp in qps {
        destroy(qp)?;
    }
    Ok([bytes, create, each(began)])
}

fn create_safe(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<QueuePair<Rc>> {
    let options = QpOptions::new().max_send_wr(DEPTH).max_recv_wr(DEPTH);
    Ok(pd.create_qp(cq, cq, options)?)
}

fn create_raw(pd: &ProtectionDomain, cq: &CompletionQueue) -> Result<*mut ibv_qp> {
    let mut attr = ibv_qp_init_attr {
        send_cq: cq.as_raw(),
        recv_cq: cq.as_raw(),
        qp_type: IBV_QPT_RC,
        ..Default::default()
    };
    attr.cap.max_send_wr = DEPTH;
    attr.cap.max_recv_wr = DEPTH;
    attr.cap.max_send_sge = 1;
    attr.cap.max_recv_sge = 1;
    // SAFETY: the domain and the queue are alive, and outlive the queue pair in `run`.
    let qp = unsafe { ibv_create_qp(pd.as_raw(), &raw mut attr) };
    if qp.is_null() {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(qp)
}

fn destroy_raw(qp: *mut ibv_qp) -> Result<()> {
    // SAFETY: `create_raw` has returned it, and it is not used again.
    match unsafe { ibv_destroy_qp(qp) } {
        0 => Ok(()),
        errno => Err(std::io::Error::from_raw_os_error(errno).into()),
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> Result<u64> {
    let statm = fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split_whitespace().nth(1).ok_or("no resident pages")?;
    // SAFETY: `sysconf` has no preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    Ok(pages.parse::<u64>()? * u64::try_from(page)?)
}
