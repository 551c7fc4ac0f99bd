//! Counts the instructions per request of other crates, as `instructions` does for this workspace:
//! poll, read the `wr_id`, and post. They run on libmlx5, with a model of the adapter.

use std::error::Error;
use std::process::{Command, ExitCode};
use std::sync::Arc;

use nic_model::{Drive, Options};
use rdma_io::cq::CompletionQueue;
use rdma_io::device::open_device_by_name;
use rdma_io::mr::{AccessFlags, OwnedMemoryRegion};
use rdma_io::qp::{QpInitAttr, QueuePair};
use rdma_io::wc::WorkCompletion;
use rdma_io::wr::{RecvWr, SendFlags, SendWr, Sge, WrOpcode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Iterations of each case.
const TIMES: u32 = 1000;
/// LID of the port.
const LID: u16 = 1;
/// Message size in bytes.
const MESSAGE_LEN: u32 = 8;

/// Two connected queue pairs of `rdma-io`: `a` sends, `b` receives.
struct Rig {
    a: QueuePair,
    b: QueuePair,
    cq_a: Arc<CompletionQueue>,
    cq_b: Arc<CompletionQueue>,
    memory: OwnedMemoryRegion,
    wc: [WorkCompletion; 32],
}

impl Rig {
    fn new() -> Result<Self> {
        nic_model::start(Options::new().drive(Drive::Step))?;
        let context = Arc::new(open_device_by_name("mlx5_0")?);
        let pd = context.alloc_pd()?;
        let (cq_a, cq_b) = (context.create_cq(128)?, context.create_cq(128)?);
        let attr = QpInitAttr {
            max_send_wr: 64,
            max_recv_wr: 64,
            sq_sig_all: false,
            ..QpInitAttr::default()
        };
        let (a, b) = (
            pd.create_qp(&cq_a, &cq_a, &attr)?,
            pd.create_qp(&cq_b, &cq_b, &attr)?,
        );
        let gid = context.query_gid(1, 0)?;
        for (qp, peer) in [(&a, &b), (&b, &a)] {
            qp.to_init(1, 0, 0)?;
            qp.to_rtr(peer.qp_num(), LID, &gid, 1)?;
            qp.to_rts(0)?;
        }
        let memory = pd.reg_mr_owned(vec![0; MESSAGE_LEN as usize], AccessFlags::LOCAL_WRITE)?;
        Ok(Self {
            a,
            b,
            cq_a,
            cq_b,
            memory,
            wc: [WorkCompletion::default(); 32],
        })
    }

    #[inline]
    fn sge(&self) -> Sge {
        Sge::new(self.memory.addr(), MESSAGE_LEN, self.memory.lkey())
    }

    #[inline]
    fn send(&self) -> Result<()> {
        Ok(self.a.post_send(
            &mut SendWr::new(1, WrOpcode::Send)
                .flags(SendFlags::SIGNALED)
                .sg(self.sge()),
        )?)
    }

    #[inline]
    fn recv(&self) -> Result<()> {
        Ok(self.b.post_recv(&mut RecvWr::new(2).sg(self.sge()))?)
    }
}

#[inline]
fn poll(cq: &CompletionQueue, wc: &mut [WorkCompletion]) -> Result<usize> {
    let count = cq.poll(wc)?;
    if wc.iter().take(count).any(|wc| !wc.is_success()) {
        return Err("a request failed".into());
    }
    Ok(count)
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured_rdma_io_send(rig: &mut Rig) -> Result<usize> {
    let count = poll(&rig.cq_a, &mut rig.wc)?;
    rig.send()?;
    Ok(count)
}

// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[inline(never)]
fn measured_rdma_io_recv(rig: &mut Rig) -> Result<usize> {
    let count = poll(&rig.cq_b, &mut rig.wc)?;
    rig.recv()?;
    Ok(count)
}

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let result = match argument.as_deref() {
        None => table(),
        Some(case) => run_case(case),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("benches-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs one case, under callgrind.
fn run_case(case: &str) -> Result<()> {
    let mut rig = Rig::new()?;
    if case == "recv" {
        rig.recv()?;
    } else {
        rig.send()?;
    }
    for _ in 0..TIMES {
        let completed = if case == "recv" {
            rig.send()?;
            nic_model::settle();
            poll(&rig.cq_a, &mut rig.wc)?;
            measured_rdma_io_recv(&mut rig)?
        } else {
            rig.recv()?;
            nic_model::settle();
            poll(&rig.cq_b, &mut rig.wc)?;
            measured_rdma_io_send(&mut rig)?
        };
        if completed != 1 {
            return Err(format!("run {case}: {completed} requests completed, expected 1").into());
        }
    }
    Ok(())
}

fn table() -> Result<()> {
    println!("| step | verbs | rdma-io |\n|---|---|---:|");
    for (step, case) in [("send", "send"), ("receive", "recv")] {
        let output = Command::new("valgrind")
            .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
            .arg(format!("--toggle-collect=measured_rdma_io_{case}"))
            .arg(std::env::current_exe()?)
            .arg(case)
            .output()
            .map_err(|error| format!("run valgrind: {error}"))?;
        let text = String::from_utf8_lossy(&output.stderr);
        let collected = text
            .lines()
            .find_map(|line| line.split("Collected : ").nth(1));
        let Some(collected) = collected.filter(|_| output.status.success()) else {
            return Err(format!("count instructions of {step}: {text}").into());
        };
        println!(
            "| {step} | Classic | {:.0} |",
            collected.trim().parse::<f64>()? / f64::from(TIMES)
        );
    }
    Ok(())
}
