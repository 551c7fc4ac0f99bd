//! One-sided operations: RDMA write, write with immediate data, read, compare-and-swap,
//! fetch-and-add, and what happens to a peer that has no right.
//!
//! `rdma_ops -d rxe0`. Two queue pairs of this process stand for two hosts: `client` works on the
//! memory behind `server`, whose processor takes no part.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::sync::atomic::Ordering;

use clap::Parser;
use examples::local::{Local, connect_pair};
use examples::{Result, wait};
use ibverbs::{AccessFlags, CqOptions, QpOptions, Rc, wr};

/// RDMA write, read and atomics between two queue pairs of this host
#[derive(Debug, Parser)]
struct Args {
    /// RDMA device; the first one if not given
    #[arg(short = 'd', long, value_name = "DEVICE")]
    ib_dev: Option<String>,
    /// Port of the device
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    ib_port: u8,
    /// Index of the GID; chosen if not given and needed
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
    // What a peer may do is the least of what the queue pair and the registration allow.
    let open = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let path = local.path(local.port.active_mtu, open);
    connect_pair(&path, &mut client, &mut server)?;

    let region = pd.shared(4096, open)?;
    let remote = region.remote(); // plain values; another host would be told them
    let text = remote.slice(64, 5).ok_or("beyond the region")?;
    let number = remote.slice(0, 8).ok_or("beyond the region")?;

    let mut message = pd.buf(5)?;
    message.copy_from_slice(b"hello");
    client.post_send(wr::write(message, text))?;
    let mut buf = finished(wait::one(&mut cq, &mut client)?)?;
    let mut seen = [0; 5];
    region.read(64, &mut seen)?;
    println!(
        "write: the server's memory is {:?}",
        String::from_utf8_lossy(&seen)
    );

    // The server hears nothing of a write, unless it comes with immediate data, which takes one of
    // its receives.
    server.post_recv(wr::recv(wr::Empty))?;
    buf.copy_from_slice(b"HELLO");
    client.post_send(wr::write_with_imm(buf, text, 42))?;
    buf = finished(wait::one(&mut cq, &mut client)?)?;
    let heard = wait::one(&mut server_cq, &mut server)?;
    heard.ok()?;
    println!(
        "write with immediate: the server hears of {} bytes and {:?}",
        heard.byte_len(),
        heard.imm_data()
    );

    client.post_send(wr::read(buf, text))?;
    buf = finished(wait::one(&mut cq, &mut client)?)?;
    println!("read: {:?}", String::from_utf8_lossy(&buf));

    // Atomics work on 8 aligned bytes, and bring what was there before.
    region.store(0, 40, Ordering::Release)?;
    client.post_send(wr::fetch_add(pd.buf(8)?, number, 2))?;
    buf = finished(wait::one(&mut cq, &mut client)?)?;
    println!(
        "fetch and add 2: {} became {}",
        value(&buf)?,
        region.load(0, Ordering::Acquire)?
    );
    for compare in [41, 42] {
        client.post_send(wr::compare_swap(buf, number, compare, 7))?;
        buf = finished(wait::one(&mut cq, &mut client)?)?;
        println!(
            "swap {compare} for 7: {} became {}",
            value(&buf)?,
            region.load(0, Ordering::Acquire)?
        );
    }

    // A write to memory that is open to reads only fails, and ends the connection. The buffer comes
    // back all the same.
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

/// The buffer of a request that succeeded.
fn finished(retired: ibverbs::Retired) -> Result<ibverbs::Buf> {
    retired.ok()?;
    retired
        .into_buf()
        .ok_or_else(|| "a request without a buffer".into())
}

/// What an atomic brought.
fn value(buf: &[u8]) -> Result<u64> {
    Ok(u64::from_ne_bytes(buf.try_into()?))
}
