//! Options that all ping-pong programs have, and their output.

use std::time::Instant;

use clap::Args;
use ibverbs::{Endpoint, Mtu};

use crate::Result;
use crate::exchange::Role;
use crate::local::Local;

/// Options that all ping-pong programs have.
#[derive(Args, Clone, Debug)]
pub struct Common {
    /// Server to connect to; without it, run as the server
    pub host: Option<String>,
    /// TCP port to listen on, or to connect to
    #[arg(short, long, default_value_t = 18515)]
    pub port: u16,
    /// RDMA device [default: the first one]
    #[arg(short = 'd', long, value_name = "DEVICE")]
    pub ib_dev: Option<String>,
    /// Port number of the device
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    pub ib_port: u8,
    /// Number of receives to keep posted
    #[arg(short, long, value_name = "COUNT", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=32000))]
    pub rx_depth: u32,
    /// Number of messages to send and to receive
    #[arg(short = 'n', long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub iters: u64,
    /// Service level
    #[arg(short = 'l', long, default_value_t = 0)]
    pub sl: u8,
    /// Sleep until there are completions, instead of polling
    #[arg(short, long)]
    pub events: bool,
    /// Index of the GID [default: chosen automatically if the port needs one]
    #[arg(short, long, value_name = "INDEX")]
    pub gid_idx: Option<u32>,
    /// Verify the received data (client only)
    #[arg(short, long)]
    pub chk: bool,
}

impl Common {
    /// Opens the device and port given in the options.
    ///
    /// # Errors
    /// The same as for [`Local::open`].
    pub fn open(&self) -> Result<Local> {
        Local::open(self.ib_dev.as_deref(), self.ib_port, self.gid_idx)
    }

    /// Returns the role, server or client, given in the options.
    pub fn role(&self) -> Role<'_> {
        match &self.host {
            Some(host) => Role::Client(host, self.port),
            None => Role::Server(self.port),
        }
    }

    /// Checks the length of a received message, and its bytes on a client with `--chk`.
    ///
    /// # Errors
    /// The length or a byte differs from the expected one.
    pub fn check(&self, received: &[u8], size: u32) -> Result<()> {
        let len = received.len();
        if len != size as usize {
            return Err(format!(
                "check a message: received {len} bytes, expected {size} bytes\n\
                 help: start both sides with the same -s"
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
            Some(at) => Err(format!(
                "check a message: byte {at} of {len} is {:#04x}, expected {:#04x}",
                received[at],
                at % 251
            )
            .into()),
            None => Ok(()),
        }
    }

    /// Prints the bandwidth and the time per message, as `ibv_*_pingpong` does.
    #[allow(clippy::cast_precision_loss, reason = "printed with two decimals")]
    pub fn report(&self, size: u32, start: Instant) {
        let (seconds, bytes) = (
            start.elapsed().as_secs_f64(),
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

/// Prints the address of a queue pair, as `ibv_*_pingpong` does.
pub fn print_address(side: &str, endpoint: &Endpoint) {
    println!(
        "  {side} address: LID 0x{:04x}, QPN {}, PSN 0x{:06x}, GID {}",
        endpoint.lid.0, endpoint.qpn, endpoint.psn.0, endpoint.gid
    );
}

/// Checks that the peer sent a GID, if this side uses one.
///
/// # Errors
/// The GID of the peer is zero.
pub fn require_gid(local: &Local, remote: &Endpoint) -> Result<()> {
    if local.gid.is_some() && remote.gid.is_zero() {
        return Err(
            "check the endpoint of the peer: it has no GID\nhelp: start the peer with -g".into(),
        );
    }
    Ok(())
}

/// Parses an MTU in bytes.
///
/// # Errors
/// The text is not one of the five MTUs of InfiniBand.
pub fn parse_mtu(text: &str) -> std::result::Result<Mtu, String> {
    let mtu = text.parse().ok().and_then(Mtu::from_bytes);
    mtu.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".into())
}

/// Fills a message with a sequence in which neighbouring bytes differ.
pub fn fill(message: &mut [u8]) {
    for (byte, value) in message.iter_mut().zip((0..=250).cycle()) {
        *byte = value;
    }
}
