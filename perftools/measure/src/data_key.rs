//! The keys of the data connections and of the datagrams of a test.

use base::error::{Error, Result};
use base::system::random;
use ibverbs::Qkey;
use serde::{Deserialize, Serialize};

/// Random numbers of a test. The server sends them over the control connection, and each end begins
/// its data connections with one of them. So each end knows that the other end of a data connection
/// has read the control connection. The data itself is not protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataKey {
    /// Number that the client sends.
    pub client: u64,
    /// Number that the server sends.
    pub server: u64,
}

/// Random numbers of the queue pairs of a test. The server sends them over the control connection.
/// An adapter compares the Q_Key of a datagram only, so that any process that knows it could send
/// datagrams to a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatagramKey {
    /// Q_Key of the queue pairs.
    qkey: u32,
    /// Immediate data of message 0. That of message `n` is the sum of both, modulo 2^32.
    pub first_imm: u32,
}

impl DatagramKey {
    /// Creates a random key.
    pub fn random() -> Self {
        #[allow(clippy::cast_possible_truncation)] // Both halves of the number are random.
        let first_imm = random() as u32;
        Self {
            qkey: random_qkey().0,
            first_imm,
        }
    }

    /// Returns the Q_Key.
    pub(crate) fn qkey(self) -> Qkey {
        Qkey(self.qkey)
    }
}

/// Returns a random Q_Key without the top bit, which needs a privilege.
pub fn random_qkey() -> Qkey {
    Qkey(u32::try_from(random() >> 33).unwrap_or(1))
}

/// First bytes of a data stream, which differ from those of a control connection at the same port.
pub const STREAM_MAGIC: [u8; 8] = *b"\x89rdata\r\n";

impl DataKey {
    /// Creates a random key.
    pub fn random() -> Self {
        Self {
            client: random(),
            server: random(),
        }
    }

    /// Returns the first bytes of the client.
    pub(crate) fn client_bytes(self) -> [u8; 8] {
        self.client.to_be_bytes()
    }

    /// Returns the first bytes of the client in a stream: [`STREAM_MAGIC`] and its number.
    pub fn stream_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&STREAM_MAGIC);
        bytes[8..].copy_from_slice(&self.client_bytes());
        bytes
    }

    /// Returns the first bytes of the server.
    pub(crate) fn server_bytes(self) -> [u8; 8] {
        self.server.to_be_bytes()
    }

    /// Checks the first bytes that the client received.
    pub fn check_server(self, received: &[u8]) -> Result<()> {
        if received.starts_with(&self.server_bytes()) {
            return Ok(());
        }
        Err(Error::protocol(
            "the other end of the data connection does not have its key: it is not the server",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_test_has_a_key_of_its_own() {
        let keys: Vec<_> = (0..8).map(|_| DatagramKey::random()).collect();
        for (index, key) in keys.iter().enumerate() {
            assert_eq!(key.qkey & 0x8000_0000, 0);
            let is_same = |k: &DatagramKey| k.qkey == key.qkey || k.first_imm == key.first_imm;
            assert!(!keys[..index].iter().any(is_same), "{keys:?}");
        }
    }
}
