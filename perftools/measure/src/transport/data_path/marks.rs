//! Marks of messages that are written to memory which the peer polls. The last byte of a message is
//! its mark.

use std::ops::Range;

use ibverbs::{Frozen, MemoryOptions, ProtectionDomain};

use crate::engine::payload::Payload;

/// Bytes between the starts of two messages in frozen memory.
const STEP: usize = 64;

/// Number of consecutive messages that may be lost. The memory has the mark of an earlier message
/// until the next one arrives, so marks further ahead are those of earlier messages.
pub(super) const MAX_LOST: u8 = 128;

/// Returns the last byte of message `n`. Consecutive messages have different bytes.
pub(super) fn mark_byte(n: u64) -> u8 {
    n.wrapping_add(1).to_le_bytes()[0]
}

/// Registers messages of `size` bytes with all marks as [parts](part) of frozen memory that peers
/// can read.
pub(super) fn register(
    pd: &ProtectionDomain,
    size: usize,
    options: MemoryOptions,
    payload: &Payload,
) -> ibverbs::Result<Frozen> {
    let len = part(u64::from(u8::MAX), size).end;
    pd.frozen_shared(len, options, |bytes| {
        payload.fill(bytes, 0);
        write_marks(bytes, size);
    })
}

/// Returns the range of message `n`. The ranges overlap, but their last bytes differ.
#[inline]
pub(super) fn part(n: u64, size: usize) -> Range<usize> {
    let start = usize::from(n.to_le_bytes()[0]) * STEP;
    start..start + size
}

/// Writes the mark of each message.
fn write_marks(bytes: &mut [u8], size: usize) {
    for n in 0..=u64::from(u8::MAX) {
        bytes[part(n, size).end - 1] = mark_byte(n);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_ends_with_the_mark_of_its_message() {
        for size in [1, 64, 1000] {
            let mut bytes = vec![0; part(255, size).end];
            write_marks(&mut bytes, size);
            for n in [0, 1, 254, 255, 256, 1000, u64::MAX] {
                let part = &bytes[part(n, size)];
                assert_eq!(part.len(), size);
                assert_eq!(part[size - 1], mark_byte(n), "{n} {size}");
            }
        }
    }
}
