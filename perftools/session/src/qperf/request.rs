//! The request of a client.

use super::VERSION;
use super::bytes::{Reader, Writer};

/// Length of the encoded request in bytes.
pub(crate) const LEN: usize = 200;

/// A request. The field names are qperf's. Numbers that a test does not use are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Version of the client: major, minor, increment.
    pub version: (u16, u16, u16),
    /// [Number](super::index) of the test.
    pub index: u16,
    /// If not 0, the receiver reads the received data.
    pub access_recv: u32,
    /// CPU that the server runs on, counted from 1; 0 for any.
    pub affinity: u32,
    /// Port of the alternate path.
    pub alt_port: u32,
    /// If not 0, the server sends instead of the client.
    pub flip: u32,
    /// Message size in bytes.
    pub msg_size: u32,
    /// Path MTU in bytes.
    pub mtu_size: u32,
    /// Number of messages after which the test ends; 0 for a timed test.
    pub no_msgs: u32,
    /// If not 0, the server polls for completions.
    pub poll_mode: u32,
    /// Port of the data connection; 0 for any.
    pub port: u32,
    /// Maximum number of outstanding RDMA reads and atomics; 0 for the limit of the device.
    pub rd_atomic: u32,
    /// Service level.
    pub sl: u32,
    /// Size of socket buffers in bytes; 0 for the default of the kernel.
    pub sock_buf_size: u32,
    /// Source path bits.
    pub src_path_bits: u32,
    /// Duration of the test in seconds.
    pub time: u32,
    /// Timeout for messages of the peer in seconds.
    pub timeout: u32,
    /// If not 0, RDMA tests connect with rdma_cm.
    pub use_cm: u32,
    /// RDMA device and port.
    pub id: String,
    /// Static rate.
    pub static_rate: String,
}

impl Request {
    /// Creates a request of the implemented version for a test.
    pub(crate) fn new(index: u16) -> Self {
        Self {
            version: VERSION,
            index,
            ..Self::default()
        }
    }

    /// Encodes the request.
    pub fn encode(&self) -> [u8; LEN] {
        let numbers = [
            self.access_recv,
            self.affinity,
            self.alt_port,
            self.flip,
            self.msg_size,
            self.mtu_size,
            self.no_msgs,
            self.poll_mode,
            self.port,
            self.rd_atomic,
            self.sl,
            self.sock_buf_size,
            self.src_path_bits,
            self.time,
            self.timeout,
            self.use_cm,
        ];
        let version = Writer::new()
            .u16(self.version.0)
            .u16(self.version.1)
            .u16(self.version.2)
            .u16(self.index);
        numbers
            .into_iter()
            .fold(version, Writer::u32)
            .text(&self.id)
            .text(&self.static_rate)
            .finish()
    }

    /// Decodes a request.
    pub fn decode(bytes: &[u8; LEN]) -> Self {
        let mut r = Reader(bytes);
        Self {
            version: (r.u16(), r.u16(), r.u16()),
            index: r.u16(),
            access_recv: r.u32(),
            affinity: r.u32(),
            alt_port: r.u32(),
            flip: r.u32(),
            msg_size: r.u32(),
            mtu_size: r.u32(),
            no_msgs: r.u32(),
            poll_mode: r.u32(),
            port: r.u32(),
            rd_atomic: r.u32(),
            sl: r.u32(),
            sock_buf_size: r.u32(),
            src_path_bits: r.u32(),
            time: r.u32(),
            timeout: r.u32(),
            use_cm: r.u32(),
            id: r.text(),
            static_rate: r.text(),
        }
    }

    /// Returns `true` if the major and minor version of the client match [`VERSION`].
    pub(crate) fn is_compatible(&self) -> bool {
        (self.version.0, self.version.1) == (VERSION.0, VERSION.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::hello;
    use crate::qperf::index;

    #[test]
    fn field_offsets_match_qperf() {
        let bytes = Request {
            access_recv: 0xa1,
            msg_size: 0x0102_0304,
            time: 2,
            timeout: 5,
            use_cm: 1,
            id: "rxe0:1".into(),
            static_rate: "max".into(),
            ..Request::new(13)
        }
        .encode();
        assert_eq!(bytes[..8], [0, 0, 4, 0, 11, 0, 13, 0]);
        assert_eq!(bytes[8], 0xa1);
        assert_eq!(bytes[24..28], [4, 3, 2, 1]);
        assert_eq!((bytes[60], bytes[64], bytes[68]), (2, 5, 1));
        assert_eq!(
            (&bytes[72..79], &bytes[136..140]),
            (&b"rxe0:1\0"[..], &b"max\0"[..])
        );
    }

    #[test]
    fn the_greeting_of_rperf_is_a_request_for_conf() {
        let bytes = hello::encode_request(hello::PROTOCOL);
        let request = Request::decode(&bytes);
        let id = request.id.clone();
        let expected = Request {
            timeout: 5,
            id,
            ..Request::new(index::from_name("conf").unwrap())
        };
        assert_eq!(request, expected);
    }

    #[test]
    fn long_names_are_truncated_between_characters() {
        let id = "é".repeat(40);
        let read = Request::decode(
            &Request {
                id,
                ..Request::new(0)
            }
            .encode(),
        );
        assert_eq!(read.id, "é".repeat(31));
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_decode_and_numbers_encode_to_the_same(halves: [[u8; 25]; 8]) {
            let mut bytes = [0; LEN];
            for (to, from) in bytes.chunks_mut(25).zip(halves) {
                to.copy_from_slice(&from);
            }
            let request = Request::decode(&bytes);
            let again = request.encode();
            proptest::prop_assert_eq!(&again[..72], &bytes[..72]);
            // Invalid UTF-8 is replaced, which may truncate the strings. Numbers do not change.
            proptest::prop_assert_eq!(Request::decode(&again).msg_size, request.msg_size);
        }
    }
}
