//! What a client asks for.

use super::VERSION;
use super::bytes::{Reader, Writer};

/// Length of a request.
pub const LEN: usize = 200;

/// A request. The names are qperf's; numbers that a test does not use are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// The client's version: major, minor, increment.
    pub version: (u16, u16, u16),
    /// The test's [number](super::index).
    pub index: u16,
    /// Look at what arrives.
    pub access_recv: u32,
    /// The processor that the server shall run on, from 1; 0: any.
    pub affinity: u32,
    /// The port of an alternate path.
    pub alt_port: u32,
    /// The server sends instead of the client.
    pub flip: u32,
    /// Bytes a message.
    pub msg_size: u32,
    /// The path MTU.
    pub mtu_size: u32,
    /// End after so many messages; 0: by time.
    pub no_msgs: u32,
    /// Poll for completions.
    pub poll_mode: u32,
    /// The port of the data connection; 0: any.
    pub port: u32,
    /// RDMA reads and atomics under way at once; 0: what the device can.
    pub rd_atomic: u32,
    /// The service level.
    pub sl: u32,
    /// The sockets' buffers; 0: the system's default.
    pub sock_buf_size: u32,
    /// The source path bits.
    pub src_path_bits: u32,
    /// Seconds that the test runs.
    pub time: u32,
    /// Seconds after which a silent peer is given up.
    pub timeout: u32,
    /// Connect by rdma_cm.
    pub use_cm: u32,
    /// The device and port.
    pub id: String,
    /// The static rate.
    pub static_rate: String,
}

impl Request {
    /// A request of this version.
    pub fn new(index: u16) -> Self {
        Self {
            version: VERSION,
            index,
            ..Self::default()
        }
    }

    /// As it is sent.
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
            .done()
    }

    /// What was sent.
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

    /// Whether the client's version goes with this one: the increment does not count.
    pub fn is_compatible(&self) -> bool {
        (self.version.0, self.version.1) == (VERSION.0, VERSION.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_stand_where_qperf_has_them() {
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
    fn a_long_name_is_cut_between_characters() {
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
        fn any_bytes_are_a_request_that_reads_back(halves: [[u8; 25]; 8]) {
            let mut bytes = [0; LEN];
            for (to, from) in bytes.chunks_mut(25).zip(halves) {
                to.copy_from_slice(&from);
            }
            let request = Request::decode(&bytes);
            let again = request.encode();
            proptest::prop_assert_eq!(&again[..72], &bytes[..72]);
            // Texts that are no text are made one, which may cut them; numbers stay.
            proptest::prop_assert_eq!(Request::decode(&again).msg_size, request.msg_size);
        }
    }
}
