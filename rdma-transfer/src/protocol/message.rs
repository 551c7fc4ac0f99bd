//! The messages between two engines.

use std::io;
use std::net::SocketAddr;

use ibverbs::{Endpoint, Error, ErrorKind, RemoteMemory};
use serde::{Deserialize, Serialize};

use crate::protocol::remote_region::RemoteRegion;

/// Version of the messages and of the notices.
pub(crate) const VERSION: u32 = 1;

/// Maximum length of a message in bytes.
pub(crate) const MAX_LEN: usize = 512 << 10;
/// Limits of the options, so that the longest messages have less than [`MAX_LEN`] bytes: an offer
/// has a key for each device, and `Down` lists the jobs of the requests in flight on a path.
pub(crate) const MAX_PATHS: usize = 1 << 12;
pub(crate) const MAX_REQUESTS: u32 = 1 << 12;

/// Maximum length of the name of a region in bytes.
pub(crate) const MAX_NAME: usize = 256;

/// The address of a queue pair, which the peer needs to connect.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Address {
    /// InfiniBand or RoCE.
    Verbs { endpoint: Endpoint, mtu: u32 },
    /// iWARP. The address of the listener, at the side that accepts, and the private data that a
    /// connect request must have: it can come from another program, or from an earlier epoch.
    Cm {
        listener: Option<SocketAddr>,
        secret: u64,
        /// Number of messages that this side can receive before it has reported the first one.
        receives: u32,
    },
}

/// A message between two engines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The first message of each side. The one with the larger random number accepts the
    /// connections of the connection manager.
    Hello {
        version: u32,
        random: u64,
        devices: usize,
        queue_pairs: usize,
    },
    /// A queue pair of the epoch exists.
    Up {
        path: usize,
        epoch: u64,
        address: Address,
    },
    /// It is connected.
    Ready { path: usize, epoch: u64 },
    /// The number of messages that have arrived over an iWARP queue pair.
    Received { path: usize, epoch: u64, count: u64 },
    /// It is destroyed, or was not created. `unknown` are the jobs with a notice and the regions of
    /// all jobs whose state this side does not know.
    Down {
        path: usize,
        epoch: u64,
        unknown: Unknown,
    },
    /// The answer to `Down`, after the queue pair of this side was destroyed too, with those of the
    /// unknown jobs that have arrived, and of the regions that were released.
    Settled {
        path: usize,
        epoch: u64,
        known: Unknown,
    },
    /// A transfer that will never be complete.
    Abandoned { transfer: u64 },
    /// A region has a new key on a device that was opened again.
    Key {
        region: u64,
        device: usize,
        key: RemoteMemory,
    },
    /// A region of this side that the peer can use.
    Offer { name: String, region: RemoteRegion },
    /// This side disconnects.
    Bye,
}

/// Jobs with a notice, as transfer and job, and regions of the side that they write or read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Unknown {
    pub(crate) jobs: Vec<(u64, u32)>,
    pub(crate) regions: Vec<u64>,
}

impl Message {
    pub(crate) fn to_bytes(&self) -> io::Result<Vec<u8>> {
        Ok(serde_json::to_vec(self)?)
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> io::Result<Self> {
        Ok(serde_json::from_slice(bytes)?)
    }
}

/// Returns the error of a message that the peer must not send.
pub(crate) fn malformed(what: &str) -> Error {
    let what = format!("the peer has sent a wrong control message: {what}");
    Error::new(ErrorKind::Malformed, "transfer", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_the_same_after_encoding() {
        let message = Message::Down {
            path: 3,
            epoch: 1 << 60,
            unknown: Unknown {
                jobs: vec![(9, 1)],
                regions: vec![2],
            },
        };
        let bytes = message.to_bytes().expect("encoded");
        assert_eq!(Message::from_bytes(&bytes).expect("decoded"), message);
        assert!(Message::from_bytes(b"{}").is_err());
    }
}
