//! Settings from the command line, and the connection parameters of both roles.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ibverbs::AccessFlags;
use rdmacm::{ConnectParams, MessengerOptions};

use super::message::MESSAGE_LEN;

/// Maximum size of a ping in bytes.
pub const MAX_SIZE: usize = 65_536;

/// Time to wait for the next message of the peer.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Settings from the command line.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address and port of the server.
    pub address: SocketAddr,
    /// Source address of the client.
    pub source: Option<IpAddr>,
    /// Number of pings to send; 0 means no limit.
    pub count: u64,
    /// Size of a ping in bytes.
    pub size: usize,
    /// Print the data.
    pub verbose: bool,
    /// Verify the returned data on the client.
    pub validate: bool,
    /// Keep serving after the first client.
    pub persistent: bool,
}

/// Returns the options of a messenger for rping: 16-byte messages, one RDMA read in flight, and
/// remote access to registered memory.
pub fn messenger_options() -> MessengerOptions<'static> {
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
