//! What the command line says, and how the two ends connect.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::AccessFlags;
use rdmacm::{ConnectParams, MessengerOptions};

use super::message::MESSAGE_LEN;

/// The longest ping.
pub const MAX_SIZE: usize = 65_536;

/// How long an end waits for the other's next message.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// What the command line says.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the server listens.
    pub address: SocketAddr,
    /// Where the client comes from.
    pub from: Option<IpAddr>,
    /// Pings to send; 0 for ever.
    pub count: u64,
    /// Bytes of a ping.
    pub size: usize,
    /// Whether the data are printed.
    pub verbose: bool,
    /// Whether the client checks what comes back.
    pub validate: bool,
    /// Whether the server goes on after the first client.
    pub persistent: bool,
}

/// Messages as rping has them; one read and one write at a time, into memory that is opened for
/// them.
pub fn messages() -> MessengerOptions<'static> {
    let params = ConnectParams {
        responder_resources: 1,
        initiator_depth: 1,
        ..ConnectParams::default()
    };
    let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    MessengerOptions {
        max_len: MESSAGE_LEN,
        depth: 4,
        access,
        params,
    }
}
