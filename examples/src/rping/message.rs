//! The one message of rping: where memory is. 16 bytes: address, key and length, in network order.

use ibverbs::RemoteMemory;

/// Bytes of a message.
pub const MESSAGE_LEN: usize = 16;

/// What a server says when it has read or written: the bytes have no meaning.
pub const GO_ON: [u8; MESSAGE_LEN] = [0; MESSAGE_LEN];

/// The message that offers some memory.
pub fn encode(memory: RemoteMemory) -> [u8; MESSAGE_LEN] {
    let mut message = [0; MESSAGE_LEN];
    message[..8].copy_from_slice(&memory.addr.to_be_bytes());
    message[8..12].copy_from_slice(&memory.rkey.to_be_bytes());
    message[12..].copy_from_slice(&u32::try_from(memory.len).unwrap_or(u32::MAX).to_be_bytes());
    message
}

/// The memory that a message offers; `None` for a message of another length.
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

/// The text of a ping: its number, then letters that move on from ping to ping, and a zero.
pub fn text(number: u64, size: usize) -> Vec<u8> {
    const LETTERS: std::ops::RangeInclusive<u8> = b'A'..=b'z';
    let first = usize::try_from(number % LETTERS.len() as u64).unwrap_or(0);
    let letters = LETTERS.cycle().skip(first);
    let mut text: Vec<u8> = format!("rdma-ping-{number}: ").into_bytes();
    text.extend(letters.take(size.saturating_sub(text.len())));
    text.truncate(size);
    if let Some(last) = text.last_mut() {
        *last = 0;
    }
    text
}

/// What is printed of a ping: up to the zero.
pub fn printed(text: &[u8]) -> String {
    let end = text
        .iter()
        .position(|&byte| byte == 0)
        .unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_wire() {
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
    fn the_text_is_that_of_the_real_one() {
        assert_eq!(printed(&text(0, 24)), "rdma-ping-0: ABCDEFGHIJ");
        assert_eq!(printed(&text(1, 24)), "rdma-ping-1: BCDEFGHIJK");
        // 'A' to 'z' are 58 letters.
        assert_eq!(printed(&text(57, 24)), "rdma-ping-57: zABCDEFGH");
        assert_eq!(printed(&text(58, 24)), "rdma-ping-58: ABCDEFGHI");
        assert_eq!(text(3, 100).len(), 100);
        assert_eq!(text(3, 5), b"rdma\0");
    }
}
