//! The message of rping, which describes memory in 16 bytes: address, key and length in network
//! byte order.

use ibverbs::RemoteMemory;

/// Length of a message in bytes.
pub const MESSAGE_LEN: usize = 16;

/// The message of a server that has finished an RDMA operation; the bytes have no meaning.
pub const CONTINUE: [u8; MESSAGE_LEN] = [0; MESSAGE_LEN];

/// Encodes the message that offers memory to the server.
pub fn encode(memory: RemoteMemory) -> [u8; MESSAGE_LEN] {
    let mut message = [0; MESSAGE_LEN];
    message[..8].copy_from_slice(&memory.addr.to_be_bytes());
    message[8..12].copy_from_slice(&memory.rkey.to_be_bytes());
    message[12..].copy_from_slice(&u32::try_from(memory.len).unwrap_or(u32::MAX).to_be_bytes());
    message
}

/// Returns the memory that a message offers; `None` if the message has a different length.
pub fn decode(message: &[u8]) -> Option<RemoteMemory> {
    let (addr, rest) = message.split_first_chunk()?;
    let (rkey, len) = rest.split_first_chunk()?;
    let len: [u8; 4] = len.try_into().ok()?;
    let [rkey, len] = [*rkey, len].map(u32::from_be_bytes);
    Some(RemoteMemory {
        addr: u64::from_be_bytes(*addr),
        rkey,
        len: len.into(),
    })
}

/// Returns the data of a ping: its number, letters that are shifted by one with each ping, and a
/// zero.
pub fn ping_data(number: u64, size: usize) -> Vec<u8> {
    const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';
    let first = usize::try_from(number % LETTERS.len() as u64).unwrap_or(0);
    let letters = LETTERS.cycle().skip(first);
    let mut data: Vec<u8> = format!("rdma-ping-{number}: ").into_bytes();
    data.extend(letters.take(size.saturating_sub(data.len())));
    data.truncate(size);
    if let Some(last) = data.last_mut() {
        *last = 0;
    }
    data
}

/// Returns the printable part of ping data: the bytes before the first zero.
pub fn printable(data: &[u8]) -> String {
    let end = data
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(data.len());
    String::from_utf8_lossy(&data[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trip() {
        let memory = RemoteMemory {
            addr: 0x0102_0304_0506_0708,
            rkey: 0x090a_0b0c,
            len: 64,
        };
        let message = encode(memory);
        assert_eq!(
            message,
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 64]
        );
        assert_eq!(decode(&message), Some(memory));
        assert_eq!(decode(&message[1..]), None);
    }

    #[test]
    fn ping_data_matches_rping_of_librdmacm() {
        assert_eq!(printable(&ping_data(0, 24)), "rdma-ping-0: ABCDEFGHIJ");
        assert_eq!(printable(&ping_data(1, 24)), "rdma-ping-1: BCDEFGHIJK");
        // The sequence has 58 characters, from 'A' to 'z'.
        assert_eq!(printable(&ping_data(57, 24)), "rdma-ping-57: zABCDEFGH");
        assert_eq!(printable(&ping_data(58, 24)), "rdma-ping-58: ABCDEFGHI");
        assert_eq!(ping_data(3, 100).len(), 100);
        assert_eq!(ping_data(3, 5), b"rdma\0");
    }
}
