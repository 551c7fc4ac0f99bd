//! The options that all of them have, and what they print.

use std::time::Instant;

use clap::Args;
use ibverbs::{Endpoint, Mtu};

use crate::Result;
use crate::exchange::Role;
use crate::local::Local;

/// The options that all of them have.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// The server to connect to; without it this is the server
    pub host: Option<String>,
    /// TCP port to listen on, or to connect to
    #[arg(short, long, default_value_t = 18515)]
    pub port: u16,
    /// RDMA device; the first one if not given
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,
    /// Port of the device
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,
    /// Receives to keep posted
    #[arg(short, long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=32000))]
    pub rx_depth: u32,
    /// Messages to send and to receive
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,
    /// Service level
    #[arg(short = 'l', long, default_value_t = 0)]
    pub sl: u8,
    /// Sleep until there are completions rather than poll
    #[arg(short, long)]
    pub events: bool,
    /// Index of the GID; chosen if not given and needed
    #[arg(short, long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,
    /// As the client, compare what comes back with what was sent
    #[arg(short, long)]
    pub chk: bool,
}

impl Common {
    /// Opens the device and port that the options name.
    ///
    /// # Errors
    /// As [`Local::open`].
    pub fn open(&self) -> Result<Local> {
        Local::open(self.ib_dev.as_deref(), self.ib_port, self.gid_idx)
    }

    /// Server or client.
    pub fn role(&self) -> Role<'_> {
        match &self.host {
            Some(host) => Role::Client(host, self.port),
            None => Role::Server(self.port),
        }
    }

    /// Checks what was received: its length, and on the client its bytes, if they are to be
    /// compared.
    ///
    /// # Errors
    /// When something differs, in words.
    pub fn check(&self, received: &[u8], size: u32) -> Result<()> {
        let len = received.len();
        if len != size as usize {
            return Err(format!(
                "the peer sends {len} bytes, this side {size}: give both the same -s"
            )
            .into());
        }
        let compare = self.chk && self.host.is_some();
        let differs = |(byte, value): (&u8, u8)| *byte != value;
        match received
            .iter()
            .zip((0..=250).cycle())
            .position(differs)
            .filter(|_| compare)
        {
            Some(at) => {
                Err(format!("byte {at} of {len} came back as {:#04x}", received[at]).into())
            }
            None => Ok(()),
        }
    }

    /// Prints how much time the messages took, as the C programs do.
    #[allow(clippy::cast_precision_loss, reason = "for people to read")]
    pub fn report(&self, size: u32, begun: Instant) {
        let (seconds, bytes) = (
            begun.elapsed().as_secs_f64(),
            u64::from(size) * self.iters * 2,
        );
        println!(
            "{bytes} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
            bytes as f64 * 8e-6 / seconds
        );
        println!(
            "{} iters in {seconds:.2} seconds = {:.2} usec/iter",
            self.iters,
            seconds * 1e6 / self.iters as f64
        );
    }
}

/// Prints where a queue pair is, as the C programs do.
pub fn print_address(whose: &str, end: &Endpoint) {
    println!(
        "  {whose} address: LID 0x{:04x}, QPN {}, PSN 0x{:06x}, GID {}",
        end.lid.0, end.qpn, end.psn.0, end.gid
    );
}

/// A peer on RoCE must have told its GID.
///
/// # Errors
/// When it did not.
pub fn require_gid(local: &Local, remote: &Endpoint) -> Result<()> {
    if local.gid.is_some() && remote.gid.is_zero() {
        return Err("the peer did not say its GID: start it with -g".into());
    }
    Ok(())
}

/// Parses an MTU in bytes.
///
/// # Errors
/// For what is none.
pub fn parse_mtu(text: &str) -> std::result::Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "an MTU is 256, 512, 1024, 2048 or 4096".into())
}

/// The message: bytes that differ from their neighbours.
pub fn fill(message: &mut [u8]) {
    for (byte, value) in message.iter_mut().zip((0..=250).cycle()) {
        *byte = value;
    }
}
