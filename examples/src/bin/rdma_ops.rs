//! One-sided operations: RDMA write, write with immediate data, read, compare-and-swap and
//! fetch-and-add; and a write that the remote access rights do not permit.
//!
//! `rdma_ops -d rxe0`. Two queue pairs of this process represent two hosts: requests of `client`
//! access the memory of `server` without its CPU.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;
use examples::local::{Local, connect_pair};
use examples::{Result, wait};
use ibverbs::{AccessFlags, CqOptions, QpOptions, Rc, wr};

/// RDMA writes, reads and atomics between two queue pairs of this host
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Port number of the device
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    ib_port: u8,
    /// Index of the GID [default: chosen automatically if the port needs one]
    #[arg(short, long, value_name = "INDEX")]
    gid_idx: Option<u32>,
}

fn main() -> ExitCode {
    examples::exit(run(&Args::parse()))
}

fn run(args: &Args) -> Result<()> {
    let local = Local::open(args.ib_dev.as_deref(), args.ib_port, args.gid_idx)?;
    let pd = local.context.alloc_pd()?;
    let mut cq = local.context.create_cq(CqOptions::default())?;
    let mut client = pd.create_qp::<Rc>(&cq, &cq, QpOptions::default())?;
    let mut server_cq = local.context.create_cq(CqOptions::default())?;
    let mut server = pd.create_qp::<Rc>(&server_cq, &server_cq, QpOptions::default())?;
    // A remote operation needs the permission of both the queue pair and the memory region.
    let remote_access =
        AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let path = local.path(local.port.active_mtu, remote_access);
    connect_pair(&path, &mut client, &mut server)?;

    let region = pd.shared(4096, remote_access)?;
    let remote = region.remote(); // address, length and key, to be sent to a peer
    let text = remote.slice(64, 5).ok_or("slice beyond the region")?;
    let number = remote.slice(0, 8).ok_or("slice beyond the region")?;

    let mut message = pd.buf(5)?;
    message.copy_from_slice(b"hello");
    client.post_send(wr::write(message, text))?;
    let mut buf = into_buf(wait::one(&mut cq, &mut client)?)?;
    let mut bytes = [0; 5];
    region.read(64, &mut bytes)?;
    println!(
        "write: the server's memory is {:?}",
        String::from_utf8_lossy(&bytes)
    );

    // Only a write with immediate data causes a completion at the server: it consumes a receive.
    server.post_recv(wr::recv(wr::Empty))?;
    buf.copy_from_slice(b"HELLO");
    client.post_send(wr::write_with_imm(buf, text, 42))?;
    buf = into_buf(wait::one(&mut cq, &mut client)?)?;
    let received = wait::one(&mut server_cq, &mut server)?;
    received.ok()?;
    println!(
        "write with immediate data: the server received {} bytes and {:?}",
        received.byte_len(),
        received.imm_data()
    );

    client.post_send(wr::read(buf, text))?;
    buf = into_buf(wait::one(&mut cq, &mut client)?)?;
    println!("read: {:?}", String::from_utf8_lossy(&buf));

    // Atomics operate on 8 aligned bytes and return the previous value.
    region.store(0, 40, Ordering::Release)?;
    client.post_send(wr::fetch_add(pd.buf(8)?, number, 2))?;
    buf = into_buf(wait::one(&mut cq, &mut client)?)?;
    println!(
        "fetch and add 2: {} is now {}",
        value(&buf)?,
        region.load(0, Ordering::Acquire)?
    );
    for compare in [41, 42] {
        client.post_send(wr::compare_swap(buf, number, compare, 7))?;
        buf = into_buf(wait::one(&mut cq, &mut client)?)?;
        println!(
            "compare with {compare} and swap to 7: {} is now {}",
            value(&buf)?,
            region.load(0, Ordering::Acquire)?
        );
    }

    // A write to memory that permits only reads fails and breaks the connection. The completion
    // returns the buffer nevertheless.
    let readable = pd.shared(4096, AccessFlags::REMOTE_READ)?;
    client.post_send(wr::write(buf, readable.remote()))?;
    let failed = wait::one(&mut cq, &mut client)?;
    println!(
        "write to read-only memory: {}; the queue pair is in state {}",
        failed.status(),
        client.state()?
    );
    Ok(())
}

/// Returns the buffer of a request, if the request succeeded.
fn into_buf(retired: ibverbs::Retired) -> Result<ibverbs::Buf> {
    retired.ok()?;
    retired
        .into_buf()
        .ok_or_else(|| "a request had no buffer".into())
}

/// Reads the previous value that an atomic operation returned.
fn value(buf: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(buf.try_into()?))
}
