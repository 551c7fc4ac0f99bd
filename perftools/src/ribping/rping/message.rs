//! rping's 16-byte message and the text of its pings.

use ibverbs::RemoteMemory;

/// Length of a message in bytes.
pub const MESSAGE_LEN: usize = 16;

/// Encodes the message that exposes `memory` to the peer: address, rkey and length, big-endian.
pub fn encode(memory: RemoteMemory) -> [u8; MESSAGE_LEN] {
    let mut message = [0; MESSAGE_LEN];
    message[..8].copy_from_slice(&memory.addr.to_be_bytes());
    message[8..12].copy_from_slice(&memory.rkey.to_be_bytes());
    message[12..].copy_from_slice(&u32::try_from(memory.len).unwrap_or(u32::MAX).to_be_bytes());
    message
}

/// Decodes the memory that a message exposes; `None` if the length is wrong.
pub fn decode(bytes: &[u8]) -> Option<RemoteMemory> {
    let bytes: &[u8; MESSAGE_LEN] = bytes.try_into().ok()?;
    let (addr, rest) = bytes.split_first_chunk::<8>()?;
    let (rkey, rest) = rest.split_first_chunk::<4>()?;
    let len = rest.first_chunk::<4>()?;
    Some(RemoteMemory {
        addr: u64::from_be_bytes(*addr),
        rkey: u32::from_be_bytes(*rkey),
        len: u32::from_be_bytes(*len).into(),
    })
}

/// Returns the text of a ping: `rdma-ping-N: `, then letters that rotate with N, and a NUL as the
/// last byte.
pub(crate) fn text(seq: u32, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{seq}: ").into_bytes();
    let letters = (65_u8..=122)
        .cycle()
        .skip(usize::try_from(seq % 58).unwrap_or(0));
    text.truncate(size.saturating_sub(1));
    let remaining = size.saturating_sub(text.len());
    text.extend(letters.take(remaining));
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_rpings_format() {
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
        assert_eq!(decode(&message[..15]), None);
        assert_eq!(decode(&[0; 17]), None);
    }

    #[test]
    fn texts_have_rpings_format() {
        let first = text(0, 64);
        assert_eq!(&first[..16], b"rdma-ping-0: ABC");
        assert_eq!((first.len(), first[63]), (64, 0));
        assert_eq!(&text(1, 64)[..16], b"rdma-ping-1: BCD");
        for size in 1..100 {
            let text = text(123_456, size);
            assert_eq!(
                (text.len(), text.iter().position(|&byte| byte == 0)),
                (size, Some(size - 1))
            );
        }
    }
}
